"""Files that a program creates through the library are not readable by other users."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.files.file_system import OS
from penstock.handover.positions import position
from penstock.logbuffer import mapped
from penstock.logbuffer.descriptor import Parameters


def test_files_are_created_for_owner_and_group_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        OS.open(tmp_path / "data", create=True).close()
        OS.lock(tmp_path / "lock")()
        position.ReaderPosition(tmp_path / "position").close()
        mapped.create_file(tmp_path / "buffer", Parameters(1 << 16, 1408, 1, 1, 0), 0)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(modes) == {"data", "lock", "position", "buffer"}
    assert not [name for name, mode in modes.items() if mode & 0o027]
