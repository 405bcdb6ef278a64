"""Ranges of offsets: how a read is split over tasks, and how a task reads its part as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.topics.topic_store import Range, TopicStore

TASK_ROWS = 10_000
"""A task for fewer rows would cost more than it saves."""
MAX_TASK_ROWS = 500_000
"""A task of more rows would be lost whole when it fails."""
BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""Arrow batches of this size are as fast as larger ones, and the JVM holds one at a time."""


class Slice(InputPartition):
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
            part.append(replace(whole, begin=begin, end=end))
            room -= end - begin
            begin = end
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


def read_slice(
    store: TopicStore, ranges: Iterable[Range], schema: pa.Schema, *, wanted: str = "", fail: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges`` of the topics in ``store``, with the columns of ``schema``; see ``TopicStore.read``."""
    for part in ranges:
        for batch in store.read(part, schema, filter_text=wanted, fail=fail):
            yield from _pieces(with_unique_annotations(batch))  # Spark takes no map with a repeated key


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    count = max(1, -(-batch.num_rows // BATCH_ROWS), -(-batch.nbytes // BATCH_BYTES))
    size = max(1, -(-batch.num_rows // count))
    for begin in range(0, batch.num_rows, size):
        yield batch.slice(begin, size)
