"""Tables of another version: every command says so in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.files.checked_document import write_document
from penstock.landing.table_paths import Layout
from tests.cli.command_line import run_in_process

COMMANDS = ["tables rows", "tables files", "trace some-uuid", "balance --rebuild --by type"]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_both_versions_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    layout.format.parent.mkdir(parents=True)
    (tmp_path / "topics").mkdir()
    write_document(layout.format, {"version": 2})
    status, _, message = run_in_process([*command.split(), "-o", f"data_dir={tmp_path}"], monkeypatch, capsys)
    assert status == 1
    assert "landed.format.json has version 2, and this Penstock reads version 1" in message
    assert len(message.strip().splitlines()) == 1
