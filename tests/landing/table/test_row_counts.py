"""Landed rows by type, counted again and again while the table changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.landing.table.row_counts import HOST, TYPE, RowCounts
from penstock.landing.table_paths import partition_value
from tests.spark.spark_helpers import BUCKET, HandWritten, landed_event, landed_message


def test_what_landed_since_is_added_and_other_files_are_not_read_again(table: HandWritten) -> None:
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_message(1)])
    told: list[tuple[int, int]] = []
    tallies = RowCounts(table.layout, TYPE)
    assert tallies.count(lambda number, of: told.append((number, of))) == {("event", "x"): 1, ("message", "x"): 1}
    assert told == [(1, 2), (2, 2)]
    for path in table.layout.landed.glob("kind=message/*/*.parquet"):
        path.write_bytes(b"")
    table.commit({"t": 3}, [landed_event(2, "u2")])
    assert tallies.count() == {("event", "x"): 2, ("message", "x"): 1}


def test_only_the_buckets_that_were_asked_for_count(table: HandWritten) -> None:
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_event(1, "u2", bucket=BUCKET + 60)])
    assert RowCounts(table.layout, TYPE, range(BUCKET, BUCKET + 60)).count() == {("event", "x"): 1}
    assert RowCounts(table.layout, TYPE, range(BUCKET, 1 << 60)).count() == {("event", "x"): 2}
    assert RowCounts(table.layout, TYPE, range(BUCKET)).count() == {}
    assert RowCounts(table.layout, HOST).count() == {("event", ""): 2}, "there is no such column"


def test_a_file_that_was_removed_has_no_rows(table: HandWritten) -> None:
    table.commit({"t": 1}, [landed_event(0, "u1")])
    (path,) = table.layout.landed.glob("kind=event/*/*.parquet")
    path.unlink()
    assert RowCounts(table.layout, TYPE).count() == {}


@pytest.mark.parametrize(("name", "value"), [("kind=a/type=b%2Fc/x", "b/c"), ("kind=a/x", ""), ("type=/x", "")])
def test_values_of_folders_are_decoded(name: str, value: str) -> None:
    assert partition_value(Path(name), "type") == value
