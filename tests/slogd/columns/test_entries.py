from __future__ import annotations

import pyarrow as pa
from google.protobuf.any_pb2 import Any as ProtobufAny
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import ANNOTATIONS, SCHEMA, body
from penstock.slogd.columns.entries import (
    ENTRY_OVERHEAD,
    annotation_dicts,
    lengths,
    non_null_rows,
    rows,
    sizes,
    to_body,
    to_response,
    to_rows,
)
from penstock.slogd.slogd_pb2 import GetLogsResponse, LogEntry

START = 1_700_000_000_000_000

text = st.text(st.characters(codec="utf-8"), max_size=20)


def _entry(payload: bytes | ProtobufAny | None, annotations: dict[str, str], key: bytes | None) -> LogEntry:
    entry = LogEntry(annotations=annotations, key=key)
    if isinstance(payload, ProtobufAny):
        entry.protobuf.CopyFrom(payload)
    elif payload is not None:
        entry.raw_bytes = payload
    return entry


payloads = st.none() | st.binary(max_size=50) | st.builds(ProtobufAny, type_url=text, value=st.binary(max_size=20))
entries = st.builds(_entry, payloads, st.dictionaries(text, text, max_size=3), st.none() | st.binary(max_size=9))


def stored(part: pa.RecordBatch, first: int = 0) -> pa.RecordBatch:
    """Return the rows as the log returns them."""
    count = part.num_rows
    offsets = pa.array(range(first, first + count), pa.int64())
    stamps = pa.array([START + first + i for i in range(count)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([offsets, stamps, *part.columns], schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> list[LogEntry]:
    """The messages of a batch."""
    return list(to_response([batch]).logs)


@given(st.lists(entries, max_size=8))
def test_entries_survive_the_round_trip(sent: list[LogEntry]) -> None:
    received = from_batch(stored(to_body(sent)))
    for number, (entry, original) in enumerate(zip(received, sent, strict=True)):
        assert entry.offset == number
        assert entry.timestamp.ToMicroseconds() == START + number
        entry.ClearField("offset")
        entry.ClearField("timestamp")
        assert entry == original


def test_annotations_have_one_order_in_all_processes() -> None:
    """The checksum of a producer's number must be the same after a restart of the daemon."""
    names = [f"name {number}" for number in range(50)]
    (row,) = to_rows([LogEntry(annotations=dict.fromkeys(reversed(names), ""))])
    assert [name for name, _ in row[3] or ()] == sorted(names)


@given(st.lists(entries, max_size=8), st.data())
def test_slice_of_a_batch_has_its_own_rows_and_sizes(sent: list[LogEntry], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(sent)))
    length = data.draw(st.integers(0, len(sent) - begin))
    batch = stored(to_body(sent))
    assert from_batch(batch.slice(begin, length)) == from_batch(batch)[begin : begin + length]
    assert sizes(batch.slice(begin, length)).tolist() == sizes(batch)[begin : begin + length].tolist()


@given(st.lists(entries, min_size=1, max_size=8))
def test_sizes_are_upper_bounds(sent: list[LogEntry]) -> None:
    batch = stored(to_body(sent), first=2**40)
    for entry, size in zip(from_batch(batch), sizes(batch), strict=True):
        assert GetLogsResponse(logs=[entry]).ByteSize() <= size


def test_to_body_ignores_offset_and_timestamp_of_the_client() -> None:
    sent = LogEntry(offset=77, raw_bytes=b"x")
    sent.timestamp.FromSeconds(5)
    assert to_body([sent]).column_names == ["key", "payload", "type_url", "annotations"]


def test_entry_without_payload_has_none_after_the_round_trip() -> None:
    received = from_batch(stored(to_body([LogEntry(), LogEntry(raw_bytes=b"")])))
    assert [entry.WhichOneof("entry") for entry in received] == [None, "raw_bytes"]


def test_null_annotation_is_read_as_empty_text() -> None:
    column = pa.array([[("a", None), ("b", "1")], None, []], ANNOTATIONS)
    assert annotation_dicts(column) == [{"a": "", "b": "1"}, None, None]


def test_rows_are_plain_values() -> None:
    (row,) = rows(stored(body([b"x"], keys=pa.array([b"k"]))))
    assert (row.offset, row.timestamp, row.key, row.payload, row.type_url) == (0, START, b"k", b"x", None)


def test_size_of_an_empty_entry_is_the_overhead() -> None:
    assert sizes(stored(body([None]))).tolist() == [ENTRY_OVERHEAD]


@given(st.lists(st.none() | st.binary(max_size=5), max_size=9), st.data())
def test_lengths_count_bytes_and_0_for_null(values: list[bytes | None], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(values)))
    column = pa.array(values, pa.binary()).slice(begin)
    assert lengths(column).tolist() == [len(value or b"") for value in values[begin:]]
    assert non_null_rows(column).tolist() == [value is not None for value in values[begin:]]


def test_single_plain_entry_equals_one_of_many() -> None:
    (single,) = to_body([LogEntry(raw_bytes=b"x")]).to_pylist()
    first, _ = to_body([LogEntry(raw_bytes=b"x"), LogEntry()]).to_pylist()
    assert single == first
