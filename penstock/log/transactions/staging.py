"""What a transaction holds before it is committed: appends, aside in a file of their own."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

from penstock import records
from penstock.counts import Origin
from penstock.files.file_system import File, FileSystem
from penstock.log.commit.batching import QueuedAppend
from penstock.log.errors import MessageTooLarge, WriteFailed, write_error
from penstock.log.store.producers import ProducerSequence, Taken, check_same, checksum

SUFFIX = ".staged"


@dataclass(frozen=True, slots=True)
class _Entry:
    topic: str
    origin: Origin
    producer: ProducerSequence | None
    position: int
    length: int
    crc: int
    size: int


@dataclass(slots=True)
class Staged:
    """One open transaction. ``deadline`` in microseconds. Hold ``lock`` for all its methods."""

    id: str
    path: Path
    deadline: int
    limit: int
    owner: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: bool = True
    _entries: list[_Entry] = field(default_factory=list)
    _numbers: dict[tuple[str, ProducerSequence], Taken] = field(default_factory=dict)
    _length: int = 0
    _file: File | None = None

    def add(
        self, fs: FileSystem, topic: str, body: pa.RecordBatch, origin: Origin, producer: ProducerSequence | None
    ) -> None:
        """Put an append aside; one that is there already (the same number of a producer) is not taken twice.

        Raises MessageTooLarge, OutOfSequence (the same number, other rows), LogFull and WriteFailed.
        """
        if producer is not None:
            coming = Taken(producer.sequence, -1, body.num_rows, 0, checksum(body))
            if (before := self._numbers.get((topic, producer))) is not None:
                check_same(producer, coming.count, coming.checksum, before)
                return
        data = records.encode(body, {})
        if self._length + len(data) > self.limit:
            raise MessageTooLarge(f"transactions.max_size: a transaction has at most {self.limit} bytes")
        try:
            self._file = self._file or fs.open(self.path, create=True)
            self._file.write([data], self._length)
        except OSError as error:
            raise write_error(error) from error
        crc = crc32c(memoryview(data))
        self._entries.append(_Entry(topic, origin, producer, self._length, len(data), crc, body.nbytes))
        self._length += len(data)
        if producer is not None:
            self._numbers[topic, producer] = coming

    def read(self, fs: FileSystem) -> dict[str, list[QueuedAppend]]:
        """All appends by topic, in order. Raises WriteFailed when they cannot be read back."""
        found: dict[str, list[QueuedAppend]] = {}
        data = fs.map(self.path) if self._entries else pa.py_buffer(b"")
        for entry in self._entries:
            is_there = entry.position + entry.length <= len(data)
            part = data.slice(entry.position, entry.length) if is_there else data
            if not is_there or crc32c(memoryview(part)) != entry.crc:
                raise WriteFailed(f"transaction {self.id}: what was staged cannot be read back")
            body, _ = records.decode(part, records.BODY)
            item = QueuedAppend(body, entry.origin, entry.size, Future(), entry.producer)
            found.setdefault(entry.topic, []).append(item)
        return found

    def drop(self, fs: FileSystem) -> None:
        """Forget everything. Raises OSError."""
        self.open = False
        if self._file is not None:
            self._file.close()
            self._file = None
            fs.remove(self.path)
