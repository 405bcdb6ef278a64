"""Batches as encapsulated messages: what goes in comes out, and nothing else is taken for one."""

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
def test_a_batch_and_its_document_come_back_as_they_were(batch: pa.RecordBatch) -> None:
    data = encode(batch, DOCUMENT)
    assert len(data) % 8 == 0
    assert decode(data, BODY) == (batch, DOCUMENT)
    assert read_document(data) == DOCUMENT


@pytest.mark.parametrize("batch", [EMPTY_BODY, body([None, b"x" * 100_000]), annotated(1000), annotated(999)[7:800]])
def test_a_message_in_parts_is_the_same_and_large_payloads_are_not_copied(batch: pa.RecordBatch) -> None:
    parts = encode_parts(batch, DOCUMENT, {b"x": b"y"})
    assert b"".join(parts) == bytes(encode(batch, DOCUMENT, {b"x": b"y"}))
    head = 8 + int.from_bytes(parts[0][4:8], "little")
    assert len(parts[0]) == head
    data = batch.column("payload").buffers()[2]
    within = data is not None and any(data.address <= pa.py_buffer(p).address < data.address + data.size for p in parts)
    assert within == (batch.num_rows > 256 or batch.nbytes > 100_000)


def test_messages_behind_a_schema_are_a_stream_for_any_arrow_reader() -> None:
    columns = [pa.array([7]), pa.array([1], SCHEMA.field("timestamp").type), *body([b"m"]).columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    stream = SCHEMA.serialize().to_pybytes() + bytes(encode(batch, DOCUMENT)) * 2
    assert pa.ipc.open_stream(stream).read_all().num_rows == 2


def test_extra_metadata_is_found_at_its_position() -> None:
    data = encode(body([b"m"]), DOCUMENT, {b"crc32c": b"00000000"})
    flatbuffer = memoryview(pa.ipc.read_message(data).metadata)
    position, value = custom_metadata(flatbuffer)[b"crc32c"]
    assert value == b"00000000"
    assert bytes(flatbuffer[position : position + 8]) == value


def test_a_message_without_a_document_is_refused() -> None:
    data = body([b"m"]).serialize()
    with pytest.raises(BadBatch):
        decode(data, BODY)
    with pytest.raises(BadBatch):
        read_document(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_batch_or_a_bad_batch(data: bytes) -> None:
    for read in (read_document, lambda d: decode(d, BODY)):
        with pytest.raises(BadBatch):
            read(data)


@given(st.data())
def test_a_cut_or_changed_head_is_a_batch_or_a_bad_batch(data: Any) -> None:
    good = bytearray(encode(body([b"m"]), DOCUMENT))
    head = int.from_bytes(good[4:8], "little") + 8
    at = data.draw(st.integers(0, head - 1))
    good[at] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    for changed in (bytes(good), cut):
        with contextlib.suppress(BadBatch):
            read_document(changed)


def test_a_single_batch_is_not_copied_and_several_become_one() -> None:
    one, two = records.body([b"a"]), records.body([b"b", None])
    assert records.concatenated([one]) is one
    assert records.concatenated([one, two]).column("payload").to_pylist() == [b"a", b"b", None]


def test_binary_arrays_share_memory_and_tell_their_bounds() -> None:
    data = np.frombuffer(b"abcdef", np.uint8).copy()
    array = records.binary_array(np.array([0, 2, 2, 6], np.int32), data)
    data[0] = ord("x")
    assert array.to_pylist() == [b"xb", b"", b"cdef"]
    assert records.bounds(array.slice(1)).tolist() == [2, 2, 6]


def test_annotation_maps_take_the_pairs_between_offsets() -> None:
    maps = records.annotation_maps(np.array([0, 2, 2]), pa.array(["a", "b"]), pa.array(["1", None]))
    assert maps.to_pylist() == [[("a", "1"), ("b", None)], []]
    assert maps.type == records.ANNOTATIONS
    batch = records.body([b"x", b"y"], annotations=maps)
    assert records.annotation_column(batch).keys.to_pylist() == ["a", "b"]


def test_numpy_values_are_null_where_masked() -> None:
    assert records.from_numpy(np.array([1, 2]), np.array([False, True])).to_pylist() == [1, None]


ROWS = Rows([(b"k", b"p", None, [("a", "ä")]), (None, None, "type", None), (None, b"", None, None)])


def test_rows_are_the_batch_they_become() -> None:
    batch = ROWS.batch()
    batch.validate(full=True)
    assert batch.schema == records.BODY
    assert [tuple(row.values()) for row in batch.to_pylist()] == list(ROWS)
    assert (ROWS.num_rows, ROWS.size) == (3, len("k" + "p" + "a" + "ä" + "type"))
    assert Rows().batch() == records.EMPTY_BODY


def test_rows_and_batches_are_concatenated_in_their_order() -> None:
    one, batch = Rows(ROWS[:1]), Rows(ROWS[1:]).batch()
    joined = records.concatenated([one, one, batch, one])
    assert joined == Rows([*one, *one, *ROWS[1:], *one]).batch()
    assert records.concatenated([one, one]) == Rows([*one, *one]).batch()
    assert records.concatenated([batch]) is batch


def test_rows_without_values_are_columns_of_nulls_however_many() -> None:
    for count in (1, 64, 65):
        assert Rows([(None, b"x", None, None)] * count).batch() == records.body([b"x"] * count)


def test_a_field_that_is_null_is_no_annotation() -> None:
    batch = records.annotated(pa.array([b"a", b"b"]), {"x": pa.array(["1", None]), "y": pa.array(["2", "3"])})
    assert [dict(row["annotations"]) for row in batch.to_pylist()] == [{"x": "1", "y": "2"}, {"y": "3"}]
    assert records.annotated(pa.array([b"a"]), {})["payload"].to_pylist() == [b"a"]
