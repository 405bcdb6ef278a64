"""Zigzag varints of whole columns, against one number at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import BadRecords
from penstock.kafka.records import varints

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)


def varint(value: int) -> bytes:
    """Encode like Kafka's ByteUtils.writeVarlong."""
    left, found = ((value << 1) ^ (value >> 63)) & (2**64 - 1), bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def column(values: list[int]) -> varints.Ints:
    return np.array(values, np.int64)


@given(st.lists(st.tuples(INT64, INT64), max_size=8), st.binary(max_size=3))
def test_rows_are_joined_from_the_varints_of_their_values(rows: list[tuple[int, int]], between: bytes) -> None:
    found = varints.joined([column([row[0] for row in rows]), between, column([row[1] for row in rows])])
    assert found.to_pylist() == [varint(one) + between + varint(other) for one, other in rows]


@given(st.lists(INT64, max_size=8))
def test_joined_varints_are_read_as_written(values: list[int]) -> None:
    data = b"".join(map(varint, values))
    sizes = varints.sizes(column(values))
    assert sizes.tolist() == [len(varint(value)) for value in values]
    places = np.cumsum(sizes) - sizes
    found, ends = varints.read(np.frombuffer(data, np.uint8), places)
    assert found.tolist() == values
    assert ends.tolist() == (places + sizes).tolist()


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(BadRecords):
        varints.read(np.full(12, 0xFF, np.uint8), np.array([0]))


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_one_is_read_as_many_are(value: int, before: bytes, behind: bytes) -> None:
    data = before + varint(value) + behind
    assert varints.read_one(data, len(before)) == (value, len(before) + len(varint(value)))
    assert varints.read_one(memoryview(data), len(before)) == (value, len(before) + len(varint(value)))


@given(st.binary(max_size=8))
def test_any_bytes_begin_with_a_number_of_32_bits_or_with_none(data: bytes) -> None:
    width = next((at + 1 for at, byte in enumerate(data[: varints.MAX_BYTES_32]) if byte < 0x80), None)
    if width is None:
        with pytest.raises(IndexError):
            varints.read_one(data, 0)
    else:
        value, end = varints.read_one(data, 0)
        values, _ = varints.read(np.frombuffer(data, np.uint8), np.array([0]))
        assert (end, value) == (width, values[0])
