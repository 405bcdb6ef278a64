"""Writing to several topics all or nothing, whatever happens: an intent first, its removal is the decision.

While the intent is there, nothing of the transaction is seen by anybody, and what of it is written is cut off again:
at once when something fails, else when the log is opened. Once it is gone, all of it is stored and shows itself.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.commit.batching import Prepared, QueuedAppend
from penstock.log.commit.writer import Writer
from penstock.log.documents import decode, encode
from penstock.log.errors import LogError, write_error
from penstock.log.store import index
from penstock.log.store.segment import Files, Segment, State
from penstock.log.store.visibility import CommitBarrier

SUFFIX = ".intent"
_LOGGER = logging.getLogger(__name__)


class AtomicCommit:
    """Stores ``items`` in several topics at once. Hold the locks of all writers."""

    def __init__(self, fs: FileSystem, intent: Path, items: Mapping[Writer, list[QueuedAppend]]) -> None:
        self._fs = fs
        self._intent = intent
        self._items = items
        self._marks: dict[Writer, tuple[Segment, State]] = {}
        self._lock = threading.Lock()
        self._settled = False

    def make(self, barrier: CommitBarrier) -> dict[Writer, list[Prepared]]:
        """Store and publish; what was stored by each writer. Raises LogError, and then nothing is."""
        if not self._items:
            return {}
        for writer in self._items:
            mark = writer.begin_exactly()
            self._marks[writer] = (writer.active(), mark)
        try:
            self._announce()
            stored = {writer: self._write(writer, items) for writer, items in self._items.items()}
            with barrier.deciding() as publish:
                self._decide()
                publish()
                for writer in stored:
                    writer.publish()
        except OSError as error:
            self._take_back()
            raise write_error(error) from error
        except LogError:
            self._take_back()
            raise
        for writer, many in stored.items():
            writer.enter(many)
        return stored

    def _announce(self) -> None:
        places = {
            segment.files.directory.name: [segment.files.first, mark.length, mark.batches]
            for segment, mark in self._marks.values()
        }
        replace_durably(self._fs, self._intent, encode({"places": places}))

    def _write(self, writer: Writer, items: list[QueuedAppend]) -> list[Prepared]:
        stored = writer.append(items)
        writer.active().sync()
        return stored

    def _decide(self) -> None:
        self._fs.remove(self._intent)
        self._fs.sync_directory(self._intent.parent)

    def _take_back(self) -> None:
        for writer, (_, mark) in self._marks.items():
            writer.take_back(mark)
        try:
            self._settle()
        except OSError:
            for writer in self._marks:
                writer.owes = self._settle

    def _settle(self) -> None:
        """Cut off what was written in all topics, then take back the intent. Raises OSError."""
        with self._lock:
            if self._settled:
                return
            for segment, mark in self._marks.values():
                segment.roll_back(mark)
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(self._intent)
            self._fs.sync_directory(self._intent.parent)
            self._settled = True


def undo(fs: FileSystem, intent: Path, topics: Path) -> None:
    """Take back a transaction that was not decided when the writer died. Raises OSError, UnknownFormat."""
    document = decode(fs.read(intent), intent)
    try:
        lengths = [
            (Files(topics / name, int(first)), int(length), int(batches))
            for name, (first, length, batches) in (document or {})["places"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        _LOGGER.error("%s cannot be read; a transaction may be stored in part", intent)
        fs.rename(intent, intent.with_suffix(".damaged"))
        return
    for files, length, batches in lengths:
        _cut(fs, files.data, length)
        _cut(fs, files.index, index.HEADER_SIZE + batches * index.RECORD.itemsize)
    fs.remove(intent)
    fs.sync_directory(intent.parent)


def _cut(fs: FileSystem, path: Path, length: int) -> None:
    if path.exists() and fs.size(path) >= length:  # also where it is cut already: that may not have been synced
        with contextlib.closing(fs.open(path)) as file:
            file.truncate(length)
            file.sync()
