from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.internal.decoder import _DecodeVarint
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns.wire_columns import (
    Irregular,
    chain,
    fields,
    gather,
    literal,
    number,
    packed,
    varint,
    varints,
    widths,
)

numbers = st.integers(0, 2**64 - 1) | st.sampled_from([0, 127, 128, 16383, 16384, 2**35, 2**63, 2**64 - 1])


@given(st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=20))
def test_varints_are_written_as_protobuf_does_and_read_again(given_numbers: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in given_numbers], np.uint64)
    there = np.array([there for _, there in given_numbers])
    written = packed([varint(values, there)]).to_pylist()
    assert written == [_VarintBytes(value) if there else b"" for value, there in given_numbers]
    assert widths(values).tolist() == [len(_VarintBytes(value)) for value, _ in given_numbers]
    data = b"".join(_VarintBytes(value) for value, _ in given_numbers)
    ends = np.cumsum(widths(values))
    read, behind = varints(np.frombuffer(data, np.uint8), ends - widths(values), ends)
    assert read.tolist() == values.tolist()
    assert behind.tolist() == ends.tolist()


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(1, 15))
def test_a_number_field_leaves_out_zero(values: list[int], tag: int) -> None:
    written = packed(number(tag, np.array(values, np.uint64))).to_pylist()
    assert written == [bytes([tag]) + _VarintBytes(value) if value else b"" for value in values]


@given(st.binary(max_size=12))
def test_any_bytes_are_a_varint_or_irregular(data: bytes) -> None:
    array, here, end = np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)])
    try:
        value, behind = varints(array, here, end)
    except Irregular:
        assert len(data) == 0 or all(byte >= 0x80 for byte in data[:10])
        return
    assert behind[0] == next(place for place, byte in enumerate(data, 1) if byte < 0x80)
    assert value[0] == _DecodeVarint(data, 0)[0] % 2**64


@given(st.lists(st.binary(max_size=300), max_size=30), st.binary(max_size=5))
def test_a_chain_of_messages_is_followed_to_its_end(messages: list[bytes], rest: bytes) -> None:
    data = b"\x0a\x01t" + b"".join(b"\x12" + _VarintBytes(len(m)) + m for m in messages) + b"\x28\x01" + rest
    begin, end, behind = chain(np.frombuffer(data, np.uint8), 3, 0x12)
    assert [data[b:e] for b, e in zip(begin, end, strict=True)] == messages
    assert data[behind:] == b"\x28\x01" + rest


def test_a_length_that_leads_outside_is_irregular() -> None:
    with pytest.raises(Irregular):
        chain(np.frombuffer(b"\x12\x01a\x12\x7fb", np.uint8), 0, 0x12)
    with pytest.raises(Irregular):
        fields(
            np.frombuffer(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", np.uint8),
            np.array([0]),
            np.array([11]),
            [18],
        )


def test_an_unknown_field_and_very_many_fields_are_irregular() -> None:
    for data in (b"\x3a\x01a", b"\x12\x00" * 65):
        with pytest.raises(Irregular):
            fields(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]), [0x12])


def test_text_that_is_not_utf_8_is_irregular() -> None:
    begin, end, none = np.array([0]), np.array([1]), np.array([False])
    with pytest.raises(Irregular):
        gather(pa.py_buffer(b"\xff"), begin, end, pa.string(), none)
    assert gather(pa.py_buffer(b"\xff"), begin, end, pa.binary(), none).to_pylist() == [b"\xff"]


def test_blocks_stand_side_by_side() -> None:
    there = np.array([True, False])
    assert packed([literal(1, 2), literal(2, 2, there), literal(3, 2)]).to_pylist() == [b"\1\2\3", b"\1\3"]
