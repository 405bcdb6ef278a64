"""Appends of an open transaction, in a file of their own until the commit."""

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
from penstock.log.store.producers import ProducerSequence, StoredAppend, check_same, checksum

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
    """An open transaction. ``deadline`` is in microseconds. Threads: callers hold ``lock`` for all methods."""

    id: str
    path: Path
    deadline: int
    limit: int
    owner: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: bool = True
    _entries: list[_Entry] = field(default_factory=list)
    _numbers: dict[tuple[str, ProducerSequence], StoredAppend] = field(default_factory=dict)
    _length: int = 0
    _file: File | None = None

    def add(
        self, fs: FileSystem, topic: str, body: pa.RecordBatch, origin: Origin, producer: ProducerSequence | None
    ) -> None:
        """Stage an append. A repeated append (the same number of a producer) is ignored.

        Raises MessageTooLarge, OutOfSequence (the same number, other rows), LogFull and WriteFailed.
        """
        if producer is not None:
            numbered = StoredAppend(producer.sequence, -1, body.num_rows, 0, checksum(body))
            if (earlier := self._numbers.get((topic, producer))) is not None:
                check_same(producer, numbered.count, numbered.checksum, earlier)
                return
        data = records.encode(body, {})
        if self._length + len(data) > self.limit:
            raise MessageTooLarge(f"transactions.max_size: the transaction exceeds {self.limit} bytes")
        try:
            self._file = self._file or fs.open(self.path, create=True)
            self._file.write([data], self._length)
        except OSError as error:
            raise write_error(error) from error
        # The file is not synced and may be damaged until the commit; the checksum detects that.
        crc = crc32c(memoryview(data))
        self._entries.append(_Entry(topic, origin, producer, self._length, len(data), crc, body.nbytes))
        self._length += len(data)
        if producer is not None:
            self._numbers[topic, producer] = numbered

    def read(self, fs: FileSystem) -> dict[str, list[QueuedAppend]]:
        """Return all appends by topic, in order. Raises WriteFailed if they cannot be read back."""
        appends: dict[str, list[QueuedAppend]] = {}
        data = fs.map(self.path) if self._entries else pa.py_buffer(b"")
        for entry in self._entries:
            is_complete = entry.position + entry.length <= len(data)
            part = data.slice(entry.position, entry.length) if is_complete else data
            if not is_complete or crc32c(memoryview(part)) != entry.crc:
                raise WriteFailed(
                    f"transaction {self.id}: its staged rows cannot be read back; abort it and begin again"
                )
            body, _ = records.decode(part, records.BODY)
            append = QueuedAppend(body, entry.origin, entry.size, Future(), entry.producer)
            appends.setdefault(entry.topic, []).append(append)
        return appends

    def drop(self, fs: FileSystem) -> None:
        """Close and remove the file. Raises OSError."""
        self.open = False
        if self._file is not None:
            self._file.close()
            self._file = None
            fs.remove(self.path)
