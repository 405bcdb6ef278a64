"""Completeness of the tables over time."""

from __future__ import annotations

from collections.abc import ItemsView

from penstock.counts import Counts
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book import TierCounts, TopicFates
from penstock.ledger.watermarks import Watermark, watermarks

NOW = 10_000.0
PRESENT = 9960


def pages(**received: int) -> TierCounts:
    return TierCounts(
        received={("in", 60): Counts({"accepted": 100, **received}), ("in", 120): Counts({"accepted": 10})},
        logged={"t": {("in", 60): 100, ("in", 120): 10}},
        ends={"t": 110},
        landed={
            "t": TopicFates(110, 0, {("in", 60): Counts({"landed.event": 90}), ("in", 120): Counts({"duplicate": 10})})
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
    lossy.logged["other"] = {("in", 60): 110}
    assert watermarks(lossy, {}, {}, NOW)[0].share == round(90 / 95, 6)


class Rows(dict[tuple[str, int], int]):
    """Rows that count how often they were read."""

    read = 0

    def items(self) -> ItemsView[tuple[str, int], int]:
        Rows.read += 1
        return super().items()


def test_number_of_topics_does_not_change_the_reads_of_a_topic() -> None:
    for topics in (2, 200):
        many = pages(kernel_dropped=10)
        many.logged = {f"t{number}": Rows(many.logged["t"]) for number in range(topics)}
        many.landed = {f"t{number}": many.landed["t"].copy() for number in range(topics)}
        Rows.read = 0
        assert len(watermarks(many, {}, {}, NOW)) == topics
        assert Rows.read <= 3 * topics


def test_quarantined_rows_are_missing_events() -> None:
    bad = pages()
    bad.landed["t"].counts["in", 60] |= Counts({"quarantined.bad_json": 10, "landed.message": 5})
    shares = {mark.table: mark.share for mark in watermarks(bad, {}, {}, NOW)}
    assert shares == {"events": 0.9, "messages": 1.0}


def test_deleted_and_dropped_rows_are_not_missing() -> None:
    lossy = pages(kernel_dropped=10)
    lossy.landed["t"].counts["in", 60] = Counts({"landed.event": 9, "deleted.retention": 71, "transformed.dropped": 10})
    shares = {mark.table: (mark.landed, mark.share) for mark in watermarks(lossy, {}, {}, NOW)}
    assert shares["events"] == (9, 0.9)
    lossy.landed["t"].counts["in", 60] = Counts({"deleted.asked": 90})
    assert {mark.table: mark.landed for mark in watermarks(lossy, {}, {}, NOW)}["events"] == 0
