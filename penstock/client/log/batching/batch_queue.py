"""The queue of a batcher, used with threads or on an event loop."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from penstock.slogd.slogd_pb2 import LogEntry

MAX_BYTES = 4 << 20
"""Limit in bytes of one request, unless a single entry is larger."""
WAITING = 10
"""Limit of waiting batches; above it `append` waits, so memory stays bounded."""
F = TypeVar("F")


class QueuedEntry(NamedTuple, Generic[F]):
    """An entry with its size in bytes and the future of its offset."""

    entry: LogEntry
    size: int
    future: F


class BatchQueue(Generic[F]):
    """Entries in order, to be cut into batches of at most ``max_entries`` entries and MAX_BYTES.

    Accepts no entry once it is ``closed`` or has an ``error``. Not thread-safe: ``Batcher`` holds its lock around it.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: deque[QueuedEntry[F]] = deque()
        self._bytes = 0
        self.closed = False
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def has_room(self) -> bool:
        """Whether ``add`` may be called: it has room, or it raises at once."""
        # A queue that is closed or failed has room as well: a waiting `append` must wake up and raise.
        room = len(self._entries) < WAITING * self._max_entries and self._bytes < WAITING * MAX_BYTES
        return room or self.closed or self.error is not None

    @property
    def is_full(self) -> bool:
        """Whether the waiting entries fill a batch."""
        return len(self._entries) >= self._max_entries or self._bytes >= MAX_BYTES

    def add(self, entry: LogEntry, future: F) -> None:
        """Append ``entry`` to the queue. Raises the error, and ValueError once the queue is closed."""
        self.check()
        if self.closed:
            raise ValueError("the batcher is closed")
        size = entry.ByteSize()
        self._entries.append(QueuedEntry(entry, size, future))
        self._bytes += size

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error

    def cut(self) -> list[QueuedEntry[F]]:
        """Remove and return the next batch."""
        batch: list[QueuedEntry[F]] = []
        size = 0
        while (
            self._entries
            and len(batch) < self._max_entries
            # A single entry may be larger than the limit: it goes alone, and the server judges its size.
            and (not batch or size + self._entries[0].size <= MAX_BYTES)
        ):
            batch.append(self._entries.popleft())
            size += batch[-1].size
        self._bytes -= size
        return batch

    def clear(self) -> list[QueuedEntry[F]]:
        """Remove and return all entries."""
        waiting = list(self._entries)
        self._entries.clear()
        self._bytes = 0
        return waiting
