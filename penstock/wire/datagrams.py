"""Datagrams of one receive round, seen as columns over the memory that received them.

Each datagram of a round occupies a row of a slot matrix; the bytes beyond the slot size continue in the same row of an
overflow matrix. Interleaved offsets (start0, end0, start1, end1, ...) over the matrix describe an Arrow array whose
even entries are the datagrams: one copy in C++, no loop in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import binary_array, from_numpy

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SLOT_SIZE = 2048
"""Slot size of ``Datagrams.from_bytes``: any datagram of one Ethernet frame fits."""
MIN_SLOT_SIZE = 24
"""Minimum slot size: a complete fragment header, so that headers can be read as columns."""
_MAX_ROUND_BYTES = 2**31 - 1  # Arrow's binary type has 32-bit offsets


@dataclass(frozen=True, slots=True)
class Datagrams:
    """``n`` datagrams in order of arrival, as views on the receive buffer.

    ``matrix``: uint8 (n or more, slot size of at least 24), C-contiguous; ``overflow``: uint8 (n or more, any width,
    also 0), the bytes beyond the slot size; ``lengths``: int64 (n,), bytes of the whole datagram; ``addresses``: (n,),
    an identity of the source address of up to 64 bits; ``ports``: uint16 (n,). Raises ValueError if the shapes
    disagree. Invariant: every method that returns bytes copies them, so the buffer may be reused as soon as the round
    is decoded.
    """

    matrix: Bytes
    overflow: Bytes
    lengths: Ints
    addresses: npt.NDArray[np.unsignedinteger[Any]]
    ports: npt.NDArray[np.uint16]

    def __post_init__(self) -> None:
        rows = len(self.lengths)
        if self.matrix.ndim != 2 or self.overflow.ndim != 2 or self.matrix.shape[1] < MIN_SLOT_SIZE:
            raise ValueError(f"matrix and overflow are two-dimensional, with slots of at least {MIN_SLOT_SIZE} bytes")
        if min(len(self.matrix), len(self.overflow)) < rows or len(self.addresses) != rows or len(self.ports) != rows:
            raise ValueError("matrix, overflow, lengths, addresses and ports differ in their number of rows")
        if self.matrix.size + self.overflow.size > _MAX_ROUND_BYTES:
            raise ValueError("a round holds at most 2 GiB")

    @classmethod
    def from_bytes(
        cls,
        datagrams: Sequence[bytes],
        *,
        ports: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        slot_size: int = SLOT_SIZE,
    ) -> Datagrams:
        """Copy ``datagrams`` into a round; ports and addresses default to 0."""
        lengths = np.array([len(datagram) for datagram in datagrams], np.int64)
        beyond = max(int(lengths.max(initial=0)) - slot_size, 0)
        joined = np.zeros((len(datagrams), slot_size + beyond), np.uint8)
        for row, datagram in zip(joined, datagrams, strict=True):
            row[: len(datagram)] = np.frombuffer(datagram, np.uint8)
        zeros = np.zeros(len(datagrams), np.int64)
        return cls(
            matrix=np.ascontiguousarray(joined[:, :slot_size]),
            overflow=np.ascontiguousarray(joined[:, slot_size:]),
            lengths=lengths,
            addresses=np.array(zeros if addresses is None else addresses, np.uint64),
            ports=np.array(zeros if ports is None else ports, np.uint16),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def range(self, begin: int, end: int) -> Datagrams:
        """Return the datagrams [begin, end), as views on the same memory."""
        rows = slice(begin, end)
        return Datagrams(
            self.matrix[rows], self.overflow[rows], self.lengths[rows], self.addresses[rows], self.ports[rows]
        )

    def payloads(
        self, indices: Ints | None = None, starts: Ints | None = None, ends: Ints | None = None
    ) -> pa.Array[Any]:
        """Return the bytes of the datagrams ``indices`` (default: all), as one array of type ``pa.binary()``.

        ``starts`` and ``ends`` (same shape as ``indices``) select the bytes [start, end) of each.
        """
        slot = self.matrix.shape[1]
        # Fast path: a whole round within its slots is sorted already and needs no overflow.
        if indices is None and starts is None and ends is None and self.lengths.max(initial=0) <= slot:
            begins = np.arange(0, len(self) * slot, slot)
            return sorted_spans(self.matrix, begins, begins + self.lengths)
        rows = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64)
        received = np.minimum(self.lengths[rows], slot + self.overflow.shape[1])
        end = received if ends is None else np.minimum(ends, received)
        begin = np.minimum(0 if starts is None else starts, end)
        near = spans(self.matrix, rows * slot + np.minimum(begin, slot), rows * slot + np.minimum(end, slot))
        far = end > slot
        return self._append_overflow(near, rows, begin, end, far) if far.any() else near

    def _append_overflow(
        self, near: pa.Array[Any], rows: Ints, begin: Ints, end: Ints, far: npt.NDArray[np.bool_]
    ) -> pa.Array[Any]:
        """Return ``near`` with the overflow bytes of the datagrams in ``far`` appended."""
        slot, width = self.matrix.shape[1], self.overflow.shape[1]
        base = rows[far] * width - slot
        rest = spans(self.overflow, base + np.maximum(begin[far], slot), base + end[far])
        if len(rest) == len(near):
            return _concatenate_pairs(near, rest)
        mask = pa.array(far)
        joined: pa.Array[Any] = pc.replace_with_mask(near, mask, _concatenate_pairs(near.filter(mask), rest))
        return joined


def _concatenate_pairs(near: pa.Array[Any], rest: pa.Array[Any]) -> pa.Array[Any]:
    joined: pa.Array[Any] = pc.binary_join_element_wise(near, rest, b"")  # type: ignore[call-overload]  # the stub: no scalar
    return joined


def spans(buffer: Bytes, starts: Ints, ends: Ints) -> pa.Array[Any]:
    """Copy the bytes [start, end) of ``buffer`` for each pair into one array of type ``pa.binary()``.

    ``buffer`` is C-contiguous and smaller than 2 GiB.
    """
    # The gaps between spans become entries of the array too and must not be negative, so the spans are sorted first.
    if (starts[1:] >= ends[:-1]).all():
        return sorted_spans(buffer, starts, ends)
    rank = np.argsort(starts, kind="stable")
    ranks = np.empty(len(rank), np.int64)
    ranks[rank] = np.arange(len(rank))
    return sorted_spans(buffer, starts[rank], ends[rank], ranks)


def sorted_spans(buffer: Bytes, starts: Ints, ends: Ints, selected: Ints | None = None) -> pa.Array[Any]:
    """Copy spans that are sorted and do not overlap, like ``spans``; ``selected`` picks and orders some of them."""
    if not len(starts):
        return pa.array([], pa.binary())
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    entries = np.arange(0, 2 * len(starts), 2) if selected is None else 2 * selected
    return binary_array(offsets, buffer).take(from_numpy(entries))


def joined_runs(values: pa.Array[Any], starts: np.ndarray, separator: str | bytes) -> pa.Array[Any]:
    """Join each run of ``values`` (binary or string): runs begin at ``starts`` and end at the next start."""
    offsets = pa.array(np.append(starts, len(values)).astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, values)  # type: ignore[call-overload]  # the stub: int64 alone
    joined: pa.Array[Any] = pc.binary_join(lists, separator)  # type: ignore[assignment]  # the stub: also scalars
    return joined
