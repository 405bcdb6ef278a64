"""Ranges of offsets: how a read is split into tasks, and how a task reads its part as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.topics.topic_store import Range, TopicStore

TASK_ROWS = 10_000
"""Fewest rows of a task: scheduling a smaller one costs more than it saves."""
MAX_TASK_ROWS = 500_000
"""Most rows of a task: a failed task is repeated as a whole."""
BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""Limit of an Arrow batch: larger ones are not faster, and the JVM holds one at a time."""


class Slice(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def plan(ranges: Sequence[Range], workers: int) -> list[Slice]:
    """Return slices of nearly equal size: at most ``workers``, or more if they would exceed MAX_TASK_ROWS."""
    total = sum(topic_range.rows for topic_range in ranges)
    if not total:
        return []
    count = max(1, min(workers, total // TASK_ROWS), -(-total // MAX_TASK_ROWS))
    return [Slice(part) for part in _fill_slices(ranges, -(-total // count))]


def _fill_slices(ranges: Sequence[Range], size: int) -> Iterator[list[Range]]:
    part: list[Range] = []
    remaining = size
    for full_range in ranges:
        begin = full_range.begin
        while begin < full_range.end:
            end = min(full_range.end, begin + remaining)
            part.append(replace(full_range, begin=begin, end=end))
            remaining -= end - begin
            begin = end
            if not remaining:
                yield part
                part, remaining = [], size
    if part:
        yield part


def read_slice(
    store: TopicStore, ranges: Iterable[Range], schema: pa.Schema, *, annotation_filter: str = "", fail: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``ranges`` of the topics in ``store``, with the columns of ``schema``; see
    ``TopicStore.read``.
    """
    for part in ranges:
        for batch in store.read(part, schema, filter_text=annotation_filter, fail=fail):
            yield from _split_batch(with_unique_annotations(batch))  # Spark refuses a map with a repeated key


def _split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    count = max(1, -(-batch.num_rows // BATCH_ROWS), -(-batch.nbytes // BATCH_BYTES))
    size = max(1, -(-batch.num_rows // count))
    for begin in range(0, batch.num_rows, size):
        yield batch.slice(begin, size)
