"""Landed rows by type, counted repeatedly while the table grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.landing.table.row_counts import HOST, TYPE, RowCounts
from penstock.landing.table_paths import partition_value
from tests.spark.spark_helpers import BUCKET, HandWritten, landed_event, landed_message


def test_count_reads_only_new_files(table: HandWritten) -> None:
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_message(1)])
    progress: list[tuple[int, int]] = []
    counts = RowCounts(table.layout, TYPE)
    assert counts.count(lambda number, total: progress.append((number, total))) == {
        ("event", "x"): 1,
        ("message", "x"): 1,
    }
    assert progress == [(1, 2), (2, 2)]
    for path in table.layout.landed.glob("kind=message/*/*.parquet"):
        path.write_bytes(b"")
    table.commit({"t": 3}, [landed_event(2, "u2")])
    assert counts.count() == {("event", "x"): 2, ("message", "x"): 1}


def test_count_is_limited_to_buckets(table: HandWritten) -> None:
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_event(1, "u2", bucket=BUCKET + 60)])
    assert RowCounts(table.layout, TYPE, range(BUCKET, BUCKET + 60)).count() == {("event", "x"): 1}
    assert RowCounts(table.layout, TYPE, range(BUCKET, 1 << 60)).count() == {("event", "x"): 2}
    assert RowCounts(table.layout, TYPE, range(BUCKET)).count() == {}
    assert RowCounts(table.layout, HOST).count() == {("event", ""): 2}, "there is no such column"


def test_removed_file_has_no_rows(table: HandWritten) -> None:
    table.commit({"t": 1}, [landed_event(0, "u1")])
    (path,) = table.layout.landed.glob("kind=event/*/*.parquet")
    path.unlink()
    assert RowCounts(table.layout, TYPE).count() == {}


@pytest.mark.parametrize(("name", "value"), [("kind=a/type=b%2Fc/x", "b/c"), ("kind=a/x", ""), ("type=/x", "")])
def test_partition_value_is_decoded(name: str, value: str) -> None:
    assert partition_value(Path(name), "type") == value
