"""The balance over time."""

from __future__ import annotations

from penstock.counts import Counts
from penstock.ledger.balance import UnlandedTail
from penstock.ledger.book.book_pages import BookPages, TopicFates
from penstock.ledger.book.bucket_tables import CountTable, RowTable
from penstock.ledger.time_series import document, series, whole_step

PAGES = BookPages(
    received=CountTable(
        {
            ("a", 60): Counts({"accepted": 5, "taken": 7, "refused.oversize": 1, "kernel_dropped": 2}),
            ("a", 120): Counts({"accepted": 3}),
            ("b", 120): Counts({"accepted": 4, "policy_drop.log": 1}),
        }
    ),
    landed={"events": TopicFates(8, 0, CountTable({("a", 60): Counts({"landed.event": 4, "duplicate": 1})}))},
)
BEYOND = {"events": UnlandedTail({("a", 120): 3, ("b", 120): 1}, {("b", 120): Counts({"gap.corrupt": 1})})}
IN_BUFFER = {("b", 180): Counts({"accepted": 2})}


def test_each_stretch_has_its_accepted_messages_and_their_fates() -> None:
    stretches = series(PAGES, BEYOND, IN_BUFFER, 0, 60)
    assert {bucket: counts.pruned() for bucket, counts in stretches.items()} == {
        60: {"accepted": 5, "refused.oversize": 1, "kernel_dropped": 2, "landed.event": 4, "duplicate": 1},
        120: {"accepted": 7, "policy_drop.log": 1, "gap.corrupt": 1, "pending": 4},
        180: {"accepted": 2, "pending": 2},
    }


def test_stretches_have_the_requested_begin_and_length() -> None:
    stretches = series(PAGES, BEYOND, IN_BUFFER, 120, 240)
    assert {bucket: counts["accepted"] for bucket, counts in stretches.items()} == {0: 9}
    assert document(stretches, 240)["series"][0]["bucket"] == 0


def test_step_is_a_multiple_of_a_minute() -> None:
    assert [whole_step(step) for step in (0, 1, 60, 119, 120, 3601)] == [60, 60, 60, 60, 120, 3600]


def test_topic_without_a_pipeline_ends_in_the_log() -> None:
    pages = BookPages(logged={"events": RowTable({("a", 60): 3})}, landed={})
    assert series(pages, {}, {}, 0, 60)[60] == {"logged": 3}
