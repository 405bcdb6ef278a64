"""Where topics are read: their folder, or the log daemon over Arrow Flight. Both give the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """Offsets that were to be read are gone, and the option ``onDataLoss`` is ``fail``."""


class TopicView(Protocol):
    """A topic as it is now. What lies in a folder may be gone the next moment: all may raise FileNotFoundError."""

    @property
    def start(self) -> int:
        """The first offset that can be read."""

    @property
    def end(self) -> int:
        """One past the last synced offset."""

    def at_timestamp(self, micros: int) -> int:
        """The first offset whose timestamp is ``micros`` or later; ``end`` when there is none yet."""


class TopicStore(Protocol):
    """A place with topics."""

    def views(self, patterns: Sequence[str]) -> dict[str, TopicView]:
        """The topics there are of those asked for (``is_selected``), sorted by name."""

    def waiting_since(self, topic: str, offset: int) -> int | None:
        """When the first row from ``offset`` on came into the log (microseconds); None for none or unknown."""

    def row_bytes(self, topic: str) -> float:
        """About how many bytes a row of a topic has, as stored; 0 for unknown."""

    def read(self, part: Range, schema: pa.Schema, *, wanted: str = "", fail: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of a range with the columns of ``schema``, those that match the filter ``wanted``.

        What is gone is left out, or with ``fail`` raises DataLoss.
        """


def refuse_gaps(gaps: Iterable[Gap], part: Range) -> None:
    """Raises DataLoss where a gap lies in a range."""
    for gap in gaps:
        if gap.begin < part.end and gap.end > part.begin:
            raise lost(part.topic, gap.begin, gap.end, gap.reason)


def lost(topic: str, begin: int, end: int, reason: str) -> DataLoss:
    """The error that says so."""
    what = "corrupt" if reason == CORRUPT else f"gone ({reason})"
    return DataLoss(f"topic {topic}: offsets {begin} to {end} are {what}")


def shaped(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``: ``topic``, and those of the batch in the types that Spark expects."""
    columns = [
        pa.repeat(pa.scalar(topic, field.type), batch.num_rows)
        if field.name == "topic"
        else _cast(batch.column(field.name), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(values: pa.Array[Any], expected: pa.DataType) -> pa.Array[Any]:
    return values if values.type.equals(expected) else values.cast(expected)
