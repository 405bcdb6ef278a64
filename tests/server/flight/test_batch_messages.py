"""Record batches as messages of Flight."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import body
from penstock.server.flight.batch_messages import (
    MAX_PART_BYTES,
    BadFlightData,
    BatchDecoder,
    BatchEncoder,
    FlightData,
    bytes_field,
)
from penstock.server.flight.puts import MAX_DECODED_BYTES, body_of
from penstock.slogd.errors import BadRequest

GO_AND_RUST_LIMIT = 4 << 20


def decoded(messages: list[bytes]) -> list[pa.RecordBatch]:
    decoder = BatchDecoder()
    batches = [decoder.decode(FlightData.parse(message)) for message in messages]
    return [batch for batch in batches if batch is not None]


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_decoded_batch_equals_the_encoded_one(rows: int) -> None:
    batch = body(
        [b"%d" % number for number in range(rows)], keys=pa.array([None, b"k"] * (rows // 2) + [b""] * (rows % 2))
    )
    encoder = BatchEncoder(batch.schema)
    messages = [
        encoder.schema_message(),
        *encoder.batch_messages(batch),
        *encoder.batch_messages(batch.slice(rows // 2)),
    ]
    first, second = decoded(messages)
    assert first.equals(batch)
    assert second.equals(batch.slice(rows // 2))


@pytest.mark.parametrize("sizes", [[1000] * 20_000, [100] * 50_000 + [3 << 20] + [100] * 10, [5 << 20, 10]])
def test_messages_stay_below_the_default_limit_of_clients(sizes: list[int]) -> None:
    batch = body([b"x" * size for size in sizes])
    encoder = BatchEncoder(batch.schema)
    messages = list(encoder.batch_messages(batch))
    too_large = [message for message in messages if len(message) > GO_AND_RUST_LIMIT]
    assert len(too_large) == sum(size > MAX_PART_BYTES for size in sizes)  # a single row is not cut
    together = pa.Table.from_batches(decoded([encoder.schema_message(), *messages])).combine_chunks()
    assert together.to_batches()[0].equals(batch)


def test_dictionaries_are_decoded() -> None:
    batch = pa.record_batch({"payload": pa.array(["a", "b", "a"]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages = [
        bytes_field(2, bytes(message.metadata)) + (bytes_field(1000, bytes(message.body)) if message.body else b"")
        for message in reader
    ]
    assert [decoded_batch.to_pydict() for decoded_batch in decoded(messages)] == [{"payload": ["a", "b", "a"]}]


def test_compressed_batches_are_refused() -> None:
    """Arrow would allocate what they state: 32 KiB became a gigabyte."""
    batch, sink = body([b"x" * 100_000]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    schema, compressed = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages = [bytes_field(2, bytes(schema.metadata))]
    messages.append(bytes_field(2, bytes(compressed.metadata)) + bytes_field(1000, bytes(compressed.body)))
    with pytest.raises(BadFlightData, match="without compression"):
        decoded(messages)


def test_batch_without_schema_is_refused() -> None:
    batch = body([b"x"])
    with pytest.raises(BadFlightData, match="a put has a schema and record batches"):
        decoded(list(BatchEncoder(batch.schema).batch_messages(batch)))


@given(st.binary(max_size=200))
def test_any_bytes_are_flight_data_or_refused(message: bytes) -> None:
    with contextlib.suppress(BadFlightData, pa.ArrowException):
        BatchDecoder().decode(FlightData.parse(message))


@given(st.data())
def test_any_damage_is_refused_or_gives_a_batch(data: st.DataObject) -> None:
    encoder = BatchEncoder(body([b"x"]).schema)
    messages = [bytearray(encoder.schema_message()), *map(bytearray, encoder.batch_messages(body([b"x"] * 10)))]
    damaged = messages[data.draw(st.integers(0, 1))]
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(BadFlightData, pa.ArrowException):
        for batch in decoded([bytes(message) for message in messages]):
            batch.validate(full=True)


@pytest.mark.parametrize("shift", range(9))
def test_bodies_are_read_where_they_are_and_offsets_are_aligned(shift: int) -> None:
    batch = body([b"x" * 1000, None, b"y" * 100_000])
    encoder = BatchEncoder(batch.schema)
    decoder = BatchDecoder()
    decoder.decode(FlightData.parse(encoder.schema_message()))
    (message,) = encoder.batch_messages(batch)
    field_of_any_length = bytes_field(3, b"-" * shift)
    before = pa.total_allocated_bytes()
    received = decoder.decode(FlightData.parse(field_of_any_length + message))
    assert received is not None
    assert received.equals(batch)
    assert pa.total_allocated_bytes() - before < 10_000
    assert all(column.buffers()[1].address % 4 == 0 for column in received.columns if column.buffers()[1])


def test_body_that_is_cut_off_is_refused() -> None:
    batch = body([b"x" * 1000])
    schema = BatchEncoder(batch.schema)
    (message,) = schema.batch_messages(batch)
    fields = FlightData.parse(message)
    messages = [
        schema.schema_message(),
        bytes_field(2, bytes(fields.header)) + bytes_field(1000, bytes(fields.body[:-64])),
    ]
    with pytest.raises(BadFlightData, match="not an Arrow IPC message"):
        decoded(messages)


def stream_messages(batch: pa.RecordBatch, compression: str | None = None) -> list[pa.Message]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return list(pa.ipc.MessageReader.open_stream(sink.getvalue()))


def flight_data(message: pa.Message, behind: bytes = b"") -> bytes:
    return bytes_field(2, bytes(message.metadata)) + bytes_field(1000, bytes(message.body or b"") + behind)


@pytest.mark.parametrize("rows", [60_000, 1 << 20])
def test_rows_beyond_the_buffers_are_refused_before_offsets_are_read(rows: int) -> None:
    """A batch of 16 bytes that stated a billion rows ended the daemon: offsets far behind its buffer were read."""
    schema, message = stream_messages(pa.record_batch({"payload": [b"abc"]}))
    header = bytes(message.metadata).replace(struct.pack("<q", 1), struct.pack("<q", rows))
    with pytest.raises((BadFlightData, pa.ArrowInvalid), match=r"states 1048576 rows in 16 bytes|Buffer #1 too small"):
        decoded([flight_data(schema), bytes_field(2, header) + bytes_field(1000, bytes(message.body))])


@pytest.mark.parametrize("rows", [1, 100_000])
def test_columns_that_share_bytes_are_refused_before_they_are_aligned(rows: int) -> None:
    """Each column had an aligned copy: a request of 8 MB took 2.4 GB."""
    columns, size = 50, 800_000
    template = pa.record_batch({f"c{index}": pa.array([7], pa.int64()) for index in range(columns)})
    schema, message = stream_messages(template)
    words = np.frombuffer(bytes(message.metadata), np.int64).copy()
    assert (words[4], words[8], words[-2]) == (8 * columns, 1, 1)  # bytes of the body, rows, and rows of a column
    words[4], words[8], words[-2 * columns :: 2] = size, rows, rows
    words[10 : 10 + 4 * columns].reshape(-1, 4)[:] = (0, 0, 0, size)  # begin and length of validity and numbers
    header = words.tobytes()
    default = pa.default_memory_pool()
    measured = pa.proxy_memory_pool(default)
    pa.set_memory_pool(measured)
    try:
        for shift in range(8):
            message_fields = bytes_field(3, b"-" * shift) + bytes_field(2, header) + bytes_field(1000, bytes(size))
            with pytest.raises(BadFlightData, match="share bytes"):
                decoded([flight_data(schema), message_fields])
    finally:
        pa.set_memory_pool(default)
    assert (measured.max_memory() or 0) < 2 * size


def test_message_behind_a_dictionary_is_not_read() -> None:
    """A compressed batch behind the stated body of a dictionary was read in place of the next batch."""
    batch = pa.record_batch({"payload": pa.array(["a", "b", "a"]).dictionary_encode()})
    large = pa.record_batch({"payload": pa.array(["a"] * 100_000).dictionary_encode()})
    *_, hidden = stream_messages(large, "zstd")
    schema, dictionary, indices = stream_messages(batch)
    messages = [flight_data(schema), flight_data(dictionary, bytes(hidden.serialize())), flight_data(indices)]
    assert [each.to_pydict() for each in decoded(messages)] == [{"payload": ["a", "b", "a"]}]


def test_texts_that_a_cast_would_multiply_are_refused() -> None:
    """A dictionary of one text of 1 MiB and 1,900 rows took two gigabytes."""
    text, rows = b"x" * (1 << 20), MAX_DECODED_BYTES // (1 << 20) + 1
    views = struct.pack("<i4sii", len(text), text[:4], 0, 0) * rows
    for column in (
        pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text])),
        pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(views), pa.py_buffer(text)]),
    ):
        (batch,) = decoded([flight_data(message) for message in stream_messages(pa.record_batch({"payload": column}))])
        with pytest.raises(BadRequest, match=f"the texts of a column would have {rows << 20} bytes"):
            body_of(batch)
        assert body_of(batch.slice(1, 3))["payload"].to_pylist() == [text] * 3
    annotations = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string_view()))
    with pytest.raises(BadRequest, match="dictionaries and views inside of a column"):
        body_of(pa.record_batch({"payload": [b"x"], "annotations": annotations}))


@pytest.mark.parametrize("type_", [pa.large_binary(), pa.string(), pa.binary_view(), pa.string_view(), pa.binary(2)])
def test_payloads_of_other_types_are_texts_of_the_log(type_: pa.DataType) -> None:
    column = pa.array(["ab", None, "cd"], pa.string()).cast(pa.binary()).cast(type_)
    (batch,) = decoded([flight_data(message) for message in stream_messages(pa.record_batch({"payload": column}))])
    assert body_of(batch)["payload"].to_pylist() == [b"ab", None, b"cd"]
    (empty,) = decoded([flight_data(each) for each in stream_messages(pa.record_batch({"payload": column[:0]}))])
    assert body_of(empty).num_rows == 0
