"""What a producer or consumer tells about each message, to whoever wants to count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class AuditType(StrEnum):
    """What happened: a producer attempts, and then succeeds or fails; a consumer succeeds."""

    ATTEMPT = "ATTEMPT"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


class Auditor(ABC):
    """Told of every message, once for all its segments, by the client that it is configured for (``auditor.class``).

    The order is configure, start, any number of records from any thread, close.
    """

    @abstractmethod
    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the client's configuration, with ``current.producer`` in it where the client is a producer."""

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    def audit_token(self, key: Any, value: Any) -> Any:
        """What ``record`` gets of a message beside its topic, time and size; by default nothing."""
        return None

    @abstractmethod
    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        """``messages`` messages of ``size`` bytes in all, made at ``timestamp`` (milliseconds since the epoch)."""

    def lost(self, topic: str, reason: str, messages: int) -> None:  # noqa: B027 - not all care
        """``messages`` messages or segments nobody gets: ``evicted``, ``expired``, ``refused.WHY`` or ``skipped``."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Report what is not reported yet, within ``timeout`` seconds. May be called twice."""


class NoOpAuditor(Auditor):
    """Counts nothing; the default."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Nothing to configure."""

    def start(self) -> None:
        """Nothing to start."""

    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        """Not counted."""

    def close(self, timeout: float | None = None) -> None:
        """Nothing to close."""
