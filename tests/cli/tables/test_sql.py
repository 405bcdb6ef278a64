"""``penstock sql``: answers as tables, JSON, CSV and Arrow."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.sql import answers
from tests.cli import command_line
from tests.spark.spark_helpers import append, event

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(topics: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    # A busy machine is slow, too.
    monkeypatch.setattr(answers, "SLOW_AFTER_S", 1000.0)
    append(topics, "events", [event(0, data={"price": 9.5}), event(1, kind="view"), b"pl\x1bain", b"{"])

    def run_words(*words: str) -> tuple[int, str, str]:
        command = ["sql", *words, "-o", f"data_dir={topics.parent}"]
        return command_line.run_in_process(command, monkeypatch, capsys)

    return run_words


def test_query_prints_a_table_and_its_scope(run: Run) -> None:
    status, out, err = run("select type, count(*) as rows from events group by 1 order by 1")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [["type", "rows"], ["click", "1"], ["view", "1"]]
    assert err == "no table yet, and 4 newer messages of the log\n"


def test_terminal_receives_no_control_characters(run: Run) -> None:
    assert "pl\\x1bain" in run("select payload from messages")[1]


def test_query_reports_rows_beyond_the_limit(run: Run) -> None:
    _, out, err = run("select uuid from events", "-n", "1")
    assert len(out.splitlines()) == 2
    assert err.startswith("more than 1 rows: -n prints more")


def test_json_output_uses_json_types(run: Run) -> None:
    text = (
        "select uuid, \"offset\", payload, data, timestamp > '2020-01-01' as late, annotations from events order by 1"
    )
    rows = json.loads(run(text, "--json")[1])
    payload = event(0, data={"price": 9.5}).decode()
    first = {"uuid": "u0", "offset": 0, "payload": payload, "data": '{"price":9.5}', "late": True}
    assert {name: rows[0][name] for name in first} == first
    assert len(rows) == 2


def test_csv_output_is_readable(run: Run) -> None:
    out = run('select "offset", payload, date, reason from landed order by 1', "--csv")[1]
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["offset"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[3]["payload"] == "{"
    assert (rows[0]["reason"], rows[3]["reason"]) == ("", "bad_json")


def test_arrow_output_keeps_types(run: Run, tmp_path: Path) -> None:
    assert run("select timestamp, payload from landed", "--arrow", str(tmp_path / "rows.arrow"))[0] == 0
    with pa.ipc.open_file(tmp_path / "rows.arrow") as file:
        rows = file.read_all()
    assert rows.schema.types == [pa.timestamp("us", "UTC"), pa.binary()]
    assert rows.num_rows == 4


def test_invalid_query_is_one_error(run: Run) -> None:
    status, out, err = run("select * from nosuch")
    assert (status, out) == (1, "")
    assert err.startswith("penstock: Catalog Error: Table with name nosuch does not exist: Existing views: landed")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_transformation_of_another_folder_is_one_error_with_the_next_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sql_changes.py").write_text("def same(rows):\n    return rows\n")
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path / "other")
    query = ("select count(*) as n from events", "-o", "pipeline.transform=sql_changes:same")
    status, out, err = run(*query)
    assert (status, out) == (1, "")
    assert " ".join(err.split()).endswith(
        "pipeline.transform = 'sql_changes:same' cannot be imported: no module 'sql_changes' is installed or here; "
        "start this command in the folder of the module, or name that folder in PYTHONPATH"
    )
    monkeypatch.chdir(tmp_path)
    assert run(*query)[0] == 0


def test_unknown_table_schema_is_rejected(run: Run) -> None:
    status, _, err = run("select 1 from events", "-o", 'pipeline.schemas={click="price double"}')
    assert status == 1
    assert "differs from the last run of the pipeline: run it once" in err
    assert run("select count(*) from events", "--landed", "-o", 'pipeline.schemas={click="price double"}')[0] == 0


def test_values_without_json_form_are_text_or_null(run: Run) -> None:
    assert json.loads(run("select 'nan'::double as a, 1.5::double as b", "--json")[1]) == [{"a": None, "b": 1.5}]
    for text in ("select timestamp 'infinity' as a", "select map {date '2020-01-01': 1} as a"):
        status, out, err = run(text, "--json")
        assert (status, out) == (1, "")
        assert "cast it to VARCHAR" in err


def test_query_imports_neither_log_writer_nor_object_stores(topics: Path) -> None:
    append(topics, "events", [event(0)])
    completed = command_line.run("sql", "select count(*) from events", "-o", f"data_dir={topics.parent}", folder=topics)
    assert completed.status == 0, completed.errors
    assert not completed.modules & {"penstock.log.log", "penstock.log.topic", "pyarrow.dataset", "pandas", "grpc"}
