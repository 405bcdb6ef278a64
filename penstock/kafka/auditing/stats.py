"""What an auditor counts in one reporting interval."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.kafka.auditing.auditor import AuditType


class StatsClosed(PenstockError, RuntimeError):
    """The interval is over: who counts takes the stats of the next one and tries again."""

    def __init__(self) -> None:
        super().__init__("Stats has been closed. The caller should get the new AuditStats and retry.")


class AuditKey(NamedTuple):
    """What messages are counted by: topic, time (in buckets since the epoch), and what happened to them."""

    topic: str
    bucket: int
    audit_type: AuditType | str

    def __str__(self) -> str:
        return f"({self.topic},{self.bucket},{self.audit_type})"


class Count(NamedTuple):
    """Messages and their bytes."""

    messages: int = 0
    size: int = 0

    def __str__(self) -> str:
        return f"({self.messages} messages, {self.size} bytes)"


class AuditStats(ABC):
    """The counts of one interval, told by many threads until it is closed."""

    @abstractmethod
    def update(self, key: Hashable, messages: int, size: int) -> None:
        """Count. Raises StatsClosed."""

    @abstractmethod
    def close(self) -> None:
        """No more counts."""


class CountingAuditStats(AuditStats):
    """Messages and bytes by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Hashable, Count] = {}
        self._closed = False

    def update(self, key: Hashable, messages: int, size: int) -> None:
        """Count. Raises StatsClosed."""
        with self._lock:
            if self._closed:
                raise StatsClosed
            before = self._counts.get(key)
            self._counts[key] = (
                Count(messages, size) if before is None else Count(before.messages + messages, before.size + size)
            )

    def close(self) -> None:
        """No more counts: they can be read now."""
        with self._lock:
            self._closed = True

    def stats(self) -> Mapping[Hashable, Count]:
        """The counts up to now."""
        with self._lock:
            return dict(self._counts)
