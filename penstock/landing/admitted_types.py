"""The event types that were let in, where any are: each becomes a folder of the table, so there is a limit.

The registry is a folder with one small file per type, named by its number and linked into place, so that
any number of worker processes agree on which types came first, and a type once let in stays in.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from penstock.files.checked_document import encode, read_document
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS

_LOGGER = logging.getLogger(__name__)


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
        while self._slots < self._limit and (name := self._name(self._slots)) is not None:
            self._known |= {name} - {""}
            self._slots += 1

    def _name(self, slot: int) -> str | None:
        """The type in a slot: "" where it is damaged, which is told once; None where the slot is free."""
        old, path = self._folder / f"{slot:06d}", self._path(slot)
        try:
            if old.exists():  # of before 0.2: the bare name
                return old.read_bytes().decode()
            return str(read_document(path)["type"])
        except FileNotFoundError:
            return None
        except (DamagedFile, KeyError, ValueError):
            _LOGGER.warning("%s is damaged: its type is let in again while there is room", path)
            return ""

    def _claim(self, name: str) -> None:
        """Take the next free slot for ``name``, unless another process gave it one meanwhile."""
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(encode({"type": name}))
                file.flush()
                os.fsync(file.fileno())
            while name not in self._known and self._slots < self._limit:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, self._path(self._slots))
                    OS.sync_directory(self._folder)
                self._catch_up()
        finally:
            os.unlink(temporary)

    def _path(self, slot: int) -> Path:
        return self._folder / f"{slot:06d}.json"
