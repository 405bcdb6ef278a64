"""Large messages put together from whole batches of records, also across micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.large.chunks import encode_chunk
from penstock.kafka.large.headers import (
    LARGE_MESSAGE,
    V3,
    LargeMessageHeader,
    encode_large_message_header,
    encode_long,
    message_key,
)
from penstock.kafka.large.safe_offsets import TopicAndPartition
from penstock.landing.from_kafka.range_assembler import Part, RangeAssembler, find_segments, part_of
from tests.landing.from_kafka.kafka_records import batch, record

ONE, TWO = UUID(int=1), UUID(int=2)


def segments(uuid: UUID, payload: bytes, size: int, *, in_header: bool = False, key: bytes | None = None) -> list[Any]:
    pieces = [payload[n : n + size] for n in range(0, len(payload), size)]
    found = []
    for number, piece in enumerate(pieces):
        header = LargeMessageHeader(V3 if in_header else 1, uuid, number, len(pieces), len(payload))
        value = piece if in_header else encode_chunk(uuid, number, len(pieces), len(payload), piece)
        headers = {"_t": encode_long(5), LARGE_MESSAGE: encode_large_message_header(header)}
        found.append(record(value, key or message_key(uuid), headers))
    return found


def _header(number: int, count: int, size: int) -> dict[str, bytes]:
    return {LARGE_MESSAGE: encode_large_message_header(LargeMessageHeader(V3, ONE, number, count, size))}


class Log:
    """A partition that can be read again."""

    def __init__(self, records: Sequence[dict[str, Any]], gap: int = 1000) -> None:
        self.records, self.gap, self.asked = records, gap, 0

    def look_back(
        self, place: TopicAndPartition, offset: int, wanted: Mapping[UUID, Collection[int]]
    ) -> Iterable[Part]:
        self.asked += 1
        begin = max(0, offset - self.gap)
        before = batch(self.records[begin:offset], begin)
        return [part_of(before, row, s) for row, s in find_segments(before).items() if s.message_id in wanted]

    def read(self, begin: int, end: int, size: int = 3) -> dict[int, bytes | None]:
        """The messages of a range, as a task gives them: payload by offset."""
        assembler = RangeAssembler(self.look_back, self.gap)
        parts = [batch(self.records[n : min(n + size, end)], n) for n in range(begin, end, size)]
        found = [rows for part in parts for rows in assembler.take(part)] + list(assembler.finish())
        offsets = [(row["offset"], row["payload"]) for rows in found for row in rows.to_pylist()]
        assert len(dict(offsets)) == len(offsets), "a message came twice"
        return dict(offsets)

    def batches(self, cuts: Sequence[int]) -> dict[int, bytes | None]:
        ends = [*sorted(set(cuts)), len(self.records)]
        all_of: dict[int, bytes | None] = {}
        for begin, end in zip([0, *ends], ends, strict=False):
            all_of |= self.read(begin, end)
        return all_of


def test_messages_of_two_producers_are_put_together_where_their_last_segment_is() -> None:
    a, b = segments(ONE, b"abcdef", 2), segments(TWO, b"vwxyz", 2, in_header=True, key=b"mine")
    log = Log([record(b"{}"), a[0], b[0], a[1], record(b"plain"), b[1], a[2], b[2]])
    assert log.batches([]) == {0: b"{}", 4: b"plain", 6: b"abcdef", 7: b"vwxyz"}
    assert log.asked == 0
    rows = [row for part in RangeAssembler(log.look_back, 10).take(batch(log.records)) for row in part.to_pylist()]
    assert {row["offset"]: row["key"] for row in rows} == {0: None, 4: None, 6: None, 7: b"mine"}


def test_a_message_cut_by_the_end_of_a_batch_is_read_back_for() -> None:
    log = Log([*segments(ONE, b"abcdef", 2), *segments(TWO, b"uvwxyz", 2)])
    assert log.batches([1, 4]) == {2: b"abcdef", 5: b"uvwxyz"}
    assert log.asked == 2


def test_what_spans_more_than_the_gap_expires_as_it_does_in_a_consumer() -> None:
    a = segments(ONE, b"abcd", 2)
    log = Log([a[0], *[record(b"x")] * 10, a[1]], gap=5)
    assert log.batches([]) == dict.fromkeys(range(1, 11), b"x")
    assert log.batches([6]) == dict.fromkeys(range(1, 11), b"x")


def test_a_message_cut_by_the_end_of_a_batch_is_whole_whatever_follows_it() -> None:
    a, b = segments(ONE, b"abcd", 2), segments(TWO, b"wxyz", 2)
    log = Log([*a, *[record(b"x")] * 10, *b], gap=5)
    assert log.batches([1]) == log.batches([]) == {1: b"abcd", **dict.fromkeys(range(2, 12), b"x"), 13: b"wxyz"}


def test_a_message_in_one_segment_is_a_message_even_when_it_is_empty_or_comes_again() -> None:
    empty, small = record(b"", headers=_header(0, 1, 0)), segments(TWO, b"ab", 2)[0]
    assert Log([empty, small, small]).batches([]) == {0: b"", 1: b"ab", 2: b"ab"}


def test_a_segment_that_contradicts_its_message_is_left_out() -> None:
    a = segments(ONE, b"abcdef", 2)
    other = record(b"zz", headers=_header(1, 4, 8))
    assert Log([a[0], other, *a[1:]]).batches([]) == {3: b"abcdef"}


def test_a_duplicate_of_a_segment_makes_no_second_message() -> None:
    a = segments(ONE, b"abcd", 2)
    log = Log([*a, a[1], a[0]])
    for cuts in ([], [3], [1, 2, 3]):
        assert log.batches(cuts) == {1: b"abcd"}


def test_what_only_looks_like_a_segment_is_a_message() -> None:
    broken = encode_chunk(ONE, 0, 2, 4, b"ab")[:-3] + b"zzzzz"
    for value in (b"", b"\x00" * 40, b"\xff" * 33, broken[:20], bytes(33)):
        assert list(Log([record(value)]).batches([]).values()) == [value]
    bad_header = record(b"x", headers={LARGE_MESSAGE: b"short"})
    assert Log([bad_header]).batches([]) == {0: b"x"}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_however_segments_are_mixed_and_batches_cut_each_message_comes_once(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=5))
    messages = {UUID(int=n + 1): bytes([65 + n]) * size for n, size in enumerate(sizes)}
    queues = [segments(uuid, payload, 3, in_header=uuid.int % 2 == 0) for uuid, payload in messages.items()]
    queues.append([record(b"plain")] * data.draw(st.integers(0, 4)))
    records = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        records.append(queue.pop(0))
    cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=4))
    found = Log(records).batches(cuts)
    assert sorted(filter(None, found.values())) == sorted(
        [*messages.values(), *[r["value"] for r in records if r["value"] == b"plain"]]
    )


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=10))
def test_any_bytes_are_messages_or_segments_and_never_an_error(values: list[bytes | None]) -> None:
    log = Log([record(value, headers={LARGE_MESSAGE: value or b""}) for value in values])
    assert set(log.batches([])) <= set(range(len(values)))
