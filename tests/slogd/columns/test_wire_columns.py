from __future__ import annotations

import numpy as np
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns.wire_columns import literal, number, packed, varint, widths

numbers = st.integers(0, 2**64 - 1) | st.sampled_from([0, 127, 128, 16383, 16384, 2**35, 2**63, 2**64 - 1])


@given(st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=20))
def test_varints_equal_protobuf(given_numbers: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in given_numbers], np.uint64)
    present = np.array([present for _, present in given_numbers])
    written = packed([varint(values, present)]).to_pylist()
    assert written == [_VarintBytes(value) if present else b"" for value, present in given_numbers]
    assert widths(values).tolist() == [len(_VarintBytes(value)) for value, _ in given_numbers]


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(1, 15))
def test_number_field_leaves_out_zero(values: list[int], tag: int) -> None:
    written = packed(number(tag, np.array(values, np.uint64))).to_pylist()
    assert written == [bytes([tag]) + _VarintBytes(value) if value else b"" for value in values]


def test_packed_concatenates_blocks_by_row() -> None:
    present = np.array([True, False])
    assert packed([literal(1, 2), literal(2, 2, present), literal(3, 2)]).to_pylist() == [b"\1\2\3", b"\1\3"]
