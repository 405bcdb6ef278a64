"""``penstock tables register`` on a batch that has landed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from tests.cli.command_line import run_in_process
from tests.landing.typed import typed_life
from tests.upkeep.test_changes import land

Register = Callable[..., str]


def prepare_register(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Register:
    """Land a batch, and return a function that runs the command, expects its status and returns its output."""
    land(typed_life.Life(Layout.for_tables(data_dir / "tables")), 0)

    def run(*words: str, status: int = 0) -> str:
        command = ["tables", "register", *words, "-o", f"data_dir={data_dir}"]
        ended, output, errors = run_in_process(command, monkeypatch, capsys)
        assert ended == status, errors
        return output + errors

    return run


def widen_clicks(data_dir: Path) -> None:
    """Land a second batch, with one more column in the table of clicks."""
    wider = TypedTable("click", "click", (*typed_life.CLICK.columns, Column("more", "decimal(9,2)", "more")))
    land(typed_life.Life(Layout.for_tables(data_dir / "tables"), [wider]), 1)
