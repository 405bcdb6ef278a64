"""Records of Kafka as rows: large messages put together from whole batches, also across micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.large.headers import (
    LARGE_MESSAGE,
    V3,
    LargeMessageHeader,
    encode_large_message_header,
    encode_long,
    message_key,
)
from penstock.kafka.large.segments import encode_segment
from penstock.landing.from_kafka.rows import RECORD, ROW, Assembler, Open, Part, Place, find_segments, part_of, rows_of

AT = datetime(2026, 1, 1, 12, 0, 59, tzinfo=UTC)
ONE, TWO = UUID(int=1), UUID(int=2)


def record(value: bytes | None, key: bytes | None = None, headers: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    named = None if headers is None else [{"key": k, "value": v} for k, v in headers.items()]
    return {"topic": "t", "partition": 0, "timestamp": AT, "key": key, "value": value, "headers": named}


def segments(uuid: UUID, payload: bytes, size: int, *, in_header: bool = False, key: bytes | None = None) -> list[Any]:
    pieces = [payload[n : n + size] for n in range(0, len(payload), size)]
    found = []
    for number, piece in enumerate(pieces):
        header = LargeMessageHeader(V3 if in_header else 1, uuid, number, len(pieces), len(payload))
        value = piece if in_header else encode_segment(uuid, number, len(pieces), len(payload), piece)
        headers = {"_t": encode_long(5), LARGE_MESSAGE: encode_large_message_header(header)}
        found.append(record(value, key or message_key(uuid), headers))
    return found


def batch(records: Sequence[dict[str, Any]], begin: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**r, "offset": begin + n} for n, r in enumerate(records)], schema=RECORD)


class Log:
    """A partition that can be read again."""

    def __init__(self, records: Sequence[dict[str, Any]], gap: int = 1000) -> None:
        self.records, self.gap, self.asked = records, gap, 0

    def look_back(self, place: Place, offset: int, wanted: Mapping[UUID, Open]) -> Iterable[Part]:
        self.asked += 1
        begin = max(0, offset - self.gap)
        before = batch(self.records[begin:offset], begin)
        return [part_of(before, row, s) for row, s in find_segments(before).items() if s.message_id in wanted]

    def read(self, begin: int, end: int, size: int = 3) -> dict[int, bytes | None]:
        """The messages of a range, as a task gives them: payload by offset."""
        assembler = Assembler(self.look_back, self.gap)
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


def test_ordinary_records_are_rows_as_they_are() -> None:
    (rows,) = Assembler(Log([]).look_back, 10).take(
        batch([record(b"x", b"k", {"a": b"1", "_t": b"12345678"}), record(None)])
    )
    assert rows.schema.equals(ROW)
    first, second = rows.to_pylist()
    assert (first["payload"], first["key"], first["annotations"], first["codec"]) == (b"x", b"k", [("a", "1")], None)
    assert (first["source"], first["bucket"], first["received"]) == ("kafka", AT.replace(second=0), AT)
    assert (second["payload"], second["annotations"]) == (None, None)


def test_the_codec_travels_in_a_header_and_odd_headers_do_no_harm() -> None:
    odd = {
        "headers": [{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}, {"key": "codec", "value": b"syslog"}]
    }
    (row,) = rows_of(batch([{**record(b"<1>x"), **odd}])).to_pylist()
    assert (row["codec"], row["annotations"]) == ("syslog", [("a", None)])


def test_messages_of_two_producers_are_put_together_where_their_last_segment_is() -> None:
    a, b = segments(ONE, b"abcdef", 2), segments(TWO, b"vwxyz", 2, in_header=True, key=b"mine")
    log = Log([record(b"{}"), a[0], b[0], a[1], record(b"plain"), b[1], a[2], b[2]])
    assert log.batches([]) == {0: b"{}", 4: b"plain", 6: b"abcdef", 7: b"vwxyz"}
    assert log.asked == 0
    rows = [row for part in Assembler(log.look_back, 10).take(batch(log.records)) for row in part.to_pylist()]
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


def test_a_duplicate_of_a_segment_makes_no_second_message() -> None:
    a = segments(ONE, b"abcd", 2)
    log = Log([*a, a[1], a[0]])
    for cuts in ([], [3], [1, 2, 3]):
        assert log.batches(cuts) == {1: b"abcd"}


def test_what_only_looks_like_a_segment_is_a_message() -> None:
    broken = encode_segment(ONE, 0, 2, 4, b"ab")[:-3] + b"zzzzz"
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
