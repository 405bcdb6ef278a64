"""Batches as encapsulated messages survive a round trip, and anything else is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import records
from penstock.records import (
    BODY,
    EMPTY_BODY,
    SCHEMA,
    BadBatch,
    Rows,
    body,
    custom_metadata,
    decode,
    encode,
    encode_parts,
    read_document,
)

DOCUMENT = {"source": "events", "bucket": 60}


def annotated(rows: int) -> pa.RecordBatch:
    annotations = pa.array([[("tags", f"kt:{i}")] for i in range(rows)], BODY.field("annotations").type)
    return body([b"%d" % i for i in range(rows)], annotations=annotations)


@pytest.mark.parametrize("batch", [EMPTY_BODY, body([b"", None, b"x" * 5000]), annotated(1000)])
def test_batch_and_document_survive_a_round_trip(batch: pa.RecordBatch) -> None:
    data = encode(batch, DOCUMENT)
    assert len(data) % 8 == 0
    assert decode(data, BODY) == (batch, DOCUMENT)
    assert read_document(data) == DOCUMENT


@pytest.mark.parametrize("batch", [EMPTY_BODY, body([None, b"x" * 100_000]), annotated(1000), annotated(999)[7:800]])
def test_parts_equal_the_message_and_large_payloads_are_not_copied(batch: pa.RecordBatch) -> None:
    parts = encode_parts(batch, DOCUMENT, {b"x": b"y"})
    assert b"".join(parts) == bytes(encode(batch, DOCUMENT, {b"x": b"y"}))
    head = 8 + int.from_bytes(parts[0][4:8], "little")
    assert len(parts[0]) == head
    data = batch.column("payload").buffers()[2]
    within = data is not None and any(data.address <= pa.py_buffer(p).address < data.address + data.size for p in parts)
    assert within == (batch.num_rows > 256 or batch.nbytes > 100_000)


def test_schema_and_messages_form_an_arrow_stream() -> None:
    columns = [pa.array([7]), pa.array([1], SCHEMA.field("timestamp").type), *body([b"m"]).columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    stream = SCHEMA.serialize().to_pybytes() + bytes(encode(batch, DOCUMENT)) * 2
    assert pa.ipc.open_stream(stream).read_all().num_rows == 2


def test_extra_metadata_has_its_position() -> None:
    data = encode(body([b"m"]), DOCUMENT, {b"crc32c": b"00000000"})
    flatbuffer = memoryview(pa.ipc.read_message(data).metadata)
    position, value = custom_metadata(flatbuffer)[b"crc32c"]
    assert value == b"00000000"
    assert bytes(flatbuffer[position : position + 8]) == value


def test_message_without_document_is_refused() -> None:
    data = body([b"m"]).serialize()
    with pytest.raises(BadBatch):
        decode(data, BODY)
    with pytest.raises(BadBatch):
        read_document(data)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_raise_only_bad_batch(data: bytes) -> None:
    for read in (read_document, lambda d: decode(d, BODY)):
        with pytest.raises(BadBatch):
            read(data)


@given(st.data())
def test_damaged_head_raises_only_bad_batch(data: Any) -> None:
    good = bytearray(encode(body([b"m"]), DOCUMENT))
    head = int.from_bytes(good[4:8], "little") + 8
    position = data.draw(st.integers(0, head - 1))
    good[position] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    for changed in (bytes(good), cut):
        with contextlib.suppress(BadBatch):
            read_document(changed)


def test_concatenation_copies_only_several_batches() -> None:
    first, second = records.body([b"a"]), records.body([b"b", None])
    assert records.concatenated([first]) is first
    assert records.concatenated([first, second]).column("payload").to_pylist() == [b"a", b"b", None]


def test_binary_array_shares_memory() -> None:
    data = np.frombuffer(b"abcdef", np.uint8).copy()
    array = records.binary_array(np.array([0, 2, 2, 6], np.int32), data)
    data[0] = ord("x")
    assert array.to_pylist() == [b"xb", b"", b"cdef"]
    assert records.bounds(array.slice(1)).tolist() == [2, 2, 6]


def test_annotation_maps_have_the_pairs_between_offsets() -> None:
    maps = records.annotation_maps(np.array([0, 2, 2]), pa.array(["a", "b"]), pa.array(["1", None]))
    assert maps.to_pylist() == [[("a", "1"), ("b", None)], []]
    assert maps.type == records.ANNOTATIONS
    batch = records.body([b"x", b"y"], annotations=maps)
    assert records.annotation_column(batch).keys.to_pylist() == ["a", "b"]


def test_masked_numpy_entries_are_null() -> None:
    assert records.from_numpy(np.array([1, 2]), np.array([False, True])).to_pylist() == [1, None]


ROWS = Rows([(b"k", b"p", None, [("a", "ä")]), (None, None, "type", None), (None, b"", None, None)])


def test_rows_convert_to_the_same_batch() -> None:
    batch = ROWS.batch()
    batch.validate(full=True)
    assert batch.schema == records.BODY
    assert [tuple(row.values()) for row in batch.to_pylist()] == list(ROWS)
    assert (ROWS.num_rows, ROWS.size) == (3, len("k" + "p" + "a" + "ä" + "type"))
    assert Rows().batch() == records.EMPTY_BODY


def test_concatenation_keeps_the_order_of_rows_and_batches() -> None:
    first, batch = Rows(ROWS[:1]), Rows(ROWS[1:]).batch()
    joined = records.concatenated([first, first, batch, first])
    assert joined == Rows([*first, *first, *ROWS[1:], *first]).batch()
    assert records.concatenated([first, first]) == Rows([*first, *first]).batch()
    assert records.concatenated([batch]) is batch


def test_rows_without_fields_become_null_columns() -> None:
    for count in (1, 64, 65):
        assert Rows([(None, b"x", None, None)] * count).batch() == records.body([b"x"] * count)


def test_null_field_adds_no_annotation() -> None:
    batch = records.annotated(pa.array([b"a", b"b"]), {"x": pa.array(["1", None]), "y": pa.array(["2", "3"])})
    assert [dict(row["annotations"]) for row in batch.to_pylist()] == [{"x": "1", "y": "2"}, {"y": "3"}]
    assert records.annotated(pa.array([b"a"]), {})["payload"].to_pylist() == [b"a"]
