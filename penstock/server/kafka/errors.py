"""Errors of requests in Kafka's protocol."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.kafka.errors import BadRecords

NO_TRANSACTIONS = "Penstock does not support Kafka transactions; use an idempotent producer without transactional.id"


class BadFrame(PenstockError, ValueError):
    """A request cannot be parsed; its connection is closed."""


class BadChecksum(BadRecords):
    """The bytes of a batch do not match its checksum."""


class InvalidTimestamp(BadRecords):
    """A producer's time is too far in the future."""


class UnansweredRefusal(PenstockError):
    """A batch of a producer that wants no answers (``acks=0``) is refused: its connection is closed, as by Kafka."""


class TakesLong(PenstockError, RuntimeError):
    """A batch is too large for the fast path; nothing of it is done."""
