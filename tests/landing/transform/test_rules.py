"""The configured function, and errors that name its key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.transform.redaction import Hashes
from penstock.landing.transform.rules import BadTransform, Transformation, TransformRules, load, module_source
from tests.landing.transform import functions
from tests.landing.writing.messages import AT, source

HERE = "tests.landing.transform.functions"


def test_function_is_loaded_by_module_and_name() -> None:
    assert load(f"{HERE}:drop_debug") is functions.drop_debug
    assert [step.name for step in TransformRules(f"{HERE}:drop_debug", ("x",), fields=("host",)).steps()] == [
        "pipeline.redact.patterns",
        "pipeline.redact.hash",
        "pipeline.transform",
    ]
    assert not TransformRules().steps()
    (step,) = TransformRules(fields=('data."user.id"', "data.user.id")).steps()
    assert step.function == Hashes((("data", "user.id"), ("data", "user", "id")), b"")


def test_repr_hides_the_salt() -> None:
    rules = TransformRules(fields=("host",), salt=b"pepper")
    assert "pepper" not in f"{rules} {rules.steps()}"


def test_reason_redacted_survives_later_steps() -> None:
    steps = TransformRules(f"{HERE}:backwards", patterns=("secret",)).steps()
    messages = source([(0, b"secret"), (1, b"x"), (2, b"secret")])
    ((kind, rows),) = Transformation(steps).apply(table_rows(messages.rows, Rules(), AT))
    assert kind == "message"
    assert [(row["offset"], row["reason"]) for row in rows.to_pylist()] == [(2, "redacted"), (1, None), (0, "redacted")]


def test_module_in_working_folder_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_rows.py").write_text("def same(rows):\n    return rows\n")
    assert load("own_rows:same")(5) == 5  # type: ignore[arg-type]
    assert module_source("own_rows:same") == tmp_path / "own_rows.py"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "no_such_module_anywhere:f",
            "no module 'no_such_module_anywhere' is installed or here; start this command in the folder of the",
        ),
        (f"{HERE}:nothing", "has no attribute"),
        (f"{HERE}:NO_FUNCTION", "is not a function"),
    ],
)
def test_failed_import_raises_its_key(name: str, text: str) -> None:
    with pytest.raises(BadTransform, match=rf"^pipeline\.transform = '{name}' .*{text}"):
        TransformRules(name).check()


def test_raising_module_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raises_at_once.py").write_text("raise SystemError('one\\ntwo')\n")
    with pytest.raises(BadTransform) as raised:
        load("raises_at_once:f")
    assert str(raised.value) == "pipeline.transform = 'raises_at_once:f' cannot be imported: SystemError: one"


def test_module_source_is_the_whole_package() -> None:
    assert module_source(f"{HERE}:drop_debug") == Path(functions.__file__).parents[2]
    assert module_source("builtins:print") is None
