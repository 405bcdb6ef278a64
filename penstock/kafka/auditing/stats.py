"""Counts of one reporting interval of an auditor."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.kafka.auditing.auditor import AuditType


class StatsClosed(PenstockError, RuntimeError):
    """The interval is over: the caller retries with the stats of the next interval."""

    def __init__(self) -> None:
        super().__init__("Stats has been closed. The caller should get the new AuditStats and retry.")


class AuditKey(NamedTuple):
    """A key of counts: topic, time in buckets since the epoch, and fate of the messages."""

    topic: str
    bucket: int
    audit_type: AuditType | str

    def __str__(self) -> str:
        return f"({self.topic},{self.bucket},{self.audit_type})"


class Count(NamedTuple):
    """A number of messages and their bytes."""

    messages: int = 0
    size: int = 0

    def __str__(self) -> str:
        return f"({self.messages} messages, {self.size} bytes)"


class AuditStats(ABC):
    """Counts of one interval, updated by many threads until they are closed."""

    @abstractmethod
    def update(self, key: Hashable, messages: int, size: int) -> None:
        """Add to the counts. Raises StatsClosed."""

    @abstractmethod
    def close(self) -> None:
        """Refuse further counts."""


class CountingAuditStats(AuditStats):
    """Messages and bytes by key; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Hashable, Count] = {}
        self._closed = False

    def update(self, key: Hashable, messages: int, size: int) -> None:
        """Add to the counts. Raises StatsClosed."""
        with self._lock:
            if self._closed:
                raise StatsClosed
            previous = self._counts.get(key)
            self._counts[key] = (
                Count(messages, size) if previous is None else Count(previous.messages + messages, previous.size + size)
            )

    def close(self) -> None:
        """Refuse further counts: they are final from here on."""
        with self._lock:
            self._closed = True

    def stats(self) -> Mapping[Hashable, Count]:
        """Return a copy of the counts."""
        with self._lock:
            return dict(self._counts)
