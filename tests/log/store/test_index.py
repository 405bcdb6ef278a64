"""The index records of a segment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.store import index


def records(count=4, first=10, position=100):
    return index.pack(
        (first + 3 * n, 50 + n, 51 + n, position + 8 * n, 8, 3, 60, n, 0, b"s%d" % n) for n in range(count)
    )


def test_record_has_96_bytes_and_header_has_64():
    assert (index.RECORD.itemsize, len(index.header(7))) == (96, 64)


def test_records_are_read_back_except_a_torn_last_record():
    data = index.header(7) + records().tobytes()
    assert (index.read(data, 7) == records()).all()
    assert len(index.read(data[:-1], 7)) == 3
    assert len(index.read(b"x" + data[1:], 7)) == len(index.read(b"", 7)) == 0


def test_index_of_another_segment_has_no_records():
    assert len(index.read(index.header(8) + records().tobytes(), 7)) == 0


@given(st.integers(0, 4 * 96 - 1), st.integers(1, 255))
def test_flipped_byte_damages_only_its_record(position, mask):
    data = bytearray(records().tobytes())
    data[position] ^= mask
    assert index.valid(index.unpack(bytes(data))).tolist() == [n != position // 96 for n in range(4)]


@given(
    st.builds(
        index.Record,
        *[st.integers(-(2**63), 2**63 - 1)] * 7,
        st.integers(0, 2**32 - 1),
        st.just(0),
        st.binary(max_size=32),
    )
)
def test_single_record_has_the_bytes_of_a_record_in_an_array(record):
    assert record.packed() == index.pack([record]).tobytes()


def test_zeros_are_not_a_record():
    assert not index.valid(np.zeros(3, index.RECORD)).any()


def test_dense_records_are_contiguous_in_bytes_and_offsets():
    assert index.dense(records(), 10, 100)
    assert index.dense(index.EMPTY, 0, 0)
    assert not index.dense(records(), 11, 100)
    assert not index.dense(records(), 10, 99)
    assert not index.dense(np.delete(records(), 1), 10, 100)
    assert not index.dense(records()[::-1], 10, 100)


def test_end_follows_the_last_record():
    assert index.end_of(records(), 10, 100) == (22, 132)
    assert index.end_of(index.EMPTY, 10, 100) == (10, 100)
