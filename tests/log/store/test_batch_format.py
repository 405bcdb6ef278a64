"""One batch as bytes: whatever is flipped is found."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.commit.batching import BatchGroup, QueuedAppend, prepare
from penstock.log.store import batch_format
from penstock.records import SCHEMA, BadBatch
from tests.log.log_helpers import origin, rows


def message(*payloads, base=5, position=0):
    group = BatchGroup()
    group.add(QueuedAppend(rows(*payloads), origin(counts={"taken": 2}), 0, None))
    prepared = prepare(group, base, 1000, position)
    return prepared.load(), b"".join(bytes(part) for part in prepared.framed.parts), prepared.framed


BATCH, DATA, FRAMED = message(b"first", b"second")


def test_a_framed_batch_comes_back_with_its_place_and_origin():
    found = batch_format.parse(pa.py_buffer(DATA), 0)
    assert (found.base, found.rows, found.end, found.first, found.last) == (5, 2, 7, 1000, 1001)
    assert (found.length, found.crc) == (len(DATA), FRAMED.crc) == (FRAMED.length, FRAMED.crc)
    assert found.origin == origin(counts={"taken": 2})
    assert batch_format.load(pa.py_buffer(DATA), found).equals(BATCH)


def test_the_batch_is_loaded_without_a_copy():
    data = pa.py_buffer(DATA)
    batch = batch_format.load(data, batch_format.parse(data, 0))
    assert data.address <= batch.column("payload").buffers()[2].address < data.address + data.size


def test_the_length_is_a_multiple_of_8_and_bytes_behind_do_not_matter():
    assert len(DATA) % 8 == 0
    assert batch_format.parse(pa.py_buffer(DATA + b"more"), 0).length == len(DATA)


def test_every_flipped_bit_is_found():
    for position in range(len(DATA)):
        bad = bytearray(DATA)
        bad[position] ^= 1 << position % 8
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(bytes(bad)), 0)


def test_a_message_cut_anywhere_is_bad():
    for length in range(len(DATA)):
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(DATA[:length]), 0)


def test_a_message_at_another_place_is_bad():
    with pytest.raises(BadBatch):
        batch_format.parse(pa.py_buffer(bytes(8) + DATA), 8)
    moved = message(b"first", position=8)[1]
    assert batch_format.parse(pa.py_buffer(bytes(8) + moved), 8).position == 8


@given(st.binary(max_size=400), st.integers(0, 64))
def test_any_bytes_are_a_bad_batch_and_nothing_worse(data, position):
    with pytest.raises(BadBatch):
        batch_format.parse(pa.py_buffer(data), position)


@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
def test_a_message_written_over_is_bad_or_the_same(changes):
    bad = bytearray(DATA)
    for place, new in changes:
        bad[place : place + len(new)] = new
    if bytes(bad[: len(DATA)]) != DATA:
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(bytes(bad)), 0)


def test_a_message_whose_header_promises_more_than_there_is_takes_no_memory():
    for length in (1 << 30, -8, 0, -(1 << 31)):
        bad = DATA[:4] + int(length).to_bytes(4, "little", signed=True) + DATA[8:]
        with pytest.raises(BadBatch):
            batch_format.parse(pa.py_buffer(bad), 0)


def test_the_preamble_is_recognised_and_nothing_else():
    assert batch_format.preamble_length(batch_format.PREAMBLE) == batch_format.PREAMBLE.size
    other = pa.schema([pa.field("x", pa.int64())]).serialize()
    for data in (other, pa.py_buffer(b""), pa.py_buffer(DATA), batch_format.PREAMBLE[:-1]):
        with pytest.raises(BadBatch):
            batch_format.preamble_length(data)


def test_a_segment_is_the_preamble_and_messages():
    table = pa.ipc.open_stream(batch_format.PREAMBLE.to_pybytes() + DATA).read_all()
    assert table.schema == SCHEMA
    assert table.column("offset").to_numpy().tolist() == np.arange(5, 7).tolist()
