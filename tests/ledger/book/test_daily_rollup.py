"""Roll-up by day: fewer counts, the same sums, and complete days for any stretch of minutes."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.counts import Counts, Origin
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.ledger.audit_counts import audited
from penstock.ledger.balance import UnlandedTail, balance, minutes
from penstock.ledger.book.book import Book
from penstock.ledger.book.bucket_tables import CountTable
from penstock.ledger.book.daily_rollup import (
    DAY,
    DAYS_FOR_S,
    MIN_DETAIL_S,
    horizon,
    month_limit,
    month_of,
    roll_counts,
    roll_rows,
    rolled_key,
    widened,
)
from penstock.ledger.handler_deliveries import HandlerDelivery, routes
from penstock.ledger.posts import AuditPost, LandedPost
from penstock.ledger.time_series import series

SOURCE, MIDNIGHT = "in", 20_000 * DAY
KEYS = st.tuples(st.sampled_from("ab"), st.integers(0, 4 * 1440).map(lambda minute: minute * 60))
BATCHES = st.lists(
    st.tuples(st.integers(0, 4 * 48), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=9
)


def entered(batches: list[tuple[int, int, int, int]], before: int, first: int = 0) -> Book:
    """Return a book of half hours with rows, landed rows, and drops; the first ``before`` batches are rolled up."""
    book, base, landed = Book(), 0, 0
    for number, (half, rows, dropped, fates) in enumerate(batches):
        if number == first:
            book.roll_up(before)
        bucket = half * 1800
        counts = Counts({"seen": rows + dropped, "accepted": rows + dropped, "policy_drop.log": dropped})
        book.enter("events", Origin(SOURCE, bucket, 0, 0, counts=counts), base, rows)
        base += rows
        if fates and landed + fates <= base:
            landed += fates
            book.post(LandedPost("events", landed, landed, {(SOURCE, bucket): Counts({"landed.event": fates})}))
    book.roll_up(before)
    return book


def test_only_buckets_older_than_every_retention_are_rolled_up() -> None:
    now = MIDNIGHT + 3600.0
    assert horizon(now, [60.0]) == MIDNIGHT - MIN_DETAIL_S, "minutes are kept for a week at least"
    assert horizon(now, [60.0, 30.0 * DAY]) == MIDNIGHT - 30 * DAY
    assert horizon(now, [math.inf, 8.5 * DAY]) == MIDNIGHT - 9 * DAY, "whole days only"


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(KEYS, st.integers(0, 9), max_size=9), st.integers(0, 4).map(lambda day: day * DAY))
def test_roll_up_preserves_sums_with_one_bucket_per_day(rows: dict[tuple[str, int], int], before: int) -> None:
    rolled = roll_rows(rows, before)
    assert roll_counts({key: Counts({"x": n}) for key, n in rows.items()}, before) == {
        key: Counts({"x": n}) for key, n in rolled.items()
    }
    assert sum(rolled.values()) == sum(rows.values())
    assert all(bucket % DAY == 0 for _, bucket in rolled if bucket < before)
    assert {key: n for key, n in rolled.items() if key[1] >= before} == {
        k: n for k, n in rows.items() if k[1] >= before
    }


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.integers(0, 4), st.integers(0, 9))
def test_time_of_the_roll_up_does_not_matter(batches: list[tuple[int, int, int, int]], day: int, first: int) -> None:
    before = day * DAY
    early, late = entered(batches, before, first), entered(batches, before, len(batches))
    assert early.snapshot() == late.snapshot()


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.integers(0, 4), st.integers(0, 4 * 48))
def test_balance_is_unchanged_and_closes_in_every_stretch(
    batches: list[tuple[int, int, int, int]], day: int, cut: int
) -> None:
    plain, rolled = entered(batches, 0).snapshot(), entered(batches, day * DAY).snapshot()
    assert replace(balance(rolled, {}, {}), by_day_before=0) == balance(plain, {}, {})
    total = balance(rolled, {}, {})
    parts = [balance(rolled, {}, {}, minutes(0, cut * DAY)), balance(rolled, {}, {}, minutes(cut * DAY))]
    assert sum(route.delivered for part in parts for route in part.routes) == sum(r.delivered for r in total.routes)
    middle = balance(rolled, {}, {}, minutes(cut * 1800))
    assert [route.unaccounted for route in middle.routes] in ([], [0])


def start_of(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


@settings(max_examples=50, deadline=None)
@given(st.dates(date(1969, 1, 1), date(2400, 1, 1)), st.integers(0, DAY - 1))
def test_month_of_a_bucket_begins_at_midnight_of_its_first_day(day: date, second: int) -> None:
    assert month_of(start_of(day) + second) == start_of(day.replace(day=1))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4 * 365), st.integers(0, 23), st.integers(1, 9)), max_size=40), st.data())
def test_old_days_become_months_with_the_same_sums_whenever_they_are_rolled_up(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    first = start_of(date(2022, 3, 15))
    before = first + data.draw(st.integers(0, 5 * 365)) * DAY
    earlier = first + data.draw(st.integers(0, (before - first) // DAY)) * DAY
    entered_at = data.draw(st.integers(0, len(rows)))
    late, early = CountTable(), CountTable()
    for number, (day, hour, count) in enumerate(rows):
        key, counts = ("a", first + day * DAY + hour * 3600), {"x": count, "sum.y": (1 << 64) - count}
        late.add(key, counts)
        if number == entered_at:
            early.roll_up(earlier)
        early.add(rolled_key(key, earlier) if number >= entered_at else key, counts)
    plain = roll_counts(dict(late), before)
    for table in (late, early):
        table.roll_up(before)
        assert {key: dict(counts) for key, counts in table.items()} == {
            key: {"x": counts["x"], "sum.y": -counts["x"] % (1 << 64)} for key, counts in plain.items()
        }
    assert sum(counts["x"] for counts in late.values()) == sum(count for _, _, count in rows)
    limit = month_limit(before)
    assert before - DAYS_FOR_S - 31 * DAY < limit <= before - DAYS_FOR_S
    for bucket in late.buckets("a"):
        assert bucket % (DAY if bucket < before else 3600) == 0
        assert bucket >= limit or bucket == month_of(bucket)


def test_listener_that_sends_every_day_for_thirty_years_has_few_buckets() -> None:
    table = CountTable()
    for day in range(30 * 365):
        table.add(("a", day * DAY), {"accepted": 1})
        if day % 100 == 0:
            table.roll_up(day * DAY)
    assert len(table) < 30 * 12 + 600
    assert table.sums_of("a") == {"accepted": 30 * 365}


def test_stretch_that_begins_in_a_rolled_up_month_has_the_complete_month() -> None:
    first, before = start_of(date(2024, 1, 1)), start_of(date(2026, 1, 1))
    book = Book()
    for number, day in enumerate((0, 30, 31, 600)):
        book.enter("events", Origin(SOURCE, first + day * DAY, 0, 0, counts=Counts({"accepted": 1})), number, 1)
    book.roll_up(before)
    pages = book.snapshot()
    february = start_of(date(2024, 2, 1))
    since = [balance(pages, {}, {}, minutes(first + day * DAY)).topics[0].logged for day in (0, 29, 31, 60)]
    assert since == [4, 4, 2, 1]
    assert balance(pages, {}, {}, minutes(0, february)).topics[0].logged == 2
    assert balance(pages, {}, {}, first + 15 * DAY).topics[0].logged == 2
    by_day = series(pages, {}, {}, before - 365 * DAY, DAY)
    assert {start: counts["logged"] for start, counts in by_day.items()} == {first + 600 * DAY: 1}
    assert series(pages, {}, {}, first + 5 * DAY, DAY)[first]["logged"] == 2


def test_stretch_that_begins_in_a_rolled_up_day_has_the_complete_day() -> None:
    pages = entered([(1, 5, 0, 0), (40, 7, 0, 0), (60, 9, 0, 0)], DAY).snapshot()

    def logged(within: int | range) -> int:
        return balance(pages, {}, {}, within).topics[0].logged

    assert logged(minutes(36_000)) == 21
    assert logged(minutes(0, 36_000)) == 12
    assert logged(1800) == logged(72_000) == 12, "the day that the minute is in"
    assert logged(60 * 1800) == 9
    assert widened(None, DAY) is None
    assert series(pages, {}, {}, 36_000, 3600)[0].pruned() == {"accepted": 12, "logged": 12}
    assert balance(pages, {}, {}).document()["by_day_before"] == DAY


def test_pending_rows_are_in_the_day_of_their_arrival() -> None:
    book = entered([(1, 5, 0, 0)], DAY)
    book.post(LandedPost("events", 0, 2, {(SOURCE, 1800): Counts({"landed.event": 2})}))
    beyond = {"events": UnlandedTail({(SOURCE, 1800): 2}, {(SOURCE, 1800): Counts({"gap.corrupt": 1})})}
    waiting = {(SOURCE, 3600): Counts({"seen": 4, "accepted": 4})}
    part = balance(book.snapshot(), beyond, waiting, 1800)
    assert (part.unaccounted, part.pending, part.topics[0].fates) == (0, 6, {"landed.event": 2, "gap.corrupt": 1})


def audit_post(version: int, minute: int, attempts: int) -> AuditPost:
    return AuditPost("kafka", "shop", "1f", version, {("events", minute): Counts({"attempt": attempts})})


def audits(book: Book, within: int | range | None = None) -> list[int]:
    return [entry.counts["attempt"] for entry in audited(book.snapshot(), within)]


def test_counts_of_a_silent_auditor_are_rolled_up() -> None:
    book = Book()
    for minute in (60, 120, 3 * DAY):
        assert book.post(audit_post(1, minute, 5), bucket=3 * DAY)
    book.roll_up(3 * DAY)
    assert book.post(audit_post(2, 120, 7), bucket=3 * DAY), "it may count old messages now"
    book.roll_up(4 * DAY)
    (minutes_kept,) = book.snapshot().audits.values()
    assert sorted(minutes_kept) == [("events", 0), ("events", 3 * DAY)]
    assert (audits(book), audits(book, 7200)) == ([17], [12])


@pytest.mark.parametrize("rolled", [False, True])
def test_returning_auditor_adds_to_its_last_day_and_to_later_days(rolled: bool) -> None:
    book, last = Book(), 2 * DAY
    for minute in (60, last):
        book.post(audit_post(1, minute, 5), bucket=last)
    if rolled:
        book.roll_up(last + DAY)
    back = last + MIN_DETAIL_S + DAY
    assert not book.post(audit_post(2, 120, 7), bucket=back), "that day is closed"
    assert book.post(audit_post(2, last, 6), bucket=back)
    assert book.post(audit_post(2, back, 7), bucket=back)
    book.roll_up(last + DAY)
    assert audits(book) == [18]


def test_deliveries_of_handlers_are_rolled_up(tmp_path: Path) -> None:
    fates = {1800: Counts({"delivered": 3}), 3600: Counts({"delivered": 1}), DAY: Counts({"delivered": 2})}
    standing = HandlerDelivery("in", "mine", 6, fates, 0, 0, {}, True)
    accepted = {("in", 0): 4, ("in", DAY): 2}
    (day,) = routes(tmp_path, [standing], accepted, 3600, DAY)
    assert (day.accepted, day.delivered, day.unaccounted) == (4, 4, 0)
    (both,) = routes(tmp_path, [standing], accepted, minutes(7200), DAY)
    assert (both.delivered, both.unaccounted) == (6, 0)
    folded = replace(standing, fates={60 * n: Counts({"delivered": 1}) for n in range(MAX_BUCKETS)}, folded=0)
    assert routes(tmp_path, [folded], accepted, 3600, DAY) == [], "its oldest bucket has earlier days too"
