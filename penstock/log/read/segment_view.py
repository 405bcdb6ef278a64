"""What is synced of one segment, seen from outside: its batches by number, with nothing but its files."""

from __future__ import annotations

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
from penstock.log.store import batch_format, index
from penstock.log.store.batch_format import Message
from penstock.log.store.scan import scan
from penstock.log.store.segment import Files
from penstock.log.store.visibility import ReaderGate
from penstock.records import BadBatch, concatenated

MOST_JOINED = 1024
"""Batches that are joined at once."""


@dataclass(slots=True)
class Stored:
    """Rows [base, base + rows) of one batch; ``first`` and ``last`` are their timestamps in microseconds.

    ``origin`` and ``size`` (bytes in the file) are those of the whole batch, also when only some of its rows were
    asked for. ``batch`` (SCHEMA) is loaded, zero-copy on the mapped file, when it is first asked for.
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
    """What is synced of one segment."""

    def __init__(self, directory: Path, first: int, gate: ReaderGate | None = None) -> None:
        self.files = Files(directory, first)
        self.first = first
        self._gate = gate or ReaderGate(directory.parent)
        self._data_path, self._synced_path = str(self.files.data), str(self.files.synced)  # a path is slow to make
        self._data = map_file(self.files.data, 0)
        self._file: tuple[int, int] | None = None
        self._room = index.EMPTY  # grows by doubling, so that following a writer costs no copy of all
        self._count = 0
        self._found = -1
        self.rebuilt = False
        self.length = 0
        self.sealed = False

    def refresh(self, sealed: bool) -> None:
        """Look at the synced length again. Raises FileNotFoundError when the segment is gone."""
        while True:
            length = None if sealed else self._gate.take(self._synced_length, self.length)
            found = os.stat(self._data_path)  # after the synced length, which it must cover
            # All of a sealed one was synced before the next segment began.
            length = found.st_size if length is None else min(length, found.st_size)
            if self._file != _identity(found):  # compacted: the same rows in other places
                self._file = _identity(found)
                self._forget()
            if length > self.length:
                self._data = map_file(self.files.data, length)
                self._load_records(length)
                self.length = length
            self.sealed = sealed
            if self._file == _identity(os.stat(self._data_path)):
                return

    def _forget(self) -> None:
        self._room, self._count, self._found = index.EMPTY, 0, -1
        self.length, self.rebuilt = 0, False

    def _synced_length(self) -> int:
        try:
            descriptor = os.open(self._synced_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            told = os.read(descriptor, 8)  # its checksum may just be changing
        finally:
            os.close(descriptor)
        return int.from_bytes(told, "little", signed=True) if len(told) == 8 else 0

    def _load_records(self, length: int) -> None:
        """Take the records of the batches within ``length``: from the index, or from the data when it is no use."""
        if not self.rebuilt:
            added = index.unpack(self._read_index(self._count))
            added = added[(added["position"] + added["length"]) <= length]
            if self._follow(added, length):
                self._add(added)
                return
        self.rebuilt = True
        self._room, self._count = index.EMPTY, 0
        self._add(scan(self._data, self.first, index.read(self._read_index(0, header=True), self.files.mark)).records)

    def _follow(self, added: index.IndexRecords, length: int) -> bool:
        """Whether further records go on where the known ones end, up to ``length``."""
        start = batch_format.start(self._data) if not self._count else 0
        first, position = index.end_of(self.records, self.first, start)
        return index.dense(added, first, position) and index.end_of(added, first, position)[1] == length

    def _add(self, added: index.IndexRecords) -> None:
        count = self._count + len(added)
        if count > len(self._room):
            room = np.empty(max(count, 2 * len(self._room)), index.RECORD)
            room[: self._count] = self.records
            self._room = room
        self._room[self._count : count] = added
        self._count = count

    def _read_index(self, known: int, header: bool = False) -> bytes:
        try:
            with open(self.files.index, "rb") as file:
                if not header and index.form(file.read(index.HEADER_SIZE), self.files.mark) is None:
                    return b""
                file.seek(0 if header else index.HEADER_SIZE + known * index.RECORD.itemsize)
                return file.read()
        except FileNotFoundError:
            return b""

    def stored_from(self, offset: int) -> int:
        """The number of the batch that holds ``offset``; at once when it is the one after the last answer."""
        guess = self._found + 1
        if not (guess < self._count and self._room[guess]["base"] == offset):
            guess = int(np.searchsorted(self.records["base"], offset, side="right")) - 1
        self._found = guess
        return guess

    @property
    def data(self) -> pa.Buffer:
        """The synced bytes."""
        return self._data

    @property
    def records(self) -> index.IndexRecords:
        """Index records of all synced batches."""
        return self._room[: self._count]

    @property
    def end(self) -> int:
        return index.end_of(self.records, self.first, 0)[0]

    def message(self, record: np.void) -> Message | None:
        """The batch of an index record, its checksum verified; None when it cannot be read. Raises UnknownFormat."""
        try:
            message = batch_format.parse(self._data, int(record["position"]))
        except BadBatch:
            return None
        told = (record["base"], record["rows"], record["length"])
        return message if (message.base, message.rows, message.length) == told else None

    def stored(self, number: int) -> Stored:
        """Batch ``number``, its checksum verified. Raises CorruptBatch."""
        record = self.records[number]
        message = self.message(record)
        if message is None:
            raise CorruptBatch(int(record["base"]), int(record["base"] + record["rows"]))
        return _stored(self._data, message)

    def joined(self, number: int, limit: int, room: int) -> tuple[pa.RecordBatch, int]:
        """Batch ``number`` and those behind it as one, of about ``room`` bytes, and the offset at which it begins.

        Not beyond the one that holds offset ``limit - 1``, nor one whose checksum does not hold: that raises
        CorruptBatch where it is the first.
        """
        some = self.records[number : number + MOST_JOINED]
        fits = int(np.searchsorted(np.cumsum(some["length"]), room, side="right"))
        some = some[: max(1, min(fits, int(np.searchsorted(some["base"], limit))))]
        found = self._load_many(some, room) if len(some) > 1 else []
        if len(found) < 2:
            return self.stored(number).batch, int(some["base"][0])
        self._found = number + len(found) - 1
        return concatenated(found), int(some["base"][0])

    def _load_many(self, some: index.IndexRecords, room: int) -> list[pa.RecordBatch]:
        places = zip(some["position"].tolist(), some["length"].tolist(), some["crc"].tolist(), strict=True)
        try:
            return batch_format.load_many(self._data, places, room)
        except BadBatch:
            return []


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def piece(stored: Stored, begin: int, end: int) -> Stored:
    """The rows [begin, end) of a stored batch."""
    if (begin, end) == (stored.base, stored.end):
        return stored
    batch = stored.batch.slice(begin - stored.base, end - begin)
    times = timestamps(batch)
    return Stored(begin, end - begin, int(times[0]), int(times[-1]), stored.origin, stored.size, lambda: batch)


def timestamps(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The timestamps of a SCHEMA batch in microseconds."""
    times: npt.NDArray[np.int64] = batch.column(1).view(pa.int64()).to_numpy()
    return times


def _stored(data: pa.Buffer, message: Message) -> Stored:
    def load() -> pa.RecordBatch:
        try:
            return batch_format.load(data, message)
        except BadBatch:
            raise CorruptBatch(message.base, message.end) from None

    return Stored(message.base, message.rows, message.first, message.last, message.origin, message.length, load)
