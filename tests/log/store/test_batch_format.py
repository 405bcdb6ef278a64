"""The format of a batch: each flipped bit is detected."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.commit.batching import QueuedAppend, prepare
from penstock.log.store import batch_format
from penstock.records import SCHEMA, BadBatch
from tests.log.log_helpers import origin, rows


def message(*payloads, base=5, position=0):
    append = QueuedAppend(rows(*payloads), origin(counts={"taken": 2}), 0, None)
    prepared = prepare([append], base, 1000, position)
    return prepared.load(), b"".join(bytes(part) for part in prepared.parts), prepared.message


BATCH, DATA, FRAMED = message(b"first", b"second")


def test_framed_batch_is_parsed_with_its_position_and_origin():
    parsed = batch_format.parse(pa.py_buffer(DATA), 0)
    assert (parsed.base, parsed.rows, parsed.end, parsed.first, parsed.last) == (5, 2, 7, 1000, 1001)
    assert (parsed.length, parsed.crc) == (len(DATA), FRAMED.crc) == (FRAMED.length, FRAMED.crc)
    assert parsed.origin == origin(counts={"taken": 2})
    assert batch_format.load(pa.py_buffer(DATA), parsed).equals(BATCH)


def test_batch_is_loaded_without_a_copy():
    data = pa.py_buffer(DATA)
    batch = batch_format.load(data, batch_format.parse(data, 0))
    assert data.address <= batch.column("payload").buffers()[2].address < data.address + data.size


def test_length_is_a_multiple_of_8_and_following_bytes_are_ignored():
    assert len(DATA) % 8 == 0
    assert batch_format.parse(pa.py_buffer(DATA + b"more"), 0).length == len(DATA)


def test_each_flipped_bit_is_detected():
    for position in range(len(DATA)):
        bad = bytearray(DATA)
        bad[position] ^= 1 << position % 8
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(bytes(bad)), 0)


def test_truncated_message_is_bad():
    for length in range(len(DATA)):
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(DATA[:length]), 0)


def test_message_at_another_position_is_bad():
    with pytest.raises(BadBatch):
        batch_format.parse(pa.py_buffer(bytes(8) + DATA), 8)
    message_for_8 = message(b"first", position=8)[1]
    assert batch_format.parse(pa.py_buffer(bytes(8) + message_for_8), 8).position == 8


@given(st.binary(max_size=400), st.integers(0, 64))
def test_random_bytes_raise_only_bad_batch(data, position):
    with pytest.raises(BadBatch):
        batch_format.parse(pa.py_buffer(data), position)


@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
def test_overwritten_message_is_bad_or_unchanged(changes):
    bad = bytearray(DATA)
    for position, new in changes:
        bad[position : position + len(new)] = new
    if bytes(bad[: len(DATA)]) != DATA:
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(bytes(bad)), 0)


def test_message_with_too_large_a_length_allocates_no_memory():
    for length in (1 << 30, -8, 0, -(1 << 31)):
        bad = DATA[:4] + int(length).to_bytes(4, "little", signed=True) + DATA[8:]
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(bad), 0)


def test_only_the_preamble_is_recognised():
    assert batch_format.preamble_length(batch_format.PREAMBLE) == batch_format.PREAMBLE.size
    other_schema = pa.schema([pa.field("x", pa.int64())]).serialize()
    for data in (other_schema, pa.py_buffer(b""), pa.py_buffer(DATA), batch_format.PREAMBLE[:-1]):
        with pytest.raises(BadBatch):
            batch_format.preamble_length(data)


def test_segment_is_the_preamble_and_messages():
    table = pa.ipc.open_stream(batch_format.PREAMBLE.to_pybytes() + DATA).read_all()
    assert table.schema == SCHEMA
    assert table.column("offset").to_numpy().tolist() == np.arange(5, 7).tolist()
