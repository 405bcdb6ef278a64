"""A look into the tables without Spark: which files hold a type, and a row of each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.main import main
from penstock.cli.tables.contents import rows_by_view, sample_rows
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message


def files(table: HandWritten, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> int:
    folder = table.layout.tables.parent
    output = ["penstock", "tables", "files", *words, "--json", "-o", f"data_dir={folder}"]
    monkeypatch.setattr(sys, "argv", output)
    with pytest.raises(SystemExit) as completed:
        main()
    assert not completed.value.code
    rows = json.loads(capsys.readouterr().out)
    assert all(Path(path).is_file() for path in rows)
    return len(rows)


def test_files_lists_files_with_rows_of_the_type(
    table: HandWritten, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table.commit({"t": 3}, [landed_event(0, "u1", type="click"), landed_event(1, "u2", type="a/b"), landed_message(2)])
    table.commit({"t": 4}, [landed_event(3, "u3", type="click")])
    assert files(table, monkeypatch, capsys) == 3
    assert files(table, monkeypatch, capsys, "--type", "click") == 2
    assert files(table, monkeypatch, capsys, "--type", "a/b") == 1
    assert files(table, monkeypatch, capsys, "--type", "other") == 0
    assert files(table, monkeypatch, capsys, "--view", "events") == 2
    assert files(table, monkeypatch, capsys, "--view", "messages", "--type", "click") == 0


def test_sample_rows_has_a_row_of_each_type_or_kind(table: HandWritten) -> None:
    events = [landed_event(n, f"u{n}", type=entry, payload=b"{}") for n, entry in enumerate(("click", "a", "click"))]
    table.commit({"t": 4}, [*events, landed_message(3, type=None, payload=b"\x1b[1mhi")])
    assert rows_by_view(table.layout.tables) == {"events": 3, "syslog": 0, "messages": 1, "quarantine": 0}
    console = Console(width=80)
    with console.capture() as printed:
        console.print(sample_rows(table.layout.tables, 5))
    lines = [line.split() for line in printed.get().splitlines()]
    assert [(line[0], line[1]) for line in lines[1:]] == [("a", "1"), ("click", "0"), ("message", "3")]
    assert "\x1b[1m" not in printed.get()
