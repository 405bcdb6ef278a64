"""Sums of rows by slice, as SQL computes them."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.row_sums import ROWS_AT_ONCE, SLICE_OFFSETS, RowSums, SliceSums, uuid_hashes, with_partitions


def hash_of(text: str | None) -> int:
    return 0 if text is None else int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:15], 16)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.text(max_size=200), max_size=20), st.integers(0, 20))
def test_hashes_are_the_first_digits_of_md5(texts: list[str | None], begin: int) -> None:
    column = pa.array(texts, pa.string())[begin:]
    assert uuid_hashes(column).tolist() == [hash_of(text) for text in texts[begin:]]


def test_texts_around_the_size_of_a_block_are_hashed() -> None:
    texts = ["x" * length for length in (0, 54, 55, 56, 63, 64, 65, 118, 119, 120, 256)]
    assert uuid_hashes(pa.array(texts)).tolist() == [hash_of(text) for text in texts]
    long_column = [f"{number:036d}" for number in range(ROWS_AT_ONCE + 2)]
    assert uuid_hashes(pa.array(long_column))[-3:].tolist() == [hash_of(text) for text in long_column[-3:]]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 2), st.integers(0, 5 * SLICE_OFFSETS), st.text()),
        max_size=300,
    )
)
def test_sums_equal_sums_row_by_row(rows: list[tuple[str, int | None, int, str]]) -> None:
    expected: dict[tuple[str, int], SliceSums] = {}
    for topic, partition, offset, uuid in rows:
        name = topic if partition is None else f"{topic}/{partition}"
        row = SliceSums({"event": 1}, offset, hash_of(uuid))
        expected.setdefault((name, offset // SLICE_OFFSETS), SliceSums()).absorb(row)
    topics, partitions, offsets, uuids = zip(*rows, strict=True) if rows else ([], [], [], [])
    names = with_partitions(pa.array(topics, pa.string()), pa.array(partitions, pa.int32()))
    sums = RowSums()
    sums.add_rows(names, np.array(offsets, np.int64), pa.array(uuids, pa.string()), "event")
    assert sums == expected
    assert RowSums.from_document(sums.document()) == sums
    sums.absorb(RowSums(sums), -1)
    assert (sums.rows, {part.offsets for part in sums.values()}) == (0, {0} if rows else set())


def test_sums_beyond_64_bits_are_exact() -> None:
    sums = RowSums()
    offsets = np.full(8, (1 << 62) + 3, np.int64)
    sums.add_rows(pa.array(["t"] * 8), offsets, None, "message")
    ((topic, number),) = sums
    assert (topic, sums[topic, number].offsets) == ("t", 8 * ((1 << 62) + 3))
    assert RowSums.from_document(sums.document()) == sums
