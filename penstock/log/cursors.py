"""Named cursors of a topic: the offset up to which a reader has read, one small file each and a copy of it.

Invariant: damage of one file never moves a cursor forward. A cursor whose file and copy are both damaged restarts at 0,
where it protects all entries of its topic.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.documents import decode, encode
from penstock.log.errors import write_error
from penstock.log.read.topic_reader import TopicReader
from penstock.log.settings import MAX_NAME_BYTES

FOLDER = "cursors"
LAST_OFFSET = 2**63 - 1
_NAME = re.compile(r"[a-z0-9_\-.]+")
_SUFFIX = ".cursor"
_COPY_SUFFIX = ".cursor.copy"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """The unread part of a topic: entries, bytes (as stored), and the age of its first entry in seconds."""

    entries: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """The position of a cursor, and the entries after it: their number, stored bytes and first time (microseconds)."""

    offset: int
    entries: int
    bytes: int
    first_micros: int

    @classmethod
    def from_reader(cls, reader: TopicReader, offset: int) -> Backlog:
        """Return the backlog of a cursor at ``offset``. Raises CorruptBatch."""
        return cls(offset, *reader.backlog(offset))

    def lag(self, now_micros: int) -> Lag:
        """Return the lag at a time in microseconds."""
        seconds = (now_micros - self.first_micros) / 1e6 if self.entries else 0.0
        return Lag(self.entries, self.bytes, max(seconds, 0.0))


class Cursors:
    """The cursors of the topic in ``directory``. From any thread."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._folder = directory / FOLDER
        self._is_folder_synced = False
        # A repair writes what it read before: without the lock it could undo a commit.
        self._lock = threading.Lock()

    def commit(self, name: str, offset: int, note: str = "") -> None:
        """Set a cursor; durable on return. ``note`` is stored for the owner of the cursor.

        Raises ValueError for a bad name or offset, LogFull.
        """
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME_BYTES:
            raise ValueError(f"{name!r} is not a cursor name: {_NAME.pattern}, at most {MAX_NAME_BYTES} characters")
        if not 0 <= offset <= LAST_OFFSET:
            raise ValueError(f"offset {offset} of a cursor is not one of 0 to {LAST_OFFSET}")
        try:
            with self._lock:
                self._write(name, encode({"offset": offset, **({"note": note} if note else {})}))
        except OSError as error:
            raise write_error(error) from error

    def _write(self, name: str, content: bytes) -> None:
        # Crash: a folder that exists may be one whose sync failed, or that a killed process made and did not sync.
        if not (self._is_folder_synced and self._folder.exists()):
            self._fs.make_directory(self._folder)
            self._fs.sync_directory(self._folder.parent)
            self._is_folder_synced = True
        # Order: the file before its copy. Crash: the copy is not synced, so that a commit costs no second sync; a power
        # failure may leave it old or damaged, but then the file is good.
        replace_durably(self._fs, self._folder / (name + _SUFFIX), content)
        with contextlib.suppress(OSError):
            replace_durably(self._fs, self._folder / (name + _COPY_SUFFIX), content, synced=False)

    def position(self, name: str) -> tuple[int, str] | None:
        """Return the offset and note of a cursor, None without one; no other is read. Raises UnknownFormat, OSError.

        The offset is 0 and the note empty if its files are damaged.
        """
        document = self._load(name)
        return None if document is None else (document["offset"], document.get("note", ""))

    def remove(self, name: str) -> None:
        """Remove a cursor if it exists; durable on return.

        Raises WriteFailed: the cursor may exist or not.
        """
        try:
            with self._lock:
                self._remove(name)
        except OSError as error:
            raise write_error(error) from error

    def _remove(self, name: str) -> None:
        # Order: the copy first. Crash: in between the cursor still exists; a copy alone would restore it.
        for suffix in (_COPY_SUFFIX, _SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(self._folder / (name + suffix))
        if self._folder.exists():
            self._fs.sync_directory(self._folder)

    def names(self) -> list[str]:
        """Return the names of all cursors; no file is read."""
        try:
            files = [name for name in self._fs.names(self._folder) if name.endswith((_SUFFIX, _COPY_SUFFIX))]
        except FileNotFoundError:
            return []
        return sorted({name.removesuffix(_COPY_SUFFIX).removesuffix(_SUFFIX) for name in files})

    def offsets(self) -> dict[str, int]:
        """Return all cursors by name; one whose file and copy are damaged is set to 0. Raises UnknownFormat."""
        documents = {name: self._load(name) for name in self.names()}
        return {name: document["offset"] for name, document in documents.items() if document is not None}

    def _load(self, name: str) -> dict[str, Any] | None:
        """Return the document of a cursor; None if there is no such cursor. Raises UnknownFormat."""
        # Fast path: a good file needs neither the lock nor its copy.
        if (document := self._read(name + _SUFFIX)) is not None:
            return document
        with self._lock:
            if (document := self._read(name + _SUFFIX)) is not None:
                return document
            if not any((self._folder / (name + suffix)).exists() for suffix in (_SUFFIX, _COPY_SUFFIX)):
                return None
            path, document = self._folder / (name + _SUFFIX), self._read(name + _COPY_SUFFIX)
            if document is not None:
                _LOGGER.warning("%s was damaged or lost and is restored from its copy", path)
            else:
                # Retention then drops nothing as read that the reader has not read.
                _LOGGER.error("%s and its copy are damaged: the cursor is set to 0", path)
                document = {"offset": 0}
            with contextlib.suppress(OSError):  # on a full disk the next reading does it
                self._write(name, encode(document))
            return document

    def _read(self, file: str) -> dict[str, Any] | None:
        """Return the document in a file; None if it is missing or damaged. Raises UnknownFormat."""
        path = self._folder / file
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError, OverflowError):
            document = decode(self._fs.read(path), path) or {}
            offset = int(document["offset"])
            if 0 <= offset <= LAST_OFFSET:
                return {"offset": offset, "note": str(document.get("note", ""))}
        return None
