"""The offsets of one partition that a table has, and the offsets that it has more than once.

Rows of a table come in files, mostly with long runs of consecutive offsets, so runs (``landing.offset_runs``) need far
less memory than offsets. Where a table has no order, such as after a shuffle, runs are single offsets; a block of
offsets with many of them becomes a bitmap.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.landing.offset_runs import NO_RUNS, Offsets, Runs, as_runs, offsets_of

MERGE_RANGES = 1 << 20
"""Limit: ranges that wait to be merged, 16 MiB."""
BLOCK_BITS = 23
BLOCK_BYTES = 1 << BLOCK_BITS - 3
DENSE_RUNS = 1 << 15
"""Runs of a block from which on it becomes a bitmap: they take 512 KiB, and the bitmap 1 MiB."""


class OffsetSet:
    """A set of offsets. One thread."""

    def __init__(self) -> None:
        self._runs = NO_RUNS
        self._bitmaps: dict[int, npt.NDArray[np.uint8]] = {}
        """Bitmaps by number of the block; the runs have no offsets of these blocks."""

    @property
    def size_bytes(self) -> int:
        """The memory that the set takes."""
        return self._runs.nbytes + len(self._bitmaps) * BLOCK_BYTES

    @property
    def has_bitmaps(self) -> bool:
        return bool(self._bitmaps)

    def add_runs(self, ranges: Runs) -> Runs:
        """Add ranges in any order; return the offsets that lie in several of them or were in the set."""
        ranges, repeated = self._add_to_bitmaps(ranges) if self._bitmaps else (ranges, NO_RUNS)
        ranges = np.concatenate([self._runs, ranges])
        self._runs = as_runs(ranges)
        repeated = as_runs(np.concatenate([repeated, overlaps(ranges)]))
        self._make_bitmaps()
        return repeated

    def add_sorted(self, offsets: Offsets) -> tuple[Offsets, Offsets]:
        """Add the offsets that lie in blocks with a bitmap; return the other ones, and repeated ones."""
        sparse, repeated = [offsets[:0]], [offsets[:0]]
        blocks = offsets >> BLOCK_BITS
        first = np.flatnonzero(np.r_[True, blocks[1:] != blocks[:-1]])
        for block, begin, end in zip(
            blocks[first].tolist(), first.tolist(), [*first[1:].tolist(), len(offsets)], strict=True
        ):
            bitmap = self._bitmaps.get(block)
            if bitmap is None:
                sparse.append(offsets[begin:end])
            else:
                repeated.append(_set_bits(bitmap, offsets[begin:end]))
        return np.concatenate(sparse), np.concatenate(repeated)

    def _add_to_bitmaps(self, ranges: Runs) -> tuple[Runs, Runs]:
        """Add the parts of ranges that lie in blocks with a bitmap; return the other parts, and repeated offsets."""
        parts = _cut_at_blocks(ranges)
        is_dense = np.isin(parts[:, 0] >> BLOCK_BITS, np.array(list(self._bitmaps), np.int64))
        repeated = [NO_RUNS]
        dense = parts[is_dense][np.argsort(parts[is_dense][:, 0], kind="stable")]
        blocks = dense[:, 0] >> BLOCK_BITS
        for block in np.unique(blocks).tolist():
            of_block = dense[np.searchsorted(blocks, block) : np.searchsorted(blocks, block, "right")]
            twice = overlaps(of_block)
            again = _set_bits(self._bitmaps[block], offsets_of(of_block))
            repeated += [twice, np.stack([again, again + 1], axis=1)]
        return parts[~is_dense], as_runs(np.concatenate(repeated))

    def _make_bitmaps(self) -> None:
        if len(self._runs) < DENSE_RUNS:
            return
        blocks, counts = np.unique(self._runs[:, 0] >> BLOCK_BITS, return_counts=True)
        dense = blocks[counts >= DENSE_RUNS]
        if len(dense):
            runs, self._runs = self._runs, NO_RUNS
            self._bitmaps |= {block: np.zeros(BLOCK_BYTES, np.uint8) for block in dense.tolist()}
            self._runs = as_runs(self._add_to_bitmaps(runs)[0])

    @property
    def runs(self) -> Runs:
        """The offsets."""
        if not self._bitmaps:
            return self._runs
        return as_runs(np.concatenate([self._runs, *map(_runs_of_bitmap, self._bitmaps, self._bitmaps.values())]))


class OffsetRanges:
    """A set of offsets that also knows repetitions. One thread."""

    def __init__(self) -> None:
        self._waiting: list[Runs] = []
        self._waiting_count = 0
        self._present, self._repeated = OffsetSet(), OffsetSet()
        self.rows = 0
        """Number of added offsets, with repetitions."""

    @property
    def size_bytes(self) -> int:
        """The memory that the offsets take."""
        return self._present.size_bytes + self._repeated.size_bytes + self._waiting_count * 16

    def add(self, offsets: Offsets) -> None:
        """Add offsets in any order, shape (n,)."""
        if not len(offsets):
            return
        self.rows += len(offsets)
        is_step = offsets[1:] == offsets[:-1] + 1
        if not is_step.all() and (offsets[1:] <= offsets[:-1]).any():
            # Repeated offsets of one batch need a range each, which the merge finds to overlap.
            offsets = np.sort(offsets)
            is_step = offsets[1:] == offsets[:-1] + 1
        if self._present.has_bitmaps:
            offsets, repeated = self._present.add_sorted(offsets)
            self._repeated.add_runs(np.stack([repeated, repeated + 1], axis=1))
            if not len(offsets):
                return
            is_step = offsets[1:] == offsets[:-1] + 1
        first = np.r_[0, np.flatnonzero(~is_step) + 1]
        last = np.r_[first[1:] - 1, len(offsets) - 1]
        self._waiting.append(np.stack([offsets[first], offsets[last] + 1], axis=1))
        self._waiting_count += len(first)
        if self._waiting_count > MERGE_RANGES:
            self._merge()

    def _merge(self) -> None:
        if self._waiting:
            ranges = np.concatenate(self._waiting)
            self._waiting, self._waiting_count = [], 0
            self._repeated.add_runs(self._present.add_runs(ranges))

    @property
    def ranges(self) -> Runs:
        """The offsets."""
        self._merge()
        return self._present.runs

    @property
    def repeated(self) -> Runs:
        """The offsets that were added more than once."""
        self._merge()
        return self._repeated.runs


def overlaps(ranges: Runs) -> Runs:
    """Return the offsets that lie in more than one of ``ranges``, which may be in any order."""
    begins, ends = ranges[np.argsort(ranges[:, 0], kind="stable")].T
    # The earlier range that reaches farthest begins before this one, so it covers all of the overlap.
    reached = np.maximum.accumulate(ends)[:-1]
    return as_runs(np.stack([begins[1:], np.minimum(ends[1:], reached)], axis=1))


def _set_bits(bitmap: npt.NDArray[np.uint8], offsets: Offsets) -> Offsets:
    """Set the bits of ascending offsets of one block; return the offsets whose bits were set, or that repeat."""
    inside = (offsets & (1 << BLOCK_BITS) - 1).astype(np.uint32)
    index, bits = inside >> 3, np.left_shift(1, inside & 7, dtype=np.uint8, casting="unsafe")
    is_repeated = (bitmap[index] & bits) != 0
    is_repeated[1:] |= inside[1:] == inside[:-1]
    first = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
    bitmap[index[first]] |= np.bitwise_or.reduceat(bits, first)
    repeated: Offsets = offsets[is_repeated]
    return repeated


def _runs_of_bitmap(block: int, bitmap: npt.NDArray[np.uint8]) -> Runs:
    bits = np.unpackbits(bitmap, bitorder="little").view(np.int8)
    edges = np.diff(bits, prepend=np.int8(0), append=np.int8(0))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1) + (block << BLOCK_BITS)


def _cut_at_blocks(ranges: Runs) -> Runs:
    """Return the ranges in parts that lie in one block each."""
    low, high = ranges[:, 0] >> BLOCK_BITS, ranges[:, 1] - 1 >> BLOCK_BITS
    counts = np.maximum(high - low + 1, 0)
    if (counts == 1).all():
        return ranges
    blocks = np.repeat(low - np.r_[0, np.cumsum(counts)[:-1]], counts) + np.arange(counts.sum())
    begins = np.maximum(np.repeat(ranges[:, 0], counts), blocks << BLOCK_BITS)
    return np.stack([begins, np.minimum(np.repeat(ranges[:, 1], counts), blocks + 1 << BLOCK_BITS)], axis=1)
