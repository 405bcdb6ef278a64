"""``penstock export``: run, check, list and rebuild."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from penstock.cli.tables.export import SHOWN_TEXT, around_difference
from penstock.landing.table_paths import Layout
from tests.cli.command_line import run_in_process
from tests.landing.typed import typed_life
from tests.upkeep.test_changes import EVENTS, land


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command of the group, expect its status, and return its output."""
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    land(life, 0)
    target = f"export=[{{name='copy', to='duckdb:{tmp_path}/copy.duckdb'}}]"

    def run(*words: str, status: int = 0) -> str:
        command = ["export", *words, "-o", f"data_dir={tmp_path}", "-o", target]
        ended, output, errors = run_in_process(command, monkeypatch, capsys)
        assert ended == status, errors
        return output + errors

    return run


def test_export_is_run_checked_and_rebuilt(command: Callable[..., str], tmp_path: Path) -> None:
    assert "no pipeline has run it yet" in command("list", "--json")
    assert "nothing was copied yet" in command("check", "copy", status=3)
    assert f"{EVENTS} rows added" in command("run", "copy")
    assert "equal through batch 0; 0 batches and 0 deletions wait" in command("check", "copy")
    (listed,) = json.loads(command("list", "--json"))
    assert (listed["batch"], listed["failure"]) == (0, "")
    assert "copy" in command("list")
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as connection:
        connection.execute("delete from events where uuid = '0-1'")
    document = json.loads(command("check", "copy", "--json", status=1))
    assert (document["equal"], document["table"]["rows"], document["target"]["rows"]) == (False, EVENTS, EVENTS - 1)
    assert [(row["kind"], row["topic"], row["offset"]) for row in document["differences"]] == [("missing", "t", 1)]
    assert "--yes" in command("rebuild", "copy", status=2)
    command("rebuild", "copy", "--yes")
    assert f"{EVENTS} rows added" in command("run", "copy")
    assert json.loads(command("check", "copy", "--json"))["equal"]


def test_altered_text_is_shown_where_it_begins_to_differ(command: Callable[..., str], tmp_path: Path) -> None:
    command("run", "copy")
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as connection:
        connection.execute("update events set data = repeat('x', 300) where uuid = '0-1'")
    output = command("check", "copy", status=1)
    assert "DIFFERENT through batch 0" in output
    assert "altered data" in output
    assert "1 ranges of 65,536 offsets have rows that differ" in output
    (difference,) = json.loads(command("check", "copy", "--json", status=1))["differences"]
    assert (difference["column"], difference["present"]) == ("data", "x" * 300)


def test_list_shows_whole_times_in_a_narrow_terminal(
    command: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command("run", "copy")
    (until,) = (row["until"] for row in json.loads(command("list", "--json")))
    assert len(f"duckdb:{tmp_path}/copy.duckdb") > 40
    assert f" {until}" in command("list")


@pytest.mark.parametrize("length", [10, 400])
def test_shown_parts_of_two_texts_differ(length: int) -> None:
    expected, present = around_difference("a" * length + "b", "a" * length + "\x1bc" * 200)
    assert expected.strip("…") != present.strip("…")
    assert max(len(expected), len(present)) <= SHOWN_TEXT + 2


def test_unknown_export_is_named(command: Callable[..., str]) -> None:
    assert "configured exports: copy" in command("check", "other", status=2)
