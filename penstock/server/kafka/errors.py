"""What a client of Kafka's protocol sent and cannot have."""

from __future__ import annotations

from penstock.errors import PenstockError


class BadFrame(PenstockError, ValueError):
    """A request that cannot be understood: its connection is closed."""


class BadRecords(PenstockError, ValueError):
    """Record batches that are not stored."""


class BadChecksum(BadRecords):
    """The bytes are not those that were sent."""


class UnknownCodec(BadRecords):
    """A format or compression that is not taken."""


class BatchTooLarge(BadRecords):
    """More than is taken at once."""


class TakesLong(PenstockError, RuntimeError):
    """What was to be done at once is more than was to be expected; nothing of it is done."""
