"""Sums of rows by slice, as SQL computes them."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.md5_columns import MIN_ROWS_OF_COLUMN, ROWS_AT_ONCE, text_hashes
from penstock.landing.row_sums import SLICE_OFFSETS, RowSums, SliceSums, with_partitions


def hash_of(text: str | None) -> int:
    return 0 if text is None else int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:15], 16)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.text(max_size=200), max_size=20), st.integers(0, 20))
def test_hashes_are_the_first_digits_of_md5(texts: list[str | None], begin: int) -> None:
    column = pa.array(texts, pa.string())[begin:]
    assert text_hashes(column).tolist() == [hash_of(text) for text in texts[begin:]]


def test_texts_around_the_size_of_a_block_are_hashed() -> None:
    texts = ["x" * length for length in (0, 54, 55, 56, 63, 64, 65, 118, 119, 120, 256, 9000)]
    assert text_hashes(pa.array(texts)).tolist() == [hash_of(text) for text in texts]
    # So many of each size are hashed as columns.
    many = [*texts, None] * MIN_ROWS_OF_COLUMN
    assert text_hashes(pa.array(many)).tolist() == [*map(hash_of, [*texts, None])] * MIN_ROWS_OF_COLUMN
    long_column = [f"{number:036d}" for number in range(ROWS_AT_ONCE + 2)]
    assert text_hashes(pa.array(long_column))[-3:].tolist() == [hash_of(text) for text in long_column[-3:]]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.none() | st.integers(0, 2),
            st.integers(0, 5 * SLICE_OFFSETS),
            st.text(),
            st.integers(-10, 1 << 62),
        ),
        max_size=300,
    )
)
def test_sums_equal_sums_row_by_row(rows: list[tuple[str, int | None, int, str, int]]) -> None:
    expected: dict[tuple[str, int], SliceSums] = {}
    for topic, partition, offset, uuid, row_hash in rows:
        name = topic if partition is None else f"{topic}/{partition}"
        position = offset % SLICE_OFFSETS
        row = SliceSums({"event": 1}, offset, hash_of(uuid), row_hash, row_hash * position)
        expected.setdefault((name, offset // SLICE_OFFSETS), SliceSums()).absorb(row)
    topics, partitions, offsets, uuids, hashes = zip(*rows, strict=True) if rows else ([], [], [], [], [])
    names = with_partitions(pa.array(topics, pa.string()), pa.array(partitions, pa.int32()))
    sums = RowSums()
    row_hashes = np.array(hashes, np.int64)
    sums.add_rows(names, np.array(offsets, np.int64), pa.array(uuids, pa.string()), "event", row_hashes)
    assert sums == expected
    assert RowSums.from_document(sums.document()) == sums
    assert sums.are_hashed
    sums.absorb(RowSums(sums), -1)
    assert (sums.rows, {part.offsets for part in sums.values()}) == (0, {0} if rows else set())


def test_sums_beyond_64_bits_are_exact() -> None:
    sums = RowSums()
    offsets = np.full(8, (1 << 62) + 3, np.int64)
    sums.add_rows(pa.array(["t"] * 8), offsets, None, "message")
    ((topic, number),) = sums
    assert (topic, sums[topic, number].offsets) == ("t", 8 * ((1 << 62) + 3))
    assert RowSums.from_document(sums.document()) == sums
