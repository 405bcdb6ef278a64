"""The entries that wait in a batcher, of threads or of an event loop."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from penstock.slogd.slogd_pb2 import LogEntry

MAX_BYTES = 4 << 20
"""Bytes of one request, as long as a single entry is not larger."""
WAITING = 10
"""Batches that may wait; who appends more waits, too."""
F = TypeVar("F")


class QueuedEntry(NamedTuple, Generic[F]):
    """An entry with its size in bytes and the future of its offset."""

    entry: LogEntry
    size: int
    future: F


class BatchQueue(Generic[F]):
    """Entries in their order, to be cut into batches of at most ``most`` entries and MAX_BYTES.

    None is added once it is ``closed`` or has an ``error``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: deque[QueuedEntry[F]] = deque()
        self._bytes = 0
        self.closed = False
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def has_room(self) -> bool:
        """Whether ``add`` may be called: there is room for one more, or it will raise."""
        room = len(self._entries) < WAITING * self._most and self._bytes < WAITING * MAX_BYTES
        return room or self.closed or self.error is not None

    @property
    def is_full(self) -> bool:
        """Whether what waits makes a whole batch."""
        return len(self._entries) >= self._most or self._bytes >= MAX_BYTES

    def add(self, entry: LogEntry, future: F) -> None:
        """Put ``entry`` behind the others. Raises the error, and ValueError once it is closed."""
        self.check()
        if self.closed:
            raise ValueError("the batcher is closed")
        size = entry.ByteSize()
        self._entries.append(QueuedEntry(entry, size, future))
        self._bytes += size

    def check(self) -> None:
        """Raises the error, if there is one."""
        if self.error is not None:
            raise self.error

    def cut(self) -> list[QueuedEntry[F]]:
        """The next batch, which waits no more."""
        batch: list[QueuedEntry[F]] = []
        size = 0
        while self._entries and len(batch) < self._most and (not batch or size + self._entries[0].size <= MAX_BYTES):
            batch.append(self._entries.popleft())
            size += batch[-1].size
        self._bytes -= size
        return batch

    def clear(self) -> list[QueuedEntry[F]]:
        """All there are; none waits any more."""
        left = list(self._entries)
        self._entries.clear()
        self._bytes = 0
        return left
