"""``penstock export``: run, check, list and rebuild."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from penstock.cli.main import main
from penstock.landing.table_paths import Layout
from tests.landing.typed import typed_life
from tests.upkeep.test_changes import EVENTS, land


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command of the group, expect its status, and return its output."""
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    land(life, 0)
    target = f"export=[{{name='copy', to='duckdb:{tmp_path}/copy.duckdb'}}]"

    def run(*words: str, status: int = 0) -> str:
        options = ["-o", f"data_dir={tmp_path}", "-o", target]
        monkeypatch.setattr(sys, "argv", ["penstock", "export", *words, *options])
        with pytest.raises(SystemExit) as completed:
            main()
        captured = capsys.readouterr()
        assert (completed.value.code or 0) == status, captured.err
        return captured.out + captured.err

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
    assert "--yes" in command("rebuild", "copy", status=2)
    command("rebuild", "copy", "--yes")
    assert f"{EVENTS} rows added" in command("run", "copy")
    assert json.loads(command("check", "copy", "--json"))["equal"]


def test_unknown_export_is_named(command: Callable[..., str]) -> None:
    assert "configured exports: copy" in command("check", "other", status=2)
