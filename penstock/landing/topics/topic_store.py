"""The interface of readers of topics: from their folder, or from the log daemon over Arrow Flight.

Invariant: both return the same rows for a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.log.store.gaps import CORRUPT, Gap


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [begin, end) of a topic."""

    topic: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


class DataLoss(PenstockError, RuntimeError):
    """Requested offsets are gone, and the option ``onDataLoss`` is ``fail``."""


class TopicView(Protocol):
    """A topic at one moment. Retention may delete files at any time: all methods may raise FileNotFoundError."""

    @property
    def start(self) -> int:
        """Return the first readable offset."""

    @property
    def end(self) -> int:
        """Return the offset after the last synced one."""

    def at_timestamp(self, micros: int) -> int:
        """Return the first offset with a timestamp of ``micros`` or later; ``end`` if there is none yet."""

    def gaps(self) -> list[Gap]:
        """Return all gaps, sorted by offset."""


class TopicStore(Protocol):
    """A source of topics."""

    def views(self, patterns: Sequence[str]) -> dict[str, TopicView]:
        """Return the existing topics that match the patterns (``is_selected``), sorted by name."""

    def waiting_since(self, topic: str, offset: int) -> int | None:
        """Return the time (microseconds) at which the first row from ``offset`` on was appended; None if unknown."""

    def row_times(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[int | None]]:
        """Return the times (microseconds) at which rows were appended, by topic, read in the order of its offsets.

        A missing row has the time of a later one, or None. Invariant: read from the log that is there now.
        """

    def row_bytes(self, topic: str) -> float:
        """Return the approximate stored bytes per row of a topic; 0 if unknown."""

    def read(
        self, part: Range, schema: pa.Schema, *, filter_text: str = "", fail: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range with the columns of ``schema`` that match the filter ``filter_text``.

        Missing offsets are skipped, or with ``fail`` raise DataLoss.
        """


def refuse_gaps(gaps: Iterable[Gap], part: Range) -> None:
    """Raise DataLoss if a gap overlaps a range."""
    for gap in gaps:
        if gap.begin < part.end and gap.end > part.begin:
            raise data_loss(part.topic, gap.begin, gap.end, gap.reason)


def data_loss(topic: str, begin: int, end: int, reason: str) -> DataLoss:
    """Return the error for lost offsets."""
    state = "corrupt" if reason == CORRUPT else f"gone ({reason})"
    return DataLoss(f"topic {topic}: offsets {begin} to {end} are {state}")


def to_schema(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``schema``: ``topic``, and the batch's columns in the types that Spark expects."""
    columns = [
        pa.repeat(pa.scalar(topic, field.type), batch.num_rows)
        if field.name == "topic"
        else _cast(batch.column(field.name), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(values: pa.Array[Any], expected: pa.DataType) -> pa.Array[Any]:
    # Fast path: types nearly always match; a cast would copy the column.
    return values if values.type.equals(expected) else values.cast(expected)
