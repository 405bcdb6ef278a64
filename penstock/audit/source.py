"""The methods that an audit needs of a source: which offsets exist, which a table must have, and why one is absent.

A source is read, never changed. Kinds: a topic of Kafka, a topic of Penstock, another table, and a file of ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kafka.absent_offsets import Absence, ClassifiedRange
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, intersection
from penstock.proof.reread.messages import RereadSource

RECORDS = pa.schema(
    [  # type: ignore[arg-type]  # the stubs join types of fields to object
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
"""Columns of records as a source yields them."""
BEYOND = 1 << 62
"""An offset greater than all offsets."""
UNREAD = (Absence.PRESENT, Absence.UNKNOWN)
"""Classes of offsets whose record exists, or may exist, although reading did not return it."""
CLOCK_SKEW_S = 300.0
"""Clocks of producers may be ahead by so much; Kerberos allows the same."""


class SourceUnavailable(PenstockError, RuntimeError):
    """The source did not answer, or does not have the topic: the audit cannot be decided."""


def times_in_the_future(partition: str, offset: int) -> SourceUnavailable:
    """Return the error of records whose times do not show which ones are due: a clock is wrong.

    Without it, records that are lost would count as too young to be required.
    """
    return SourceUnavailable(
        f"{partition}: records from offset {offset} on have times in the future, which do not show whether they are "
        "due; --grace 0s requires all records"
    )


@dataclass(frozen=True, slots=True)
class Expected:
    """The offsets of a partition when the audit began: stored are [start, end), required are [begin, due).

    Records from ``due`` on are younger than the grace period, or not yet committed by the sink's group.
    """

    start: int
    end: int
    begin: int
    due: int
    unused: int = 0
    """Required offsets that the source does not use, for a source that knows without reading records."""


@dataclass(frozen=True, slots=True)
class Period:
    """Limits of the required records: seconds since the epoch, and the sink's consumer group."""

    grace_s: float
    since_s: float | None = None
    until_s: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A record that the table lacks, as evidence; ``timestamp`` in milliseconds since the epoch, 0 if unknown."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Lag:
    """The records of a partition behind the newest row of the table, and the age of the first of them.

    ``expires_in_s``: time until it expires; infinite without a limit of time.
    """

    records: int
    behind_s: float
    expires_in_s: float

    @property
    def expires_unread(self) -> bool:
        """Whether the first record expires before a sink at this distance reads it."""
        return self.expires_in_s < self.behind_s


class AuditSource(ABC):
    """A topic, or another list of records by offset. Used by one thread, which closes it.

    Methods raise SourceUnavailable.
    """

    topic: str
    address: str
    """The source without credentials, as the command takes it."""
    has_topic = True
    """Whether ``topic`` is the name of a topic, which a column of the table may hold."""
    is_compacted: bool = False
    """Whether a record may be removed because a later one has its key."""

    def close(self) -> None:  # noqa: B027 - most kinds of sources hold nothing open
        """Release connections."""

    @abstractmethod
    def partitions(self) -> list[int]:
        """Return the numbers of the partitions."""

    @abstractmethod
    def expected(self, partition: int, period: Period) -> Expected:
        """Return the offsets of a partition."""

    @abstractmethod
    def end(self, partition: int) -> int:
        """Return the end of the stored offsets now."""

    def written_end(self, partition: int) -> int:
        """Return the end of all offsets now, also of open transactions."""
        return self.end(partition)

    def aborted(self, partition: int, ranges: Runs) -> Runs:
        """Return the offsets among ``ranges``, which have rows, whose records belong to aborted transactions.

        Order: after ``classify`` of the offsets that the table lacks, because it reads the ends of transactions.
        """
        return NO_RUNS

    @abstractmethod
    def classify(self, partition: int, absent: Runs) -> Sequence[ClassifiedRange]:
        """Return why each of these offsets may have no row."""

    @abstractmethod
    def read(self, partition: int, ranges: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the records in ``ranges`` (RECORDS)."""

    def records(self, partition: int, ranges: Runs, limit: int, *, is_complete: bool = True) -> Iterator[Record]:
        """Yield the records in ``ranges``, at most ``limit``. ``is_complete``: each range ends with a record."""
        for batch in self.read(partition, ranges):
            for row in batch.slice(0, limit).to_pylist():
                limit -= 1
                yield record_of(partition, row)
            if limit <= 0:
                return

    def offsets_at(self, partition: int, moments_s: Sequence[float], end: int) -> list[int]:
        """Return for each time the first offset whose record is not older; ``end`` if there is none or no time."""
        return [end for _ in moments_s]

    def never_had(self, partition: int, ranges: Runs, end: int) -> Runs:
        """Return the offsets among ``ranges`` that the source never had; ``end`` is its end when the audit began."""
        beyond = intersection(ranges, as_runs([(end, BEYOND)]))
        if len(beyond):
            # A row beyond the first end may have been produced during the audit; a new partition is created empty.
            beyond = intersection(beyond, as_runs([(self.written_end(partition), BEYOND)]))
        return as_runs(np.concatenate([beyond, intersection(ranges, as_runs([(-BEYOND, 0)]))]))

    def lag(self, partition: int, position: int) -> Lag | None:
        """Return the lag of a sink that has not read ``position`` yet; None if it has read everything."""
        return None

    def dead_letters(self, topic: str) -> Mapping[int, Runs]:
        """Return the offsets whose records are in a dead letter topic, by partition."""
        raise SourceUnavailable(f"{self.address}: dead letters are read from Kafka only")

    def reread(self) -> RereadSource | None:
        """Return the reader that reads messages of Penstock again; None if the source has none."""
        return None

    def partition_name(self, partition: int) -> str:
        """Return the name of a partition for ``reread``."""
        return self.topic


def record_of(partition: int, row: Mapping[str, Any]) -> Record:
    """Return a row of RECORDS as a record."""
    moment = row["timestamp"]
    millis = 0 if moment is None else round(moment.timestamp() * 1000)
    return Record(partition, row["offset"], millis, row["key"], row["value"], row["headers"] or ())
