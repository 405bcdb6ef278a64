"""Tables of an earlier version: every command says in one line what to do about them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.files.checked_document import write_document
from penstock.landing.table_paths import Layout

COMMANDS = ["tables rows", "tables files", "trace some-uuid", "balance --rebuild --by type"]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["penstock", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_that_carries_them_over_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    layout = Layout.of(tmp_path / "tables")
    layout.format.parent.mkdir(parents=True)
    (tmp_path / "topics").mkdir()
    write_document(layout.format, {"form": "parquet", "data_format": "json"})
    assert run(monkeypatch, *command.split(), "-o", f"data_dir={tmp_path}") == 1
    said = capsys.readouterr().err
    assert "`penstock tables upgrade`" in said
    assert len(said.strip().splitlines()) == 1
    assert run(monkeypatch, "tables", "upgrade", "-o", f"data_dir={tmp_path}") == 0
    assert run(monkeypatch, "tables", "rows", "-o", f"data_dir={tmp_path}") == 0
