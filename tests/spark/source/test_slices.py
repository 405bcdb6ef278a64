"""Splitting a read over tasks, and reading a task's part."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock import records
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import Range
from penstock.spark.source import slices
from penstock.spark.source.options import COLUMNS
from penstock.spark.source.slices import plan, read_slice
from tests.spark.spark_helpers import BUCKET, append, flip

STAMP = pa.timestamp("us", "UTC")
TYPES = {"bigint": pa.int64(), "timestamp": STAMP, "binary": pa.binary(), "string": pa.string()}
SCHEMA = pa.schema([pa.field(name, TYPES.get(kind, records.ANNOTATIONS)) for name, kind in COLUMNS.items()])


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 60_000)), max_size=4),
    st.integers(1, 6),
)
def test_plan_covers_every_offset_once_in_even_slices(spans: list[tuple[int, int]], workers: int) -> None:
    ranges = [Range(f"t{n}", begin, begin + rows) for n, (begin, rows) in enumerate(spans)]
    planned = plan(ranges, workers)
    merged: dict[str, list[tuple[int, int]]] = {}
    for part in planned:
        for r in part.ranges:
            merged.setdefault(r.topic, []).append((r.begin, r.end))
    for r in ranges:
        pieces = merged.get(r.topic, [])
        assert sum(end - begin for begin, end in pieces) == r.rows
        assert all(pieces[n][1] == pieces[n + 1][0] for n in range(len(pieces) - 1))
    sizes = [sum(r.rows for r in part.ranges) for part in planned]
    assert len(sizes) <= workers
    assert all(size == sizes[0] for size in sizes[:-1])


def test_few_rows_are_one_task_and_very_many_are_more_than_there_are_workers() -> None:
    assert len(plan([Range("t", 0, 50)], 8)) == 1
    assert len(plan([Range("t", 0, slices.MAX_TASK_ROWS * 5)], 2)) == 5
    assert plan([Range("t", 7, 7)], 2) == []


def test_many_small_topics_share_a_task() -> None:
    assert len(plan([Range(f"t{n}", 0, 3) for n in range(1000)], 2)) == 1


def test_a_slice_is_read_with_the_columns_of_its_origin(topics: Path) -> None:
    append(topics, "t", [b"a", None, b"c"], source="tcp-1", codec="raw")
    (batch,) = read_slice(FolderStore(topics), [Range("t", 1, 3)], SCHEMA)
    assert batch.schema.equals(SCHEMA)
    first = batch.to_pylist()[0]
    assert (first["topic"], first["offset"], first["payload"], first["source"], first["codec"]) == (
        "t",
        1,
        None,
        "tcp-1",
        "raw",
    )
    assert first["bucket"].timestamp() == BUCKET
    assert first["received"].timestamp() == BUCKET + 0.000005


def test_large_batches_are_cut_to_size(topics: Path) -> None:
    append(topics, "t", [b"x"] * 25_000)
    batches = list(read_slice(FolderStore(topics), [Range("t", 0, 25_000)], SCHEMA))
    assert max(batch.num_rows for batch in batches) <= slices.BATCH_ROWS
    assert [o for batch in batches for o in batch.column("offset").to_pylist()] == list(range(25_000))


def test_a_corrupt_batch_is_left_out_and_the_rest_is_read(topics: Path) -> None:
    append(topics, "t", [b"one"], [b"damaged", b"too"], [b"three"])
    flip(topics, "t", b"damaged")
    batches = list(read_slice(FolderStore(topics), [Range("t", 0, 4)], SCHEMA))
    assert [payload for batch in batches for payload in batch.column("payload").to_pylist()] == [b"one", b"three"]


def test_missing_topic_has_no_rows(topics: Path) -> None:
    assert list(read_slice(FolderStore(topics), [Range("gone", 0, 4)], SCHEMA)) == []
