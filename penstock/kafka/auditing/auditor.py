"""The interface between a producer or consumer and the auditor that counts its messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class AuditType(StrEnum):
    """The fate of a message: a producer attempts, then succeeds or fails; a consumer succeeds."""

    ATTEMPT = "ATTEMPT"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


class Auditor(ABC):
    """Receives every message of one client (``auditor.class``), once for all its chunks.

    Lifetime: configure, start, any number of records from any thread, close.
    """

    @abstractmethod
    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply the client's configuration; a producer adds itself as ``current.producer``."""

    @abstractmethod
    def start(self) -> None:
        """Start counting."""

    def audit_token(self, key: Any, value: Any) -> Any:
        """Return additional data about a message for ``record``; None by default."""
        return None

    @abstractmethod
    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        """Count ``messages`` messages of ``size`` bytes in total, created at ``timestamp`` (ms since the epoch)."""

    def lost(self, topic: str, reason: str, messages: int) -> None:  # noqa: B027 - optional for subclasses
        """Count messages or chunks without a reader: ``evicted``, ``expired``, ``refused.REASON``, ``skipped``."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Report remaining counts within ``timeout`` seconds. A second call does nothing."""


class NoOpAuditor(Auditor):
    """The default auditor: counts nothing."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Ignore the configuration."""

    def start(self) -> None:
        """Do nothing."""

    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        """Do nothing."""

    def close(self, timeout: float | None = None) -> None:
        """Do nothing."""
