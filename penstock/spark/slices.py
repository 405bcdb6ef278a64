"""Ranges of offsets: how a read is split over tasks, and how a task reads its part as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.log.errors import CorruptBatch
from penstock.log.filters import Filter
from penstock.log.reader import TopicReader
from penstock.log.view import Stored

TASK_ROWS = 10_000
"""A task for fewer rows would cost more than it saves."""
MAX_TASK_ROWS = 500_000
"""A task of more rows would be lost whole when it fails."""
BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""Arrow batches of this size are as fast as larger ones, and the JVM holds one at a time."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [begin, end) of a topic."""

    topic: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


class Slice(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def plan(ranges: Sequence[Range], workers: int) -> list[Slice]:
    """Slices of nearly equal size, at most ``workers`` of them unless they would grow too large; none for no rows."""
    total = sum(r.rows for r in ranges)
    if not total:
        return []
    count = max(1, min(workers, total // TASK_ROWS), -(-total // MAX_TASK_ROWS))
    return [Slice(part) for part in _cut(ranges, -(-total // count))]


def _cut(ranges: Sequence[Range], size: int) -> Iterator[list[Range]]:
    part: list[Range] = []
    room = size
    for whole in ranges:
        begin = whole.begin
        while begin < whole.end:
            end = min(whole.end, begin + room)
            part.append(Range(whole.topic, begin, end))
            room -= end - begin
            begin = end
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


class DataLoss(RuntimeError):
    """Offsets that were to be read are gone, and the option ``onDataLoss`` is ``fail``."""


def read_slice(
    path: Path, ranges: Iterable[Range], schema: pa.Schema, *, wanted: Filter | None = None, fail: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges`` of the topics in ``path``, with the columns of ``schema``.

    ``wanted``: only those that match. ``fail``: raise DataLoss where some are gone, instead of leaving them out.
    """
    for part in ranges:
        for stored in read_range(path, part, fail=fail):
            yield from _pieces(_with_origin(stored, part.topic, schema, wanted))


def read_range(path: Path, part: Range, *, fail: bool = False) -> Iterator[Stored]:
    """The batches of a range. A corrupt one is left out: whoever proves the range finds that it is missing."""
    reader = TopicReader(path / part.topic)
    if fail:
        _refuse_gaps(reader, part)
    begin = part.begin
    while begin < part.end:
        try:
            yield from reader.read(begin, end=part.end)
            return
        except CorruptBatch as error:
            if fail:
                raise DataLoss(f"topic {part.topic}: offsets {error.begin} to {error.end} are corrupt") from None
            begin = max(error.end, begin + 1)
        except FileNotFoundError:  # the topic was deleted
            if fail:
                raise DataLoss(f"topic {part.topic} was deleted") from None
            return


def _refuse_gaps(reader: TopicReader, part: Range) -> None:
    for gap in reader.gaps():
        if gap.begin < part.end and gap.end > part.begin:
            raise DataLoss(f"topic {part.topic}: offsets {gap.begin} to {gap.end} are gone ({gap.reason})")


def _with_origin(stored: Stored, topic: str, schema: pa.Schema, wanted: Filter | None) -> pa.RecordBatch:
    batch = wanted.apply(stored.batch) if wanted else stored.batch
    rows = batch.num_rows
    origin = stored.origin
    constants = {
        "topic": topic,
        "source": origin.source,
        "bucket": origin.bucket * 1_000_000,
        "received": origin.first,
        "codec": origin.codec,
    }
    columns = [
        pa.repeat(pa.scalar(constants[field.name], field.type), rows)
        if field.name in constants
        else _column(batch.column(field.name), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: pa.Array, expected: pa.DataType) -> pa.Array:
    return values if values.type.equals(expected) else pc.cast(values, expected)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    count = max(1, -(-batch.num_rows // BATCH_ROWS), -(-batch.nbytes // BATCH_BYTES))
    size = max(1, -(-batch.num_rows // count))
    for begin in range(0, batch.num_rows, size):
        yield batch.slice(begin, size)
