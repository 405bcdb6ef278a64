"""Which function is meant, and what is told where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.transform.rules import BadTransform, Transformation, TransformRules, load, module_source
from tests.landing.transform import functions
from tests.landing.writing.messages import AT, source

HERE = "tests.landing.transform.functions"


def test_a_function_is_found_by_module_and_name() -> None:
    assert load(f"{HERE}:drop_debug") is functions.drop_debug
    assert [step.name for step in TransformRules(f"{HERE}:drop_debug", ("x",), fields=("host",)).steps()] == [
        "pipeline.redact.patterns",
        "pipeline.redact.hash",
        "pipeline.transform",
    ]
    assert not TransformRules().steps()


def test_the_key_of_hashes_is_not_shown() -> None:
    rules = TransformRules(fields=("host",), salt=b"pepper")
    assert "pepper" not in f"{rules} {rules.steps()}"


def test_what_one_step_changed_is_known_to_be_changed_after_the_next_ones() -> None:
    steps = TransformRules(f"{HERE}:backwards", patterns=("secret",)).steps()
    messages = source([(0, b"secret"), (1, b"x"), (2, b"secret")])
    ((kind, rows),) = Transformation(steps).apply(table_rows(messages.rows, Rules(), AT))
    assert kind == "message"
    assert [(row["offset"], row["reason"]) for row in rows.to_pylist()] == [(2, "redacted"), (1, None), (0, "redacted")]


def test_a_module_in_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_rows.py").write_text("def same(rows):\n    return rows\n")
    assert load("own_rows:same")(5) == 5  # type: ignore[arg-type]
    assert module_source("own_rows:same") == tmp_path / "own_rows.py"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_module_anywhere:f", "No module named"),
        (f"{HERE}:nothing", "has no attribute"),
        (f"{HERE}:NO_FUNCTION", "is no function"),
    ],
)
def test_what_cannot_be_imported_is_told_with_its_key(name: str, text: str) -> None:
    with pytest.raises(BadTransform, match=rf"^pipeline\.transform = '{name}' .*{text}"):
        TransformRules(name).check()


def test_a_module_that_raises_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raises_at_once.py").write_text("raise SystemError('one\\ntwo')\n")
    with pytest.raises(BadTransform) as told:
        load("raises_at_once:f")
    assert str(told.value) == "pipeline.transform = 'raises_at_once:f' cannot be imported: SystemError: one"


def test_what_is_sent_to_others_is_the_whole_package_around_a_function() -> None:
    assert module_source(f"{HERE}:drop_debug") == Path(functions.__file__).parents[2]
    assert module_source("builtins:print") is None
