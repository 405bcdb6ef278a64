"""Completeness of the tables over time."""

from __future__ import annotations

from penstock.counts import Counts
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book.book_pages import BookPages, TopicFates
from penstock.ledger.book.bucket_tables import ROWS, CountTable, RowTable, SourceColumns
from penstock.ledger.watermarks import Watermark, watermarks

NOW = 10_000.0
PRESENT = 9960


def pages(**received: int) -> BookPages:
    return BookPages(
        received=CountTable({("in", 60): Counts({"accepted": 100, **received}), ("in", 120): Counts({"accepted": 10})}),
        logged={"t": RowTable({("in", 60): 100, ("in", 120): 10})},
        ends={"t": 110},
        landed={
            "t": TopicFates(
                110, 0, CountTable({("in", 60): Counts({"landed.event": 90}), ("in", 120): Counts({"duplicate": 10})})
            )
        },
    )


def test_landed_topic_is_complete_up_to_the_current_minute() -> None:
    assert watermarks(pages(), {"t": UnlandedTail()}, {}, NOW) == [Watermark("events", "t", PRESENT, 90, 1.0)]


def test_minute_stays_open_for_some_seconds_after_its_end() -> None:
    assert [mark.until for mark in watermarks(pages(), {}, {}, 9961.0)] == [9900]


def test_pending_rows_hold_the_watermark() -> None:
    waiting = watermarks(pages(), {"t": UnlandedTail({("in", 120): 1})}, {}, NOW)
    assert [mark.until for mark in waiting] == [120]
    buffered = watermarks(pages(), {"t": UnlandedTail()}, {("in", 180): Counts({"accepted": 3})}, NOW)
    assert [mark.until for mark in buffered] == [180]
    elsewhere = watermarks(pages(), {"t": UnlandedTail()}, {("other", 180): Counts({"accepted": 3})}, NOW)
    assert [mark.until for mark in elsewhere] == [PRESENT]


def test_losses_before_the_log_are_missing() -> None:
    lossy = pages(**{"kernel_dropped": 6, "incomplete.expired": 4})
    assert watermarks(lossy, {}, {}, NOW) == [Watermark("events", "t", PRESENT, 90, 0.9)]


def test_losses_of_a_source_are_divided_over_its_topics() -> None:
    lossy = pages(kernel_dropped=10)
    lossy.logged["other"] = RowTable({("in", 60): 110})
    assert watermarks(lossy, {}, {}, NOW)[0].share == round(90 / 95, 6)


class CountedColumns(SourceColumns):
    """Columns that count how often they were read."""

    reads = 0

    def span(self, within: range | None) -> tuple[int, int]:
        CountedColumns.reads += 1
        return super().span(within)


def test_number_of_topics_does_not_change_the_reads_of_a_topic() -> None:
    for topics in (2, 200):
        many = pages(kernel_dropped=10)
        columns = CountedColumns.from_lists([60, 120], {ROWS: [100, 10]}, {})
        many.logged = {f"t{number}": RowTable() for number in range(topics)}
        for table in many.logged.values():
            table.load("in", columns)
        many.landed = {f"t{number}": many.landed["t"].copy() for number in range(topics)}
        CountedColumns.reads = 0
        assert len(watermarks(many, {}, {}, NOW)) == topics
        assert topics <= CountedColumns.reads <= 3 * topics


def test_quarantined_rows_are_missing_events() -> None:
    bad = pages()
    bad.landed["t"].counts.add(("in", 60), Counts({"quarantined.bad_json": 10, "landed.message": 5}))
    shares = {mark.table: mark.share for mark in watermarks(bad, {}, {}, NOW)}
    assert shares == {"events": 0.9, "messages": 1.0}


def test_deletion_before_the_landing_of_its_rows_has_no_watermark() -> None:
    early = pages()
    early.landed["t"] = TopicFates(0, 0, CountTable({("in", 60): Counts({"landed.event": -3, "deleted.asked": 3})}))
    assert watermarks(early, {}, {}, NOW) == []


def test_deleted_and_dropped_rows_are_not_missing() -> None:
    lossy = pages(kernel_dropped=10)
    fates = Counts({"landed.event": 9, "deleted.retention": 71, "transformed.dropped": 10})
    lossy.landed["t"].counts = CountTable({("in", 60): fates})
    shares = {mark.table: (mark.landed, mark.share) for mark in watermarks(lossy, {}, {}, NOW)}
    assert shares["events"] == (9, 0.9)
    lossy.landed["t"].counts = CountTable({("in", 60): Counts({"deleted.asked": 90})})
    assert {mark.table: mark.landed for mark in watermarks(lossy, {}, {}, NOW)}["events"] == 0
