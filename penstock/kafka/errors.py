"""What can go wrong with large messages."""

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
    """Anything about large messages."""


class InvalidChunk(LargeMessageError, ValueError):
    """A segment that contradicts itself, its message or the buffer; ``reason`` is one word for counting."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class MessageDropped(LargeMessageError):
    """An incomplete message had to go because the buffer is full (``exception.on.message.dropped``)."""


class OffsetNotTracked(LargeMessageError):
    """An offset of which nothing is known any more, or never was: it is not of a message delivered lately.

    ``first`` and ``last`` are the delivered offsets of which something is known (``last`` is -1 where there are none),
    ``safe`` is the partition's safe offset.
    """

    def __init__(self, partition: tuple[str, int], offset: int, first: int, last: int, safe: int) -> None:
        topic, number = partition
        super().__init__(
            f"offset {offset} of {topic}-{number} is not known: no message delivered lately has it "
            f"(known are {first} to {last}; the safe offset is {safe})"
        )
        self.partition, self.offset = Partition(*partition), offset
        self.first, self.last, self.safe = first, last, safe


class NoCommittedOffset(LargeMessageError):
    """A partition has no committed offset to go back to."""


class InvalidOffset(LargeMessageError):
    """A partition cannot be read from ``offset``, which is not there; None: no offset is committed at all."""

    def __init__(self, partition: tuple[str, int], offset: int | None) -> None:
        topic, number = partition
        wrong = "no offset is committed" if offset is None else f"there is no offset {offset}"
        super().__init__(f"{topic}-{number}: {wrong}")
        self.partition, self.offset = Partition(*partition), offset


class SendFailed(LargeMessageError):
    """Not all segments of a message were taken; ``sent`` of ``count`` were, ``error`` is the first failure."""

    def __init__(self, sent: int, count: int, error: object) -> None:
        super().__init__(f"Sent {sent} of {count} segments: {error}")
        self.sent, self.count, self.error = sent, count, error


class Skip(LargeMessageError):
    """To be raised by a deserializer: this record alone is left out, and counted."""


class RecordFailed(LargeMessageError):
    """A record could not be processed; the cause is its ``__cause__``."""

    def __init__(self, partition: Partition, offset: int, cause: Exception) -> None:
        super().__init__(f"{partition}, offset {offset}: {cause}")
        self.partition, self.offset = partition, offset
        self.__cause__ = cause


class RecordsFailed(LargeMessageError):
    """Records of some partitions could not be processed; who goes on reading skips them."""

    def __init__(self, failures: Sequence[RecordFailed]) -> None:
        first = f": {failures[0]}" if failures else ""
        super().__init__(f"records of {len(failures)} partitions could not be processed{first}")
        self.failures = tuple(failures)
        self.resume = {failure.partition: failure.offset + 1 for failure in failures}
        """Where each of the partitions goes on."""
        self.__cause__ = failures[0] if failures else None
