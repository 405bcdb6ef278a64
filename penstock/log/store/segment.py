"""The writer of a topic's active segment.

Invariant: readers look only at the bytes below the published length, and every byte below it is on the disk. Start at
`Segment.append`, `Segment.sync` and `Segment.publish`, which run in this order for each commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.files.file_system import Bytes, File, FileSystem, replace_durably
from penstock.log.errors import NotCut
from penstock.log.store import index
from penstock.log.store.batch_format import PREAMBLE
from penstock.log.store.segment_files import (
    SegmentFiles,
    StartState,
    remove,
    synced_words,
    write_start_state,
    write_synced,
)

MAX_PREALLOCATED_BYTES = 256 << 10
"""Upper bound of the zeros behind the written bytes: the most that a topic wastes until the segment is closed."""
MAX_SMALL_APPEND_BYTES = MAX_PREALLOCATED_BYTES // 16
"""Largest append that preallocates: larger ones would use up the zeros at once."""


@dataclass(slots=True)
class SegmentState:
    """The extent of a segment: ``length`` bytes, offsets up to ``end``, ``batches`` index records.

    ``oldest`` and ``last`` are timestamps in microseconds; ``oldest`` is 0 while the segment is empty. ``copied`` is
    the length of the journal of copies in bytes.
    """

    length: int
    end: int
    batches: int
    oldest: int
    last: int
    copied: int = 0

    def copy(self) -> SegmentState:
        """Return a snapshot, for example to roll back to."""
        return SegmentState(self.length, self.end, self.batches, self.oldest, self.last, self.copied)


class Segment:
    """The active segment of a topic, open for writing.

    Owned by the topic's Writer, whose lock the caller holds: one thread at a time. Files are opened on first use and
    closed by ``release``; the state in memory stays.

    Order: data, fdatasync of the data, then index and copies, then the synced length. A crash after the data leaves a
    tail that recovery keeps if it is whole. A crash before the synced length leaves rows that were never acknowledged.

    Unsynced parts stay in memory: after a failed fdatasync Linux may mark the pages as clean and drop their content
    (PostgreSQL's "fsyncgate", 2018), so that a later fdatasync succeeds without the data. `_rewrite_unsynced` writes
    them again first.

    Small appends go into preallocated zeros, which Arrow reads as the end of the stream: an fdatasync of an overwrite
    takes three quarters of the time of one that must also store a new length. The zeros are cut when the segment is
    closed, or by recovery.
    """

    def __init__(self, fs: FileSystem, files: SegmentFiles, state: SegmentState) -> None:
        self._fs = fs
        self.files = files
        self.state = state
        self.published = state.copy()
        self._dirty = False
        self._preallocated_end = 0
        self._unwritten_records: list[tuple[int, bytes]] = []
        self._unwritten_copies: list[tuple[int, bytes]] = []
        self._unsynced: list[tuple[int, Sequence[Bytes]]] = []
        self._sync_failed = False
        self._open: contextlib.ExitStack | None = None

    def _ensure_open(self) -> None:
        if self._open is not None:
            return
        with contextlib.ExitStack() as stack:
            self._data: File = stack.enter_context(contextlib.closing(self._fs.open(self.files.data)))
            self._index: File = stack.enter_context(contextlib.closing(self._fs.open(self.files.index)))
            copies = self._fs.open(self.files.copies, create=True)
            self._copies: File = stack.enter_context(contextlib.closing(copies))
            if self.files.is_internal and not self.state.copied:
                # Crash: the sync of a copy does not sync the entry of a new file in its folder.
                self._fs.sync_directory(self.files.directory)
            self._words = stack.enter_context(contextlib.closing(self._fs.words(self.files.synced)))
            self._open = stack.pop_all()

    def append(self, parts: Sequence[Bytes], records: Sequence[index.Record], copies: bytes = b"") -> None:
        """Write whole messages, with their ``records`` and ``copies`` kept for `sync`.

        Raises OSError; then no byte of them remains visible. Raises NotCut if some remain on the disk; `undo_failure`
        runs again before the next write.
        """
        self.undo_failure()
        # Limit: while the disk refuses to sync, unsynced parts must not accumulate in memory.
        if self._sync_failed:
            self.sync()
        try:
            # Order: the flag first. If the write fails halfway, the bytes behind the state's length must be cut before
            # anything else is written, or a torn message could be read as a stored one.
            self._dirty = True
            written = self._data.write(parts, self.state.length)
            self._dirty = False
            self._preallocate(written)
        except OSError:
            try:
                self.undo_failure()
            except OSError as error:
                # Crash: neither the synced length nor the index is synced, so that nothing on the disk tells these
                # bytes from acknowledged ones. Recovery keeps them if they are whole.
                raise NotCut(error.errno, error.strerror) from error
            raise
        first, last = records[0], records[-1]
        self._unwritten_records.append((first.base, b"".join([record.packed() for record in records])))
        self._unwritten_copies.append((first.base, copies))
        state = self.state
        self._unsynced.append((state.length, parts))
        state.length += written
        state.end = last.base + last.rows
        state.batches += len(records)
        state.copied += len(copies)
        state.oldest = state.oldest or first.first
        state.last = last.last

    def _preallocate(self, written: int) -> None:
        """Write zeros behind an append that used up the last ones."""
        end = self.state.length + written
        # Limit: at most half of the segment's size, so that thousands of small topics stay small on the disk.
        preallocation = min(MAX_PREALLOCATED_BYTES, end // 2) if written <= MAX_SMALL_APPEND_BYTES else 0
        if end <= self._preallocated_end or preallocation < written:
            return
        # Also after a failed write: the next attempt waits until the segment has grown.
        self._preallocated_end = end + preallocation
        try:
            self._data.write([bytes(preallocation)], end)
        except OSError:
            # Preallocation is optional: on a full disk the space is returned to appends of other topics.
            with contextlib.suppress(OSError):
                self._data.truncate(end)

    def _cut_preallocated(self) -> None:
        """Cut the zeros. Raises OSError.

        No fdatasync: recovery cuts zeros again at the end of a last segment, and `seal` syncs a segment that recovery
        no longer looks at.
        """
        if self.room:
            self._data.truncate(self.state.length)
        self._preallocated_end = 0

    @property
    def room(self) -> int:
        """Return the number of preallocated bytes behind the written ones."""
        return max(0, self._preallocated_end - self.state.length)

    def sync(self) -> None:
        """Flush all appends to the disk, then write their index records and copies. Raises OSError.

        After an error the appends stay invisible; `sync` may be called again.
        """
        self.undo_failure()
        if self._unwritten_records:
            self._rewrite_unsynced()
            # Order: index and copies follow the synced data. After a power failure a record without data would look
            # like a lost batch; data without a record is found by recovery's scan.
            self._sync_data()
            self._write_companions()
            self._unsynced, self._sync_failed = [], False

    def _write_companions(self) -> None:
        """Write index records and copies. The index is not synced: it can be rebuilt from the data."""
        added = b"".join([packed for _, packed in self._unwritten_records])
        self._index.write([added], self._index_length - len(added))
        copies = b"".join(text for _, text in self._unwritten_copies)
        self._copies.write([copies], self.state.copied - len(copies))
        if self.files.is_internal:
            # Crash: counts and posts exist nowhere else. A flipped bit in the last batch looks like a torn write after
            # a power cut, unless its copy is on the disk.
            self._copies.sync()
        self._unwritten_records, self._unwritten_copies = [], []

    def _sync_data(self) -> None:
        try:
            self._data.sync()
        except OSError:
            self._sync_failed = bool(self._unsynced)
            # Crash: rewrite at once, so that the pages are dirty again. A process that opens the file after a kill
            # would otherwise read clean pages that are not on the disk.
            with contextlib.suppress(OSError):
                self._rewrite_unsynced()
            raise

    def _rewrite_unsynced(self) -> None:
        if self._sync_failed:
            for position, parts in self._unsynced:
                self._data.write(parts, position)

    def publish(self) -> None:
        """Store the synced length, from which on readers see the appends. Raises OSError.

        The words are a shared mapping: readers in other processes see them at once, without a system call.
        """
        state = self.state
        if state.length != self.published.length:
            self._ensure_open()
            # Order: only after `sync`. The mapping itself is not synced: after a power failure an older length is
            # correct too, because recovery scans the data behind it.
            self._words.store(*synced_words(state.length, state.end, self.files.fingerprint))
            self.published = state.copy()

    def roll_back(self, state: SegmentState) -> None:
        """Discard the appends behind ``state``, which must not be published yet.

        Raises OSError; then `undo_failure` repeats the cut before anything else is written.
        """
        self._dirty = self._dirty or state.length != self.state.length
        self.state = state.copy()
        self._unwritten_records = [records for records in self._unwritten_records if records[0] < state.end]
        self._unwritten_copies = [copy for copy in self._unwritten_copies if copy[0] < state.end]
        self._unsynced = [part for part in self._unsynced if part[0] < state.length]
        self._sync_failed = self._sync_failed and bool(self._unsynced)
        self.undo_failure()

    def undo_failure(self) -> None:
        """Cut the remains of a failed append. Raises OSError."""
        self._ensure_open()
        if self._dirty:
            self._preallocated_end = 0
            try:
                # Order: index and copies are cut first, durably. After a power failure a record without data would look
                # like a lost batch; data without a record is found by recovery's scan.
                for file, length in self._discarded_companions():
                    file.truncate(length)
                    file.sync()
                self._data.truncate(self.state.length)
            except OSError:
                with contextlib.suppress(OSError):
                    self._clear_tail()
                raise
            # Order: the cut of the data is synced before the next append may reuse the offsets: after a power failure
            # the discarded rows must not come back next to new rows of the same offsets.
            self._sync_data()
            self._dirty = False

    def _discarded_companions(self) -> tuple[tuple[File, int], tuple[File, int]]:
        """Return index and copies, each with the length that it has without the discarded appends."""
        records = sum(len(packed) for _, packed in self._unwritten_records)
        copies = sum(len(text) for _, text in self._unwritten_copies)
        return (self._index, self._index_length - records), (self._copies, self.state.copied - copies)

    def _clear_tail(self) -> None:
        """Overwrite the remains of a failed append with zeros. Raises OSError."""
        (_, records), _ = self._discarded_companions()
        # Crash: if the process is killed before the cut succeeds, recovery would keep the refused rows; it cuts zeros.
        # Order: the records first, because recovery would take zeros in the place of recorded rows for damage.
        self._clear(self._index, self.files.index, records)
        self._clear(self._data, self.files.data, self.state.length)

    def _clear(self, file: File, path: Path, begin: int) -> None:
        """Overwrite a file from ``begin`` on with zeros, in pieces, because a refused append may have hundreds of MB.

        Crash: back to front. A kill between two pieces leaves the first batches whole and nothing behind them; without
        the first ones recovery would take the others for rows that follow damage.
        """
        for position in reversed(range(begin, self._fs.size(path), MAX_PREALLOCATED_BYTES)):
            file.write([bytes(min(MAX_PREALLOCATED_BYTES, self._fs.size(path) - position))], position)

    @property
    def _index_length(self) -> int:
        return index.HEADER_SIZE + self.state.batches * index.RECORD.itemsize

    @property
    def clean(self) -> bool:
        """Report whether all written bytes are published."""
        return not self._dirty and self.state.length == self.published.length

    def seal(self) -> None:
        """Flush everything to the disk, index and copies included, and publish it. Raises OSError."""
        self.sync()
        self._cut_preallocated()
        self._data.sync()
        # Recovery trusts the index of a sealed segment without a scan, so the index must be on the disk before the
        # next segment exists.
        self._index.sync()
        self._copies.sync()
        self.publish()

    def release(self) -> None:
        """Close the files; the next use opens them again."""
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._cut_preallocated()
            self._open.close()
            self._open = None


def create(fs: FileSystem, directory: Path, first: int, start_state: StartState, last: int) -> Segment:
    """Start an empty segment at offset ``first``; ``last`` is the topic's last timestamp.

    Order: the data file last. A segment exists from the moment of its data file, so the others must be complete by
    then; a crash before leaves companions without data, which recovery removes. Raises OSError; then no file remains.
    """
    files = SegmentFiles(directory, first)
    state = SegmentState(PREAMBLE.size, first, 0, 0, last)
    try:
        write_start_state(fs, files, start_state)
        replace_durably(fs, files.index, index.header(files.fingerprint))
        write_synced(fs, files, state.length, state.end)
        replace_durably(fs, files.data, PREAMBLE)
        return Segment(fs, files, state)
    except OSError:
        remove(fs, files)
        raise
