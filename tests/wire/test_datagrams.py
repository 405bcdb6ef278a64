"""Datagrams as columns over the memory they were received into."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.datagrams import Datagrams, spans


@given(st.lists(st.binary(max_size=120), max_size=12), st.integers(24, 64), st.data())
def test_payloads_are_the_datagrams_wherever_they_lie(sent: list[bytes], slot: int, data: st.DataObject) -> None:
    datagrams = Datagrams.from_bytes(sent, slot_size=slot)
    assert datagrams.payloads().to_pylist() == sent
    picked = data.draw(st.lists(st.integers(0, len(sent) - 1), max_size=20) if sent else st.just([]))
    starts = [data.draw(st.integers(0, len(sent[position]))) for position in picked]
    ends = [data.draw(st.integers(start, len(sent[position]))) for position, start in zip(picked, starts, strict=True)]
    got = datagrams.payloads(*(np.array(each, np.int64) for each in (picked, starts, ends)))
    got.validate(full=True)
    assert got.type == pa.binary()
    assert got.to_pylist() == [
        sent[position][start:end] for position, start, end in zip(picked, starts, ends, strict=True)
    ]


def test_payloads_are_copies_that_outlive_the_memory() -> None:
    datagrams = Datagrams.from_bytes([b"abc", b"x" * 3000])
    payloads = datagrams.payloads()
    datagrams.matrix[:] = 0
    datagrams.overflow[:] = 0
    assert payloads.to_pylist() == [b"abc", b"x" * 3000]


def test_a_range_is_a_view_of_the_same_memory() -> None:
    datagrams = Datagrams.from_bytes([b"a", b"b", b"c" * 2100, b"d"], ports=[1, 2, 3, 4], addresses=[5, 6, 7, 8])
    part = datagrams.range(1, 3)
    assert (len(part), part.ports.tolist(), part.addresses.tolist()) == (2, [2, 3], [6, 7])
    assert part.payloads().to_pylist() == [b"b", b"c" * 2100]
    assert np.shares_memory(part.matrix, datagrams.matrix)


def test_a_length_beyond_the_memory_is_cut_to_it() -> None:
    datagrams = Datagrams.from_bytes([b"abc"], slot_size=24)
    datagrams.lengths[0] = 1 << 31
    assert datagrams.payloads().to_pylist() == [b"abc" + b"\0" * 21]


@pytest.mark.parametrize(
    ("matrix", "overflow", "rows"),
    [((2, 23), (2, 0), 2), ((1, 24), (2, 0), 2), ((2, 24), (1, 9), 2), ((48,), (2, 0), 2)],
)
def test_shapes_that_do_not_fit_are_refused(matrix: tuple[int, ...], overflow: tuple[int, ...], rows: int) -> None:
    with pytest.raises(ValueError, match="matrix"):
        Datagrams(
            np.zeros(matrix, np.uint8),
            np.zeros(overflow, np.uint8),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.uint64),
            np.zeros(rows, np.uint16),
        )


def test_spans_may_overlap_and_come_in_any_order() -> None:
    buffer = np.frombuffer(b"abcdefghij", np.uint8)
    got = spans(buffer, np.array([5, 1, 1, 0, 9]), np.array([7, 4, 2, 10, 9]))
    assert got.to_pylist() == [b"fg", b"bcd", b"b", b"abcdefghij", b""]
