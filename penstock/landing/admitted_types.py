"""The event types that were let in, where any are: each becomes a folder of the table, so there is a limit.

The registry is a folder with one small file per type, named by its number and linked into place, so that
any number of worker processes agree on which types came first, and a type once let in stays in.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


class TypeRegistry:
    """At most ``limit`` types, kept in ``folder`` (created at need; shared by all workers)."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._known: set[str] = set()
        self._slots = 0

    def types(self) -> set[str]:
        """All types let in so far, by any process."""
        self._catch_up()
        return set(self._known)

    def admit(self, names: Iterable[str]) -> set[str]:
        """Those of ``names`` that are let in, new ones included while there is room."""
        asked = set(names)
        if asked - self._known and self._slots < self._limit:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._catch_up()
            for name in sorted(asked - self._known):
                self._claim(name)
        return asked & self._known

    def _catch_up(self) -> None:
        while self._slots < self._limit and (path := self._path(self._slots)).exists():
            self._known.add(path.read_bytes().decode())  # as it is: read_text would change line ends
            self._slots += 1

    def _claim(self, name: str) -> None:
        """Take the next free slot for ``name``, unless another process gave it one meanwhile."""
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(name.encode())
                file.flush()
                os.fsync(file.fileno())
            while name not in self._known and self._slots < self._limit:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, self._path(self._slots))
                self._catch_up()
        finally:
            os.unlink(temporary)

    def _path(self, slot: int) -> Path:
        return self._folder / f"{slot:06d}"
