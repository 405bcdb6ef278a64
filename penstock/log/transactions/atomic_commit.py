"""Atomic writes to several topics: a write-ahead intent file, whose removal is the decision.

Invariant: while the intent exists, no reader sees any row of the transaction, and what was written is cut off again:
at once if something fails, else when the log is opened. Once the intent is removed, all of it is stored and visible.
Rows are cut only while the intent is on the disk, so that a crash leaves all rows or none.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from penstock.files.file_system import FileSystem, replace_durably, set_aside
from penstock.log.commit.batching import PreparedBatch, QueuedAppend
from penstock.log.commit.writer import Writer
from penstock.log.documents import decode, encode
from penstock.log.errors import LogError, in_doubt, write_error
from penstock.log.store import index
from penstock.log.store.segment import Segment, SegmentState
from penstock.log.store.segment_files import SegmentFiles
from penstock.log.store.visibility import CommitBarrier

SUFFIX = ".intent"
_LOGGER = logging.getLogger(__name__)


class AtomicCommit:
    """The commit of appends to several topics, used once. The caller holds the locks of all writers."""

    def __init__(self, fs: FileSystem, intent: Path, appends: Mapping[Writer, list[QueuedAppend]]) -> None:
        self._fs = fs
        self._intent = intent
        self._appends = appends
        self._rollback_points: dict[Writer, tuple[Segment, SegmentState]] = {}
        self._lock = threading.Lock()
        self._is_intent_removed = False
        self._is_rolled_back = False

    def make(self, barrier: CommitBarrier) -> dict[Writer, list[PreparedBatch]]:
        """Store and publish; return what each writer stored.

        Raises LogError, and then nothing is stored; OutcomeInDoubt if a crash may store all of it.
        """
        if not self._appends:
            return {}
        for writer in self._appends:
            mark = writer.begin_at_exact_position()
            self._rollback_points[writer] = (writer.active(), mark)
        try:
            self._write_intent()
            # Order: intent, data, fsync of each topic, removal of the intent, publication.
            stored = {writer: self._write(writer, appends) for writer, appends in self._appends.items()}
            # Readers wait during the decision, so that they see the rows of all topics at once.
            with barrier.deciding() as publish:
                self._decide()
                publish()
                for writer in stored:
                    writer.publish()
        except OSError as error:
            self._roll_back()
            raise write_error(error) from error
        except LogError:
            self._roll_back()
            raise
        for writer, batches in stored.items():
            writer.enter(batches)
        return stored

    def _write_intent(self) -> None:
        ends = {
            segment.files.directory.name: [segment.files.first, mark.length, mark.batches]
            for segment, mark in self._rollback_points.values()
        }
        replace_durably(self._fs, self._intent, encode({"places": ends}))

    def _write(self, writer: Writer, appends: list[QueuedAppend]) -> list[PreparedBatch]:
        stored = writer.append(appends)
        writer.active().sync()
        return stored

    def _decide(self) -> None:
        self._is_intent_removed = True
        self._fs.remove(self._intent)
        self._fs.sync_directory(self._intent.parent)

    def _roll_back(self) -> None:
        """Cut off the transaction's data, or leave that to the next use of a topic.

        Raises OutcomeInDoubt if the intent is not on the disk: a crash then stores the transaction.
        """
        for writer in self._rollback_points:
            writer.forget_unpublished()
        try:
            self._finish_rollback()
        except OSError as error:
            for writer in self._rollback_points:
                writer.pending_rollback = self._finish_rollback
            if self._is_intent_removed:
                raise in_doubt(error) from error

    def _finish_rollback(self) -> None:
        """Cut off the transaction's data in all topics, then remove the intent. Raises OSError."""
        with self._lock:
            if self._is_rolled_back:
                return
            if self._is_intent_removed:
                # Crash: the removal may have failed only to reach the disk. Without the intent, a crash between the
                # cuts of two topics would leave a part of the transaction.
                self._write_intent()
                self._is_intent_removed = False
            for segment, mark in self._rollback_points.values():
                # Order: all topics before the intent. Crash: with the intent, the next start repeats the cuts.
                segment.roll_back(mark)
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(self._intent)
            self._fs.sync_directory(self._intent.parent)
            self._is_rolled_back = True


def undo_undecided(fs: FileSystem, intent: Path, topics: Path) -> None:
    """Roll back a transaction that was not decided when the writer died. Raises OSError, UnknownFormat."""
    document = decode(fs.read(intent), intent)
    try:
        lengths = [
            (SegmentFiles(topics / name, int(first)), int(length), int(batches))
            for name, (first, length, batches) in (document or {})["places"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        _LOGGER.error("log: %s cannot be read; a transaction may be stored in part", intent)
        # The damaged intent is preserved for inspection; the log must start without it.
        set_aside(intent, fs)
        return
    # Order: all cuts before the intent is removed. Crash: the next start repeats them.
    for files, length, batches in lengths:
        _cut(fs, files.data, length)
        _cut(fs, files.index, index.HEADER_SIZE + batches * index.RECORD.itemsize)
    fs.remove(intent)
    fs.sync_directory(intent.parent)


def _cut(fs: FileSystem, path: Path, length: int) -> None:
    if path.exists() and fs.size(path) >= length:
        # Also if the file has this length already: a cut before a crash may not have been synced.
        with contextlib.closing(fs.open(path)) as file:
            file.truncate(length)
            file.sync()
