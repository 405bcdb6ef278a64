"""The table of incomplete messages and the memory of finished ones."""

from __future__ import annotations

import mmh3
import pytest

from penstock.counts import Counts
from penstock.wire.plog import reassembly
from penstock.wire.plog.reassembly import Fate, FinishedMessages, Header, Reassembly
from penstock.wire.plog.statistics import Statistics

KEY = (1, 2, 3)


class Bench:
    """A table with counts and a clock."""

    def __init__(self, max_size: int = 1000) -> None:
        self.statistics = Statistics()
        self.table = Reassembly(max_size, 10.0, self.statistics)
        self.counts = Counts()
        self.now = 0.0

    def add(
        self, payload: bytes, index: int, number: int = 3, size: int = 10, hashed: int | None = None
    ) -> bytes | None:
        header = header_of(payload, size, hashed)
        part = payload[index * size : (index + 1) * size]
        _, message = self.table.add((1, 2, number), header, index, part, b"", self.now, self.counts)
        return message and message.payload


def header_of(payload: bytes, size: int = 10, hashed: int | None = None) -> Header:
    return Header(
        -(-len(payload) // size), size, len(payload), mmh3.hash(payload, 0, False) if hashed is None else hashed
    )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_message_is_complete_with_its_last_fragment(bench: Bench) -> None:
    payload = bytes(range(25))
    assert [bench.add(payload, index) for index in (2, 0, 1)] == [None, None, payload]
    assert bench.counts.pruned() == {"seen": 1, "accepted": 1, "fragment.used": 3}
    assert (bench.table.open_messages, bench.table.open_fragments, bench.table.held_bytes) == (0, 0, 0)


def test_held_bytes_count_arrived_bytes_only() -> None:
    bench = Bench(1 << 31)
    header = Header(65_535, 1, (1 << 31) - 1, 0)
    bench.table.add(KEY, header, 7, b"x", b"tag", 0.0, bench.counts)
    assert (bench.table.held_bytes, bench.table.open_fragments, bench.table.open_messages) == (4, 1, 1)


def test_late_fragments_of_a_finished_message_are_duplicates_until_they_are_forgotten(bench: Bench) -> None:
    payload = b"x" * 15
    for index in (0, 1, 1):
        bench.add(payload, index)
    assert bench.counts["fragment.duplicate"] == 1
    bench.table.expire(10.0, bench.counts)
    bench.add(payload, 1)
    assert (bench.counts["seen"], bench.counts["open"]) == (2, 1)


def test_late_fragments_of_a_bad_message_are_discarded(bench: Bench) -> None:
    for index in (0, 1, 0):
        assert bench.add(b"x" * 15, index, hashed=1) is None
    assert bench.counts.pruned() == {"seen": 1, "bad_checksum": 1, "fragment.discarded": 3}


def test_an_id_that_comes_again_with_another_header_is_another_message(bench: Bench) -> None:
    for payload in (b"x" * 15, b"y" * 15):
        assert [bench.add(payload, index) for index in (0, 1)] == [None, payload]
    assert (bench.counts["seen"], bench.counts["accepted"]) == (2, 2)


@pytest.mark.parametrize("change", ["fragments", "size", "total", "hash"])
def test_all_fields_must_match_the_first_fragment(bench: Bench, change: str) -> None:
    header = header_of(b"x" * 25)
    changed = header._replace(**{change: getattr(header, change) + 1})
    bench.table.add(KEY, header, 0, b"x" * 10, b"", 0.0, bench.counts)
    bench.table.add(KEY, changed, 1, b"x" * 10, b"", 0.0, bench.counts)
    assert bench.counts.pruned() == {"seen": 1, "open": 1, "fragment.open": 1, "fragment.invalid": 1}


def test_a_message_expires_a_while_after_it_was_touched_last(bench: Bench) -> None:
    payload = b"x" * 35
    bench.add(payload, 0)
    bench.now = 9.0
    bench.add(payload, 1)
    bench.table.expire(18.9, bench.counts)
    assert bench.table.open_messages == 1
    bench.table.expire(19.0, bench.counts)
    bench.add(payload, 2)
    assert bench.counts.pruned() == {"seen": 1, "incomplete.expired": 1, "fragment.discarded": 3}
    assert bench.table.held_bytes == 0


def test_table_is_bounded_by_announced_sizes_and_evicts_the_oldest(bench: Bench) -> None:
    for number in (1, 2, 3):
        bench.add(b"%d" % number * 400, 0, number)
        bench.add(b"1" * 400, 1, 1)
    assert bench.counts["incomplete.evicted"] == 1
    assert bench.table.find_tracked([(1, 2, 2), (1, 2, 9)]) == {(1, 2, 2)}
    bench.add(b"2" * 400, 1, 2)
    assert bench.counts["fragment.discarded"] == 2
    assert (bench.table.open_messages, bench.counts["open"]) == (2, 2)


def test_the_largest_message_that_is_allowed_completes(bench: Bench) -> None:
    payload = b"x" * 1000
    assert [bench.add(payload, index) for index in range(100)][-1] == payload


def test_tiny_fragments_are_bounded_by_their_number(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassembly, "MAX_FRAGMENTS", 50)
    for number in range(200):
        bench.table.add((1, 2, number), Header(9, 0, 0, 0), 0, b"", b"", 0.0, bench.counts)
    assert (bench.table.open_fragments, bench.counts["incomplete.evicted"]) == (50, 150)


def test_a_message_beyond_the_bound_is_refused_once(bench: Bench) -> None:
    header = header_of(b"x" * 2000)
    assert [bench.table.refuse(KEY, header, 0.0, bench.counts) for _ in range(3)] == [True, False, False]
    assert bench.counts.pruned() == {"seen": 1, "refused.oversize": 1, "fragment.discarded": 3}


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassembly, "MAX_REMEMBERED", 10)
    memory, header = FinishedMessages(10.0), header_of(b"x" * 20)
    for number in range(25):
        memory.remember((0, 0, number), header, Fate.GOOD, 0.0)
    assert len(memory) == 10
    assert (memory.fate((0, 0, 14), header), memory.fate((0, 0, 15), header)) == (None, Fate.GOOD)
    memory.expire(10.0)
    assert len(memory) == 0


def test_second_copy_of_a_fragment_replaces_the_first_as_in_plog(bench: Bench) -> None:
    payload = b"x" * 25
    header = header_of(payload)
    for part, tags in ((b"y" * 10, b"a"), (b"x" * 10, b"b")):
        bench.table.add(KEY, header, 0, part, tags, 0.0, bench.counts)
    bench.table.add(KEY, header, 1, b"x" * 10, b"", 0.0, bench.counts)
    _, message = bench.table.add(KEY, header, 2, b"x" * 5, b"", 0.0, bench.counts)
    assert message == (payload, b"b")
    assert bench.counts.pruned() == {"seen": 1, "accepted": 1, "fragment.used": 3, "fragment.duplicate": 1}


def test_an_invalid_fragment_is_classed_by_the_message_it_claims_to_belong_to(bench: Bench) -> None:
    bench.add(b"x" * 15, 0)
    bench.table.add((1, 2, 3), Header(9, 10, 85, 0), 1, b"x" * 10, b"", 0.0, bench.counts)
    bench.table.reject((1, 2, 3), Header(9, 10, 85, 0), 1, bench.counts)
    assert bench.statistics.as_dict()["v0_invalid_fragments"][1] == [0, 2]


@pytest.mark.parametrize(("before", "run"), [((), (0, 1)), ((2,), (0, 1)), ((1,), (0, 2)), ((), (2, 1, 0))])
def test_run_of_fragments_equals_single_fragments(before: tuple[int, ...], run: tuple[int, ...]) -> None:
    payload = bytes(range(25))
    header = header_of(payload)
    of_one, many = Bench(), Bench()
    for bench in (of_one, many):
        for index in before:
            bench.add(payload, index)
    single = [of_one.add(payload, index) for index in run]
    of_run = many.table.add_run(KEY, header, run, [payload[i * 10 : i * 10 + 10] for i in run], 0.0, many.counts)
    assert of_run is not None
    assert of_run[0] is (not before)
    assert (of_run[1].payload if of_run[1] else None) == single[-1]
    assert many.counts == of_one.counts
    assert many.statistics.as_dict() == of_one.statistics.as_dict()
    assert many.table.held_bytes == of_one.table.held_bytes


@pytest.mark.parametrize("run", [(0, 0), (0, 1, 2, 3), (1, 2)], ids=["twice", "too many", "there already"])
def test_fragments_that_are_no_plain_run_are_not_added(bench: Bench, run: tuple[int, ...]) -> None:
    payload = bytes(range(25))
    bench.add(payload, 2)
    before = (bench.counts.copy(), bench.statistics.as_dict())
    assert bench.table.add_run(KEY, header_of(payload), run, [b"x" * 10] * len(run), 0.0, bench.counts) is None
    assert (bench.counts, bench.statistics.as_dict()) == before
