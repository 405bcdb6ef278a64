"""Offsets of delivered messages, compared with recordings and with simple sets and loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.errors import OffsetNotTracked
from penstock.kafka.large.safe_offsets import DeliveredOffsets, OffsetRuns, metadata_in, offset_in, wrap_metadata
from tests.kafka.kafka_vectors import KAFKA, TP, named, outcome, partition, plain


def _apply(tracker: DeliveredOffsets, op: dict[str, Any]) -> Any:
    if op["op"] == "clear":
        tracker.clear(partition(op["tp"]) if "tp" in op else None)
    elif op["op"] == "track":
        numbers = op["messageOffset"], op["safeOffset"], op["startingOffset"]
        tracker.track(partition(op["tp"]), *numbers, op["delivered"])
    else:
        tracker.leave_out(partition(op["tp"]), op["offset"])


def query(tracker: DeliveredOffsets, op: dict[str, Any]) -> dict[str, Any]:
    """Return the answers to a recorded query."""
    of, offset = partition(op["tp"]), op["offset"]
    return {
        "safeOffset": outcome(lambda: tracker.safe_offset(of, offset)),
        "startingOffset": outcome(lambda: tracker.starting_offset(of, offset)),
        "closestDeliveredUpTo": outcome(lambda: tracker.closest_delivered(of, offset)),
        "partitionSafeOffset": tracker.safe_offset(of),
        "delivered": tracker.delivered(of),
        "earliestTrackedOffset": tracker.earliest(of),
        "watermarkSpan": tracker.watermark_span(of),
    }


def recorded_answers(op: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded answers."""
    answers = {name: plain(value) for name, value in op.items() if name not in ("op", "tp", "offset")}
    return answers | {"watermarkSpan": answers.pop("offsetWatermarkSpan", answers.get("watermarkSpan"))}


@pytest.mark.parametrize("case", **named(KAFKA["offsetTracker"]))
def test_offsets_are_tracked_as_recorded(case: dict[str, Any]) -> None:
    tracker = DeliveredOffsets(case["maxMessagesToTrack"])
    for index, op in enumerate(case["ops"]):
        if op["op"] == "query":
            assert query(tracker, op) == recorded_answers(op), index
        else:
            _apply(tracker, op)


def test_unknown_offset_is_reported_with_the_tracked_range() -> None:
    tracker = DeliveredOffsets()
    tracker.leave_out(TP, 3)
    tracker.track(TP, 4, 3, 4)
    with pytest.raises(OffsetNotTracked) as caught:
        tracker.safe_offset(TP, 9)
    error = caught.value
    assert (str(error.partition), error.offset, error.first, error.last, error.safe) == ("topic-0", 9, 4, 4, 3)


class SimpleTracker:
    """A tracker of one partition with dictionaries and loops."""

    def __init__(self, most: int) -> None:
        self.most, self.safe, self.earliest, self.last = most, -1, -1, -1
        self.messages: dict[int, tuple[int, int]] = {}
        self.other: set[int] = set()

    def track(self, offset: int, safe: int, start: int, delivered: bool) -> None:
        self.earliest = offset if self.earliest < 0 else self.earliest
        self.safe, self.last = safe, offset if delivered else self.last
        if (start, safe) != (offset, offset + 1):
            self.messages[offset] = (safe, start)
        if len(self.messages) > self.most:
            oldest = next(iter(self.messages))
            del self.messages[oldest]
            self.earliest = oldest + 1

    def leave_out(self, offset: int) -> None:
        if self.earliest < 0:
            self.earliest = self.safe = offset
        self.other.add(offset)

    def closest(self, offset: int) -> Any:
        if self.last < 0:
            return None
        if not self.earliest <= offset <= self.last:
            return {"exception": "OffsetNotTrackedException"}
        while offset in self.other:
            offset -= 1
        return offset if offset >= self.earliest else None

    def both(self, offset: int) -> Any:
        if not self.earliest <= offset <= self.last or offset in self.other:
            return {"exception": "OffsetNotTrackedException"}
        return self.messages.get(offset, (offset + 1, offset))


STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["plain", "large", "segment", "left out"]), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS, st.integers(1, 6))
def test_tracked_offsets_equal_those_of_a_simple_tracker(steps: list[tuple[int, str, int]], most: int) -> None:
    ours, simple, offset = DeliveredOffsets(most), SimpleTracker(most), 0
    for gap, kind, back in steps:
        offset += gap
        start, safe = max(offset - back, 0), max(offset + 1 - back, 0)
        if kind == "segment":
            ours.leave_out(TP, offset)
            simple.leave_out(offset)
        else:
            tracked = (offset, offset + 1, offset) if kind == "plain" else (offset, safe, start)
            ours.track(TP, *tracked, kind != "left out")
            simple.track(*tracked, kind != "left out")
    assert ours.safe_offset(TP) == (simple.safe if steps else None)
    for asked_of in range(offset + 3):
        assert outcome(partial(ours.closest_delivered, TP, asked_of)) == simple.closest(asked_of)
        both = simple.both(asked_of)
        failed = isinstance(both, dict)
        if steps:
            assert outcome(partial(ours.safe_offset, TP, asked_of)) == (both if failed else both[0])
        if simple.last >= 0:
            assert outcome(partial(ours.starting_offset, TP, asked_of)) == (both if failed else both[1])


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(0, 60))
def test_runs_are_a_set(offsets: list[int], bound: int) -> None:
    runs, simple = OffsetRuns(), set(offsets)
    for offset in offsets:
        runs.add(offset)
    for check in (False, True):
        if check:
            runs.drop_below(bound)
            simple = {offset for offset in simple if offset >= bound}
        for offset in range(-1, 62):
            assert (offset in runs) == (offset in simple)
            assert runs.before(offset) == next(
                candidate for candidate in range(offset, -3, -1) if candidate not in simple
            )
            assert runs.after(offset) == next(candidate for candidate in range(offset, 70) if candidate not in simple)
        assert len(runs._starts) == sum(1 for offset in simple if offset - 1 not in simple)


@pytest.mark.survives("large messages", "flood")
def test_million_chunks_without_a_complete_message_take_no_memory() -> None:
    tracker = DeliveredOffsets()
    for offset in range(100_000):
        tracker.leave_out(TP, offset)
    assert tracker._partitions[TP].other._starts == [0]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30))
def test_run_is_tracked_like_single_messages(gaps: list[int]) -> None:
    at_once, singly = DeliveredOffsets(), DeliveredOffsets()
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    at_once.track_run(TP, offsets[0], offsets[-1])
    for offset in offsets:
        singly.track(TP, offset, offset + 1, offset)
    for offset in range(offsets[-1] + 3):
        for ask in ("safe_offset", "starting_offset", "closest_delivered"):
            answers = [
                outcome(lambda tracker=tracker, name=ask, position=offset: getattr(tracker, name)(TP, position))
                for tracker in (at_once, singly)
            ]
            assert answers[0] == answers[1]
    assert at_once.safe_offsets() == singly.safe_offsets()


WRAPPED = [case for case in KAFKA["wrappedMetadata"] if "wrapMetadata" not in case]


@pytest.mark.parametrize("case", WRAPPED, ids=lambda case: str(case["metadata"]))
def test_metadata_is_read_as_recorded(case: dict[str, Any]) -> None:
    assert offset_in(case["metadata"]) == case["offsetFromWrappedMetadata"]
    assert metadata_in(case["metadata"]) == case["metadataFromWrappedMetadata"]


@pytest.mark.parametrize("case", [case for case in KAFKA["wrappedMetadata"] if "wrapMetadata" in case])
def test_metadata_is_written_as_recorded(case: dict[str, Any]) -> None:
    decided = f"{case['offset']}," if case["wrapMetadata"] is None else case["result"]  # none is "", and no "null"
    assert wrap_metadata(case["offset"], case["wrapMetadata"]) == decided


@settings(max_examples=200)
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text())
def test_metadata_is_read_back_unchanged(offset: int, text: str) -> None:
    wrapped = wrap_metadata(offset, text)
    assert (offset_in(wrapped), metadata_in(wrapped)) == (offset, text)


@given(st.none() | st.text())
def test_any_metadata_is_accepted(text: str | None) -> None:
    offset = offset_in(text)
    assert offset is None or abs(offset) <= 1 << 63


@pytest.mark.parametrize(("text", "offset"), [("05,x", 5), (" 5,x", None), ("5", None), ("+5,", 5), ("--5,", None)])
def test_numbers_are_parsed_like_in_java(text: str, offset: int | None) -> None:
    assert offset_in(text) == offset
