"""Sizes that Arrow's IPC messages state are compared with what arrived, before Arrow allocates by them."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.otap.ipc_messages import DICTIONARY, MAX_METADATA_BYTES, RECORDS, SCHEMA, IpcMessage, read_messages
from penstock.wire.protobuf import Malformed

LIMIT = 1 << 20


def stream(column: pa.Array[pa.Scalar], compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
        return sink.getvalue()


PLAIN, PACKED = stream(pa.array([7] * 1000)), stream(pa.array([7] * 1000), "zstd")


def test_messages_have_kind_rows_and_size() -> None:
    assert read_messages(PLAIN, LIMIT) == [IpcMessage(SCHEMA, 0), IpcMessage(RECORDS, 8000, rows=1000)]


def test_dictionary_has_its_id() -> None:
    _, dictionary, records = read_messages(stream(pa.array(["a", "b"]).dictionary_encode()), LIMIT)
    assert (dictionary.kind, dictionary.dictionary_id, dictionary.is_delta, records.rows) == (DICTIONARY, 0, False, 2)


def test_compressed_body_has_its_decompressed_size() -> None:
    assert len(PACKED) < 1000
    assert read_messages(PACKED, LIMIT)[-1].body_bytes >= 8000


def test_body_above_the_limit_is_malformed() -> None:
    for data in (PLAIN, PACKED):
        with pytest.raises(Malformed, match="exceeds 7999 bytes"):
            read_messages(data, 7999)


def test_metadata_of_a_schema_is_bounded() -> None:
    schema = pa.schema([pa.field("x", pa.int8())], metadata={"a": "b" * MAX_METADATA_BYTES})
    with pytest.raises(Malformed, match="bytes of metadata"):
        read_messages(bytes(schema.serialize()), 100 * LIMIT)


@pytest.mark.parametrize("stated", [1 << 62, -5])
def test_stated_size_of_a_compressed_buffer_is_no_allocation(stated: int) -> None:
    position = PACKED.index(struct.pack("<q", 8000))
    damaged = PACKED[:position] + struct.pack("<q", stated) + PACKED[position + 8 :]
    with pytest.raises(Malformed, match=r"exceeds|negative"):
        read_messages(damaged, LIMIT)


@pytest.mark.parametrize("end", range(1, len(PACKED), 16))
def test_every_cut_is_malformed_or_between_messages(end: int) -> None:
    schema_end = 8 + struct.unpack_from("<I", PACKED, 4)[0]
    if end == schema_end:
        return
    with pytest.raises(Malformed):
        read_messages(PACKED[:end], LIMIT)


@given(st.integers(0, len(PACKED) - 1), st.binary(min_size=1, max_size=4), st.sampled_from([PLAIN, PACKED]))
def test_any_damage_is_read_or_malformed(position: int, damage: bytes, data: bytes) -> None:
    try:
        messages = read_messages(data[:position] + damage + data[position + len(damage) :], LIMIT)
    except Malformed:
        return
    assert sum(message.body_bytes for message in messages) <= LIMIT


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    try:
        read_messages(data, LIMIT)
    except Malformed:
        return
