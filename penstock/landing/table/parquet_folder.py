"""The table as a folder of Parquet files that anything reads: files are written aside, and moved in when they are
committed.

A reader that looks while a batch is moved in may see some of its files and not others yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.files.checked_lines import append_lines, read_lines
from penstock.files.file_system import OS, make_folder
from penstock.landing.table.table_file import TableFile, as_written
from penstock.landing.table.table_files import NewFile

Entry = tuple[int, list[str]]


class ParquetFolder:
    """The table in ``landed``; its list in the file ``listed``, and files to be committed in ``folder``."""

    def __init__(self, landed: Path, listed: Path, aside: Path) -> None:
        self.folder = aside
        self.landed, self._listed = landed, listed
        self._newest: int | None = None

    def begin(self) -> None:
        """Besides, finish what was listed and not moved in."""
        self.landed.mkdir(parents=True, exist_ok=True)
        self._listed.parent.mkdir(parents=True, exist_ok=True)
        entries = list(read_lines(self._listed, _entry, repair=True))
        self._newest = max((batch for batch, _ in entries), default=-1)
        if entries:
            self._move_in(entries[-1][1])

    def commit(self, batch: int, files: Sequence[NewFile]) -> None:
        if self.newest() >= batch:
            return
        names = [file.name for file in files]
        append_lines(self._listed, [{"batch": batch, "files": names}])
        self._newest = batch
        self._move_in(names)

    def _move_in(self, names: Sequence[str]) -> None:
        for name in names:
            if (self.folder / name).exists():
                make_folder((self.landed / name).parent)
                os.replace(self.folder / name, self.landed / name)
        for folder in {(self.landed / name).parent for name in names}:
            OS.sync_directory(folder)
            OS.sync_directory(folder.parent)

    def files(self, from_batch: int = 0) -> Iterator[Entry]:
        yield from (entry for entry in read_lines(self._listed, _entry) if entry[0] >= from_batch)

    def deleted(self) -> int:
        return 0

    def newest(self) -> int:
        if self._newest is None:
            return max((batch for batch, _ in self.files()), default=-1)
        return self._newest

    def active(self) -> list[TableFile]:
        return as_written(sorted(name for _, names in self.files() for name in names))


def _entry(told: Mapping[str, Any]) -> Entry:
    return int(told["batch"]), [str(name) for name in told["files"]]
