"""The synced part of a segment, read from its files alone: its batches by number."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.counts import Origin
from penstock.files.file_system import map_file
from penstock.log.errors import CorruptBatch
from penstock.log.store import batch_format, index, segment_files
from penstock.log.store.batch_format import IpcMessage
from penstock.log.store.scan import scan
from penstock.log.store.segment_files import SegmentFiles
from penstock.log.store.visibility import ReaderGate
from penstock.records import BadBatch, concatenated

MAX_JOINED_BATCHES = 1024
"""Limit: for the batches that a read joins, so that a read of tiny batches stays short."""

MAX_SYNCED_READS = 3
"""Limit: for reads of a synced length whose checksum differs, because its writer may be between two stores."""
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredBatch:
    """Rows [base, base + rows) of a batch; ``first`` and ``last`` are their timestamps in microseconds.

    ``origin`` and ``size`` (bytes in the file) describe the whole batch, even if it was cut to some of its rows.
    ``batch`` (SCHEMA) is loaded on first use, zero-copy from the mapped file.
    """

    base: int
    rows: int
    first: int
    last: int
    origin: Origin
    size: int
    load: Callable[[], pa.RecordBatch] = field(repr=False, compare=False)
    _batch: pa.RecordBatch | None = field(default=None, repr=False, compare=False)

    @property
    def batch(self) -> pa.RecordBatch:
        if self._batch is None:
            self._batch = self.load()
        return self._batch

    @property
    def end(self) -> int:
        return self.base + self.rows


class SegmentView:
    """The synced part of a segment. Not thread-safe: owned by one reader."""

    def __init__(self, directory: Path, first: int, gate: ReaderGate | None = None) -> None:
        self.files = SegmentFiles(directory, first)
        self.first = first
        self._gate = gate or ReaderGate(directory.parent)
        # Fast path: as strings, because a followed topic is refreshed often and a Path is slow to build.
        self._data_path, self._synced_path = str(self.files.data), str(self.files.synced)
        self._data = map_file(self.files.data, 0)
        self._file: tuple[int, int] | None = None
        self._records = index.EMPTY  # grows by doubling, so that following a writer does not copy all records each time
        self._count = 0
        self._last_number = -1
        self.index_unusable = False
        self._synced_words, self._synced = b"", 0
        self.damaged_lengths = 0
        """Damaged synced lengths that were read and that the index could not replace."""
        self.length = 0
        self.sealed = False

    def refresh(self, sealed: bool) -> None:
        """Read the synced length again and map new data. Raises FileNotFoundError if the segment was removed."""
        while True:
            synced = None if sealed else self._gate.read(self._synced_length, self.length)
            # Order: the size after the synced length, because the size must cover it.
            status = os.stat(self._data_path)
            # Invariant: a sealed segment was synced as a whole before the next segment began.
            length = status.st_size if synced is None else min(synced, status.st_size)
            if self._file != _identity(status):  # compaction replaced the file: same rows, other positions
                self._file = _identity(status)
                self._reset()
            if length > self.length:
                self._data = map_file(self.files.data, length)
                self._load_records(length, synced)
                self.length = length
            self.sealed = sealed
            # Compaction may replace the file between the calls above; then the mapped data and the records differ.
            if self._file == _identity(os.stat(self._data_path)):
                return

    def _reset(self) -> None:
        self._records, self._count, self._last_number = index.EMPTY, 0, -1
        self.length, self.index_unusable = 0, False

    def _synced_length(self) -> int:
        """Return the synced length; 0, which changes nothing, if it is unknown. Raises UnknownFormat."""
        for _ in range(MAX_SYNCED_READS):
            words = segment_files.read_synced_bytes(self._synced_path)
            # Fast path: words that were read before need no check.
            if words == self._synced_words:
                return self._synced
            if extent := segment_files.unpack_synced(words, self.files):
                self._synced_words, self._synced = words, extent[0]
                return self._synced
        # Invariant: a length without a matching checksum is never believed: rows behind the synced ones may be cut.
        self._synced_words, self._synced = words, self._recover_synced(words)
        return self._synced

    def _recover_synced(self, words: bytes) -> int:
        """Return the synced length that damaged ``words`` had, 0 if unknown."""
        records = index.read(self._read_index(0, header=True), self.files.fingerprint)
        records = records[index.valid(records)]
        lengths, ends = records["position"] + records["length"], records["base"] + records["rows"]
        length = segment_files.recover_synced(words, self.files, zip(lengths.tolist(), ends.tolist(), strict=True))
        if length is None and words:
            self.damaged_lengths += 1
            _LOGGER.warning("%s is damaged: newer rows are visible after the next commit or start", self._synced_path)
        return length or 0

    def _load_records(self, length: int, synced: int | None) -> None:
        """Add the records of the batches within ``length``.

        They come from the index, or from a scan of the data if the index is unusable; then lost batches
        within the first ``synced`` bytes (None: all) have records, too.
        """
        if not self.index_unusable:
            added = index.unpack(self._read_index(self._count))
            added = added[(added["position"] + added["length"]) <= length]
            if self._continues(added, length):
                self._append_records(added)
                return
        self.index_unusable = True
        self._records, self._count = index.EMPTY, 0
        hints = index.read(self._read_index(0, header=True), self.files.fingerprint)
        # Crash: after a power cut the synced length may be older than the index. Batches behind it are not visible
        # until a recovery; they are not lost, and must not become a gap.
        hints = hints if synced is None else hints[hints["position"] + hints["length"] <= synced]
        self._append_records(scan(self._data, self.first, hints).records)

    def _continues(self, added: index.IndexRecords, length: int) -> bool:
        """Report whether ``added`` continues the existing records without a hole, up to ``length``."""
        start = batch_format.first_batch_position(self._data) if not self._count else 0
        first, position = index.end_of(self.records, self.first, start)
        return index.dense(added, first, position) and index.end_of(added, first, position)[1] == length

    def _append_records(self, added: index.IndexRecords) -> None:
        count = self._count + len(added)
        if count > len(self._records):
            room = np.empty(max(count, 2 * len(self._records)), index.RECORD)
            room[: self._count] = self.records
            self._records = room
        self._records[self._count : count] = added
        self._count = count

    def _read_index(self, skipped: int, header: bool = False) -> bytes:
        try:
            with open(self.files.index, "rb") as file:
                if not header and index.form(file.read(index.HEADER_SIZE), self.files.fingerprint) is None:
                    return b""
                file.seek(0 if header else index.HEADER_SIZE + skipped * index.RECORD.itemsize)
                return file.read()
        except FileNotFoundError:
            return b""

    def stored_from(self, offset: int) -> int:
        """Return the number of the batch that holds ``offset``."""
        # Fast path: consecutive reads need no search.
        guess = self._last_number + 1
        if not (guess < self._count and self._records[guess]["base"] == offset):
            guess = int(np.searchsorted(self.records["base"], offset, side="right")) - 1
        self._last_number = guess
        return guess

    @property
    def data(self) -> pa.Buffer:
        """The synced bytes."""
        return self._data

    @property
    def records(self) -> index.IndexRecords:
        """Index records of all synced batches."""
        return self._records[: self._count]

    @property
    def end(self) -> int:
        return index.end_of(self.records, self.first, 0)[0]

    def message(self, record: np.void) -> IpcMessage | None:
        """Return the batch of an index record, its checksum verified; None if it is damaged. Raises UnknownFormat."""
        try:
            message = batch_format.parse(self._data, int(record["position"]))
        except BadBatch:
            return None
        expected = (record["base"], record["rows"], record["length"])
        return message if (message.base, message.rows, message.length) == expected else None

    def stored(self, number: int) -> StoredBatch:
        """Return batch ``number``, its checksum verified. Raises CorruptBatch."""
        record = self.records[number]
        message = self.message(record)
        if message is None:
            raise CorruptBatch(int(record["base"]), int(record["base"] + record["rows"]))
        return _stored_batch(self._data, message)

    def joined(self, number: int, limit: int, max_bytes: int) -> tuple[pa.RecordBatch, int]:
        """Return batch ``number`` and its successors as one batch, and the offset at which it begins.

        It has about ``max_bytes``, ends with the batch of offset ``limit - 1`` at the latest, and ends before a
        damaged batch. Raises CorruptBatch if the first batch is damaged.
        """
        candidates = self.records[number : number + MAX_JOINED_BATCHES]
        fits = int(np.searchsorted(np.cumsum(candidates["length"]), max_bytes, side="right"))
        candidates = candidates[: max(1, min(fits, int(np.searchsorted(candidates["base"], limit))))]
        batches = self._load_many(candidates, max_bytes) if len(candidates) > 1 else []
        if len(batches) < 2:
            return self.stored(number).batch, int(candidates["base"][0])
        self._last_number = number + len(batches) - 1
        return concatenated(batches), int(candidates["base"][0])

    def _load_many(self, candidates: index.IndexRecords, max_bytes: int) -> list[pa.RecordBatch]:
        spans = zip(
            candidates["position"].tolist(), candidates["length"].tolist(), candidates["crc"].tolist(), strict=True
        )
        try:
            return batch_format.load_many(self._data, spans, max_bytes)
        except BadBatch:
            return []


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def cut_batch(stored: StoredBatch, begin: int, end: int) -> StoredBatch:
    """Return the rows [begin, end) of a stored batch."""
    if (begin, end) == (stored.base, stored.end):
        return stored
    batch = stored.batch.slice(begin - stored.base, end - begin)
    times = timestamps(batch)
    return StoredBatch(begin, end - begin, int(times[0]), int(times[-1]), stored.origin, stored.size, lambda: batch)


def timestamps(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the timestamps of a SCHEMA batch in microseconds."""
    times: npt.NDArray[np.int64] = batch.column(1).view(pa.int64()).to_numpy()
    return times


def _stored_batch(data: pa.Buffer, message: IpcMessage) -> StoredBatch:
    def load() -> pa.RecordBatch:
        try:
            return batch_format.load(data, message)
        except BadBatch:
            raise CorruptBatch(message.base, message.end) from None

    return StoredBatch(message.base, message.rows, message.first, message.last, message.origin, message.length, load)
