"""Counts in columns equal dictionaries of the same counts, through copies, roll-ups and selections."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.counts import Counts, SourceBucket
from penstock.ledger.book import bucket_tables
from penstock.ledger.book.book import Book
from penstock.ledger.book.bucket_tables import MAX_COLUMNS, ROWS, CountTable, RowTable, SourceColumns
from penstock.ledger.book.daily_rollup import DAY, roll_counts, roll_rows
from penstock.ledger.posts import LARGEST, LandedPost

KEYS = st.tuples(st.sampled_from(("a", "host/b")), st.integers(0, 4 * DAY // 600).map(lambda step: 600 * step))
NAMES = st.sampled_from(("accepted", "open", "sum.landed.event"))
NUMBERS = st.integers(-5, 5) | st.integers(-(1 << 64), 1 << 66)
COUNTS = st.dictionaries(NAMES, NUMBERS, max_size=3)
ENTRIES = st.lists(st.tuples(KEYS, COUNTS), max_size=40)


def reduced(counts: dict[str, int]) -> dict[str, int]:
    """Return counts without zeros, with sums of hashes modulo 2^64."""
    sums = {name: count % LARGEST if name.startswith("sum.") else count for name, count in counts.items()}
    return {name: count for name, count in sums.items() if count}


def plain(table: CountTable | dict[SourceBucket, Counts]) -> dict[SourceBucket, dict[str, int]]:
    return {key: reduced(counts) for key, counts in table.items()}


def both(entries: list[tuple[SourceBucket, dict[str, int]]]) -> tuple[CountTable, dict[SourceBucket, Counts]]:
    table, expected = CountTable(), dict[SourceBucket, Counts]()
    for key, counts in entries:
        table.add(key, counts)
        expected.setdefault(key, Counts()).absorb(counts)
    return table, expected


@given(ENTRIES, ENTRIES, st.integers(0, 5).map(lambda day: day * DAY))
def test_table_holds_the_counts_of_a_dictionary_through_copies_and_roll_ups(
    entries: list[Any], later: list[Any], before: int
) -> None:
    table, expected = both(entries)
    snapshot = table.copy()
    for key, counts in later:
        table.add(key, counts)
        expected.setdefault(key, Counts()).absorb(counts)
    assert plain(table) == plain(expected)
    assert len(table) == len(expected)
    assert plain(snapshot) == plain(both(entries)[1])
    rolled = table.copy()
    rolled.roll_up(before)
    assert plain(rolled) == plain(roll_counts(expected, before))
    rolled.roll_up(before)
    rolled.roll_up(5 * DAY)
    assert plain(rolled) == plain(roll_counts(expected, 5 * DAY))
    assert plain(table) == plain(expected)


@given(ENTRIES, st.integers(0, 4 * DAY), st.integers(0, 4 * DAY), st.sampled_from((60, 3600, DAY)))
def test_selected_buckets_are_summed_by_source_and_by_interval(
    entries: list[Any], since: int, until: int, step: int
) -> None:
    table, expected = both(entries)
    by_source, by_interval = dict[str, Counts](), dict[int, Counts]()
    for (source, bucket), counts in expected.items():
        if since <= bucket < until:
            by_source.setdefault(source, Counts()).absorb(counts)
        if bucket >= since:
            by_interval.setdefault(bucket - bucket % step, Counts()).absorb(counts)
    sums = table.sums(range(since, until))
    assert {source: reduced(counts) for source, counts in sums.items()} == {
        source: reduced(counts) for source, counts in by_source.items()
    }
    assert all(table.sums_of(source, range(since, until)) == counts for source, counts in sums.items())
    intervals = table.by_interval(since, step)
    assert {start: reduced(counts) for start, counts in intervals.items()} == {
        start: reduced(counts) for start, counts in by_interval.items()
    }


@given(st.dictionaries(KEYS, st.integers(0, 1 << 62), max_size=9), st.integers(0, 5).map(lambda day: day * DAY))
def test_rows_are_kept_and_rolled_up(rows: dict[SourceBucket, int], before: int) -> None:
    table = RowTable(rows)
    assert table == rows
    table.roll_up(before)
    assert table == roll_rows(rows, before)


@settings(max_examples=30)
@given(ENTRIES)
def test_tables_with_equal_counts_are_equal(entries: list[Any]) -> None:
    table, expected = both(entries)
    assert table == both(entries[::-1])[0]
    assert table == CountTable({key: Counts(reduced(counts)) for key, counts in expected.items()})
    table.add(("other", 60), {"accepted": 1})
    assert table != both(entries)[0]


@given(ENTRIES, st.sets(st.sampled_from(("accepted", "open"))))
def test_selected_names_are_summed_by_bucket(entries: list[Any], names: set[str]) -> None:
    table, expected = both(entries)
    for source, columns in table.sources():
        sums = columns.by_bucket(names.__contains__)
        of_source = {bucket: counts for (name, bucket), counts in expected.items() if name == source}
        for bucket, counts in of_source.items():
            assert sums.get(bucket, 0) == sum(count for name, count in counts.items() if name in names)
        assert sums.keys() <= of_source.keys()
        later = columns.by_bucket(names.__contains__, DAY)
        assert {b: n for b, n in later.items() if b >= DAY} == {b: n for b, n in sums.items() if b >= DAY}
        assert later.get(0, 0) == sum(count for bucket, count in sums.items() if bucket < DAY)


@given(ENTRIES, ENTRIES)
def test_buckets_that_are_inserted_at_once_hold_the_same_counts(entries: list[Any], later: list[Any]) -> None:
    table, snapshot = both(entries)[0], both(entries)[0]
    copy = table.copy()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bucket_tables, "MAX_SINGLE_INSERTIONS", 0)
        table.make_room(key for key, _ in later)
    for key, counts in later:
        table.add(key, counts)
    assert table == both(entries + later)[0]
    assert copy == snapshot


def test_post_with_many_descending_buckets_moves_no_bucket_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    inserted = []
    monkeypatch.setattr(SourceColumns, "_insert", lambda columns, index, bucket: inserted.append(bucket))
    buckets, book = range(1_200_000, 0, -60), Book()
    for topic in ("events", "partition/0"):
        for first in (0, 30):
            counts = {("a/b", bucket - first): Counts({"landed.event": 1}) for bucket in buckets}
            uuids = {key: Counts({"rows.landed.event": 1}) for key in counts}
            through = 1_000_000 + first
            assert book.post(LandedPost(topic, first, through, counts, through, uuids))
    assert inserted == []
    assert book.snapshot().landed["events"].counts.buckets("a/b") == array("q", range(30, 1_200_001, 30))
    assert sum(book.snapshot().logged["partition/0"].values()) == 2 * len(buckets)


def test_names_beyond_the_limit_take_no_column() -> None:
    table = CountTable({("a", 60 * minute): Counts({"accepted": minute}) for minute in range(100)})
    names = Counts({f"quarantined.{number}": number + 1 for number in range(3 * MAX_COLUMNS)})
    table.add(("a", 60), names)
    ((_, columns),) = table.sources()
    assert len(columns.columns) == MAX_COLUMNS
    assert table["a", 60] == names + Counts(accepted=1)
    assert table["a", 120] == Counts(accepted=2)


def test_count_of_a_bucket_takes_8_bytes_for_each_number() -> None:
    table = CountTable()
    for minute in range(10_000):
        table.add(("a", 60 * minute), {"seen": minute, "accepted": minute})
    ((_, columns),) = table.copy().sources()
    size = sum(map(sys.getsizeof, (columns.buckets, *columns.columns.values())))
    assert size < 10_000 * 3 * 8 * 1.2


@pytest.mark.parametrize(
    ("buckets", "columns"),
    [([60, 60], {ROWS: [1, 2]}), ([120, 60], {ROWS: [1, 2]}), ([60], {ROWS: [1, 2]}), ([60, 120], {ROWS: [1]})],
)
def test_lists_that_no_table_has_are_refused(buckets: list[int], columns: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match="bucket"):
        SourceColumns.from_lists(buckets, columns, {})


def test_missing_source_and_bucket_are_missing() -> None:
    table = CountTable({("a", 60): Counts(accepted=1)})
    assert [table.get(key) for key in (("a", 60), ("a", 0), ("a", 120), ("b", 60))] == [
        Counts(accepted=1),
        None,
        None,
        None,
    ]
    assert table.sums_of("b") == {}
