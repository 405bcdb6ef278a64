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

from penstock.cli.main import main
from tests.cli import command_line
from tests.spark.spark_helpers import append, event

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(topics: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    append(topics, "events", [event(0, data={"price": 9.5}), event(1, kind="view"), b"pl\x1bain", b"{"])

    def asked(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", "sql", *words, "-o", f"data_dir={topics.parent}"])
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return asked


def test_an_answer_is_a_table_and_says_what_was_asked(run: Run) -> None:
    status, out, err = run("select type, count(*) as rows from events group by 1 order by 1")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [["type", "rows"], ["click", "1"], ["view", "1"]]
    assert err == "no table yet, and 4 newer messages of the log\n"


def test_a_terminal_gets_no_control_characters(run: Run) -> None:
    assert "pl\\x1bain" in run("select payload from messages")[1]


def test_what_is_not_shown_is_said(run: Run) -> None:
    _, out, err = run("select uuid from events", "-n", "1")
    assert len(out.splitlines()) == 2
    assert err.startswith("more than 1 rows: -n shows more")


def test_as_json_values_are_what_json_has(run: Run) -> None:
    text = (
        "select uuid, \"offset\", payload, data, timestamp > '2020-01-01' as late, annotations from events order by 1"
    )
    rows = json.loads(run(text, "--json")[1])
    payload = event(0, data={"price": 9.5}).decode()
    first = {"uuid": "u0", "offset": 0, "payload": payload, "data": '{"price":9.5}', "late": True}
    assert {name: rows[0][name] for name in first} == first
    assert len(rows) == 2


def test_as_csv_any_reader_takes_it(run: Run) -> None:
    out = run('select "offset", payload, date, reason from landed order by 1', "--csv")[1]
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["offset"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[3]["payload"] == "{"
    assert (rows[0]["reason"], rows[3]["reason"]) == ("", "bad_json")


def test_as_arrow_the_types_are_kept(run: Run, tmp_path: Path) -> None:
    assert run("select timestamp, payload from landed", "--arrow", str(tmp_path / "rows.arrow"))[0] == 0
    with pa.ipc.open_file(tmp_path / "rows.arrow") as file:
        rows = file.read_all()
    assert rows.schema.types == [pa.timestamp("us", "UTC"), pa.binary()]
    assert rows.num_rows == 4


def test_a_query_that_is_wrong_is_one_error(run: Run) -> None:
    status, out, err = run("select * from nosuch")
    assert (status, out) == (1, "")
    assert err.startswith("penstock: Catalog Error: Table with name nosuch does not exist!")
    assert "Traceback" not in err


def test_schemas_that_only_spark_can_read_have_to_be_known(run: Run) -> None:
    status, _, err = run("select 1 from events", "-o", 'pipeline.schemas={click="price double"}')
    assert status == 1
    assert "let it run once" in err
    assert run("select count(*) from events", "--landed", "-o", 'pipeline.schemas={click="price double"}')[0] == 0


def test_values_that_json_or_python_have_not_are_told_or_null(run: Run) -> None:
    assert json.loads(run("select 'nan'::double as a, 1.5::double as b", "--json")[1]) == [{"a": None, "b": 1.5}]
    for text in ("select timestamp 'infinity' as a", "select map {date '2020-01-01': 1} as a"):
        status, out, err = run(text, "--json")
        assert (status, out) == (1, "")
        assert "cast it to VARCHAR" in err


def test_a_query_imports_neither_what_writes_the_log_nor_what_reads_tables_at_a_url(topics: Path) -> None:
    append(topics, "events", [event(0)])
    ended = command_line.run("sql", "select count(*) from events", "-o", f"data_dir={topics.parent}", folder=topics)
    assert ended.status == 0, ended.errors
    assert not ended.modules & {"penstock.log.log", "penstock.log.topic", "pyarrow.dataset", "pandas", "grpc"}
