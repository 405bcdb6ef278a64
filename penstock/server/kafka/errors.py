"""Errors of requests in Kafka's protocol."""

from __future__ import annotations

from penstock.errors import PenstockError


class BadFrame(PenstockError, ValueError):
    """A request cannot be parsed; its connection is closed."""


class BadRecords(PenstockError, ValueError):
    """Record batches are invalid and not stored."""


class BadChecksum(BadRecords):
    """The bytes of a batch do not match its checksum."""


class UnknownCodec(BadRecords):
    """The format or compression of a batch is not supported."""


class BatchTooLarge(BadRecords):
    """A batch is larger than the limit."""


class TakesLong(PenstockError, RuntimeError):
    """A batch is too large for the fast path; nothing of it is done."""
