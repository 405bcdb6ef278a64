"""Tests of the assembly of large messages from batches of records, also across micro-batches."""

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
from penstock.landing.from_kafka.range_assembler import ChunkRecord, RangeAssembler, chunk_of_row, find_chunks
from tests.landing.from_kafka.kafka_records import batch, record

FIRST_ID, SECOND_ID = UUID(int=1), UUID(int=2)


def chunk_records(
    uuid: UUID, payload: bytes, size: int, *, in_header: bool = False, key: bytes | None = None
) -> list[Any]:
    pieces = [payload[n : n + size] for n in range(0, len(payload), size)]
    records = []
    for number, piece in enumerate(pieces):
        header = LargeMessageHeader(V3 if in_header else 1, uuid, number, len(pieces), len(payload))
        value = piece if in_header else encode_chunk(uuid, number, len(pieces), len(payload), piece)
        headers = {"_t": encode_long(5), LARGE_MESSAGE: encode_large_message_header(header)}
        records.append(record(value, key or message_key(uuid), headers))
    return records


def _header(number: int, count: int, size: int) -> dict[str, bytes]:
    return {LARGE_MESSAGE: encode_large_message_header(LargeMessageHeader(V3, FIRST_ID, number, count, size))}


class Partition:
    """A partition that can be read again."""

    def __init__(self, records: Sequence[dict[str, Any]], gap: int = 1000) -> None:
        self.records, self.gap, self.look_back_calls = records, gap, 0

    def look_back(
        self, partition: TopicAndPartition, offset: int, wanted: Mapping[UUID, Collection[int]]
    ) -> Iterable[ChunkRecord]:
        self.look_back_calls += 1
        begin = max(0, offset - self.gap)
        earlier_records = batch(self.records[begin:offset], begin)
        return [
            chunk_of_row(earlier_records, row, s)
            for row, s in find_chunks(earlier_records).items()
            if s.message_id in wanted
        ]

    def read(self, begin: int, end: int, size: int = 3) -> dict[int, bytes | None]:
        """Return the messages of a range by offset, read as one task."""
        assembler = RangeAssembler(self.look_back, self.gap)
        parts = [batch(self.records[n : min(n + size, end)], n) for n in range(begin, end, size)]
        batches = [rows for part in parts for rows in assembler.add_batch(part)] + list(assembler.finish())
        offsets = [(row["offset"], row["payload"]) for rows in batches for row in rows.to_pylist()]
        assert len(dict(offsets)) == len(offsets), "a message came twice"
        return dict(offsets)

    def read_in_batches(self, cuts: Sequence[int]) -> dict[int, bytes | None]:
        ends = [*sorted(set(cuts)), len(self.records)]
        messages: dict[int, bytes | None] = {}
        for begin, end in zip([0, *ends], ends, strict=False):
            messages |= self.read(begin, end)
        return messages


def test_interleaved_messages_are_assembled_at_their_last_chunk() -> None:
    a, b = chunk_records(FIRST_ID, b"abcdef", 2), chunk_records(SECOND_ID, b"vwxyz", 2, in_header=True, key=b"mine")
    partition = Partition([record(b"{}"), a[0], b[0], a[1], record(b"plain"), b[1], a[2], b[2]])
    assert partition.read_in_batches([]) == {0: b"{}", 4: b"plain", 6: b"abcdef", 7: b"vwxyz"}
    assert partition.look_back_calls == 0
    rows = [
        row
        for part in RangeAssembler(partition.look_back, 10).add_batch(batch(partition.records))
        for row in part.to_pylist()
    ]
    assert {row["offset"]: row["key"] for row in rows} == {0: None, 4: None, 6: None, 7: b"mine"}


def test_finish_reads_earlier_chunks_of_message_cut_by_batch_end() -> None:
    partition = Partition([*chunk_records(FIRST_ID, b"abcdef", 2), *chunk_records(SECOND_ID, b"uvwxyz", 2)])
    assert partition.read_in_batches([1, 4]) == {2: b"abcdef", 5: b"uvwxyz"}
    assert partition.look_back_calls == 2


def test_message_longer_than_gap_expires_as_in_consumer() -> None:
    a = chunk_records(FIRST_ID, b"abcd", 2)
    partition = Partition([a[0], *[record(b"x")] * 10, a[1]], gap=5)
    assert partition.read_in_batches([]) == dict.fromkeys(range(1, 11), b"x")
    assert partition.read_in_batches([6]) == dict.fromkeys(range(1, 11), b"x")


def test_message_cut_by_batch_end_is_assembled_despite_later_records() -> None:
    a, b = chunk_records(FIRST_ID, b"abcd", 2), chunk_records(SECOND_ID, b"wxyz", 2)
    partition = Partition([*a, *[record(b"x")] * 10, *b], gap=5)
    assert (
        partition.read_in_batches([1])
        == partition.read_in_batches([])
        == {1: b"abcd", **dict.fromkeys(range(2, 12), b"x"), 13: b"wxyz"}
    )


def test_single_chunk_message_lands_if_empty_or_repeated() -> None:
    empty, small = record(b"", headers=_header(0, 1, 0)), chunk_records(SECOND_ID, b"ab", 2)[0]
    assert Partition([empty, small, small]).read_in_batches([]) == {0: b"", 1: b"ab", 2: b"ab"}


def test_chunk_that_contradicts_its_message_is_skipped() -> None:
    a = chunk_records(FIRST_ID, b"abcdef", 2)
    other = record(b"zz", headers=_header(1, 4, 8))
    assert Partition([a[0], other, *a[1:]]).read_in_batches([]) == {3: b"abcdef"}


def test_repeated_chunk_makes_no_second_message() -> None:
    a = chunk_records(FIRST_ID, b"abcd", 2)
    partition = Partition([*a, a[1], a[0]])
    for cuts in ([], [3], [1, 2, 3]):
        assert partition.read_in_batches(cuts) == {1: b"abcd"}


def test_value_with_invalid_chunk_header_is_message() -> None:
    broken = encode_chunk(FIRST_ID, 0, 2, 4, b"ab")[:-3] + b"zzzzz"
    for value in (b"", b"\x00" * 40, b"\xff" * 33, broken[:20], bytes(33)):
        assert list(Partition([record(value)]).read_in_batches([]).values()) == [value]
    bad_header = record(b"x", headers={LARGE_MESSAGE: b"short"})
    assert Partition([bad_header]).read_in_batches([]) == {0: b"x"}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_each_message_comes_once_for_any_order_of_chunks_and_cuts(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=5))
    messages = {UUID(int=n + 1): bytes([65 + n]) * size for n, size in enumerate(sizes)}
    queues = [chunk_records(uuid, payload, 3, in_header=uuid.int % 2 == 0) for uuid, payload in messages.items()]
    queues.append([record(b"plain")] * data.draw(st.integers(0, 4)))
    records = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        records.append(queue.pop(0))
    cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=4))
    messages_read = Partition(records).read_in_batches(cuts)
    assert sorted(filter(None, messages_read.values())) == sorted(
        [*messages.values(), *[r["value"] for r in records if r["value"] == b"plain"]]
    )


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=10))
def test_any_bytes_are_accepted(values: list[bytes | None]) -> None:
    partition = Partition([record(value, headers={LARGE_MESSAGE: value or b""}) for value in values])
    assert set(partition.read_in_batches([])) <= set(range(len(values)))
