"""Named cursors of a topic: the offset up to which a reader has read, one small file each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.documents import decode, encode
from penstock.log.errors import write_error
from penstock.log.read.topic_reader import TopicReader
from penstock.log.settings import MAX_NAME_BYTES

FOLDER = "cursors"
LAST_OFFSET = 2**63 - 1
_NAME = re.compile(r"[a-z0-9_\-.]+")
_SUFFIX = ".cursor"


@dataclass(frozen=True, slots=True)
class Lag:
    """The unread part of a topic: entries, bytes (as stored), and the age of its first entry in seconds."""

    entries: int
    bytes: int
    seconds: float


def lag(reader: TopicReader, offset: int, now: int) -> Lag:
    """Return the lag of a cursor at ``offset`` at time ``now`` (microseconds). Raises CorruptBatch."""
    entries, size, first = reader.backlog(offset)
    return Lag(entries, size, max((now - first) / 1e6 if entries else 0.0, 0.0))


def lags(directory: Path, cursors: Mapping[str, int], now: int) -> dict[str, Lag]:
    """Return the lag of each cursor of a topic, which need not be open. Raises CorruptBatch."""
    if not cursors:
        return {}
    reader = TopicReader(directory)
    return {name: lag(reader, offset, now) for name, offset in cursors.items()}


class Cursors:
    """The cursors of the topic in ``directory``."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._folder = directory / FOLDER

    def commit(self, name: str, offset: int, note: str = "") -> None:
        """Set a cursor; durable on return. ``note`` is stored for the owner of the cursor.

        Raises ValueError for a bad name or offset, LogFull.
        """
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME_BYTES:
            raise ValueError(f"{name!r} is not a cursor name: {_NAME.pattern}, at most {MAX_NAME_BYTES} characters")
        if not 0 <= offset <= LAST_OFFSET:
            raise ValueError(f"offset {offset} of a cursor is not one of 0 to {LAST_OFFSET}")
        try:
            if not self._folder.exists():
                self._fs.make_directory(self._folder)
                self._fs.sync_directory(self._folder.parent)
            replace_durably(
                self._fs,
                self._folder / (name + _SUFFIX),
                encode({"offset": offset, **({"note": note} if note else {})}),
            )
        except OSError as error:
            raise write_error(error) from error

    def note(self, name: str) -> str:
        """Return the note of a cursor; empty if it has none or its file is damaged."""
        path = self._folder / (name + _SUFFIX)
        try:
            return str((decode(self._fs.read(path), path) or {}).get("note", ""))
        except FileNotFoundError:
            return ""

    def remove(self, name: str) -> None:
        """Remove a cursor if it exists."""
        if name in self.offsets():
            self._fs.remove(self._folder / (name + _SUFFIX))
            self._fs.sync_directory(self._folder)

    def offsets(self) -> dict[str, int]:
        """Return all cursors by name; a damaged one is at 0. Raises UnknownFormat."""
        try:
            names = [name for name in self._fs.names(self._folder) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return {}
        offsets = {name.removesuffix(_SUFFIX): self._read(self._folder / name) for name in sorted(names)}
        return {name: offset for name, offset in offsets.items() if offset is not None}

    def _read(self, path: Path) -> int | None:
        try:
            offset = int((decode(self._fs.read(path), path) or {})["offset"])
        except FileNotFoundError:  # removed during the call
            return None
        except (ValueError, KeyError, TypeError):
            offset = -1
        # A damaged cursor still protects its topic: at 0, retention drops nothing as read that its reader has not read.
        return offset if 0 <= offset <= LAST_OFFSET else 0
