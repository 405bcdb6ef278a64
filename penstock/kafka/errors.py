"""Errors of large messages and of record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import PenstockError


class Partition(NamedTuple):
    """A partition of a topic; equal to, and hashed as, the plain tuple."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class LargeMessageError(PenstockError):
    """Base class of the errors of large messages."""


class InvalidChunk(LargeMessageError, ValueError):
    """A chunk contradicts itself, its message or the buffer; ``reason`` is one word for counting."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class MessageDropped(LargeMessageError):
    """An incomplete message was dropped because the buffer is full (``exception.on.message.dropped``)."""


class OffsetNotTracked(LargeMessageError):
    """An offset does not belong to a recently delivered message.

    ``first`` and ``last`` bound the tracked delivered offsets (``last`` is -1 if there are none); ``safe`` is the
    partition's safe offset.
    """

    def __init__(self, partition: tuple[str, int], offset: int, first: int, last: int, safe: int) -> None:
        topic, number = partition
        super().__init__(
            f"offset {offset} of {topic}-{number} is not tracked: no recently delivered message has it "
            f"(tracked: {first} to {last}; safe offset: {safe})"
        )
        self.partition, self.offset = Partition(*partition), offset
        self.first, self.last, self.safe = first, last, safe


class NoCommittedOffset(LargeMessageError):
    """A partition has no committed offset to seek to."""


class InvalidOffset(LargeMessageError):
    """A partition cannot be read from ``offset``, which does not exist; None: no offset is committed."""

    def __init__(self, partition: tuple[str, int], offset: int | None) -> None:
        topic, number = partition
        problem = "no offset is committed" if offset is None else f"offset {offset} does not exist"
        super().__init__(f"{topic}-{number}: {problem}")
        self.partition, self.offset = Partition(*partition), offset


class SendFailed(LargeMessageError):
    """Not all chunks of a message were accepted: ``sent`` of ``count``; ``error`` is the first failure."""

    def __init__(self, sent: int, count: int, error: object) -> None:
        super().__init__(f"Sent {sent} of {count} segments: {error}")
        self.sent, self.count, self.error = sent, count, error


class Skip(LargeMessageError):
    """Raised by a deserializer to leave out this record alone; it is counted."""


class RecordFailed(LargeMessageError):
    """A record could not be processed; the reason is its ``__cause__``."""

    def __init__(self, partition: Partition, offset: int, cause: Exception) -> None:
        super().__init__(f"{partition}, offset {offset}: {cause}")
        self.partition, self.offset = partition, offset
        self.__cause__ = cause


class RecordsFailed(LargeMessageError):
    """Records of some partitions could not be processed; a caller that continues reading skips them."""

    def __init__(self, failures: Sequence[RecordFailed]) -> None:
        first = f": {failures[0]}" if failures else ""
        super().__init__(f"records of {len(failures)} partitions could not be processed{first}")
        self.failures = tuple(failures)
        self.resume = {failure.partition: failure.offset + 1 for failure in failures}
        """Offset at which each partition continues."""
        self.__cause__ = failures[0] if failures else None


class BadRecords(PenstockError, ValueError):
    """Record batches are invalid."""


class UnknownCodec(BadRecords):
    """The format or compression of a batch is not supported."""


class BatchTooLarge(BadRecords):
    """A batch is larger than the limit."""


class KafkaAway(PenstockError, RuntimeError):
    """Kafka does not answer, or refuses the request."""
