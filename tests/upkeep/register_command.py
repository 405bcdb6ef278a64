"""``penstock tables register`` on a batch that has landed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from tests.landing.typed import typed_life
from tests.upkeep.test_changes import land

Register = Callable[..., str]


def prepare_register(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Register:
    """Land a batch, and return a function that runs the command, expects its status and returns its output."""
    land(typed_life.Life(Layout.for_tables(data_dir / "tables")), 0)

    def run(*words: str, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["penstock", "tables", "register", *words, "-o", f"data_dir={data_dir}"])
        with pytest.raises(SystemExit) as completed:
            main()
        captured = capsys.readouterr()
        assert (completed.value.code or 0) == status, captured.err
        return captured.out + captured.err

    return run


def widen_clicks(data_dir: Path) -> None:
    """Land a second batch, with one more column in the table of clicks."""
    wider = TypedTable("click", "click", (*typed_life.CLICK.columns, Column("more", "decimal(9,2)", "more")))
    land(typed_life.Life(Layout.for_tables(data_dir / "tables"), [wider]), 1)
