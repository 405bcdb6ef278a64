"""Datagrams of one receive round, seen as columns over the memory they were received into.

A round's datagrams lie in a slot matrix, one a row; what does not fit into a row continues in the same
row of an overflow matrix. Their bytes become one Arrow array by interleaving offsets (start0, end0,
start1, end1, ...) over the matrix and taking the even entries: one copy in C++, no loop in Python.
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
"""Width of the slots that ``Datagrams.from_bytes`` makes: holds any datagram of an Ethernet frame."""
SMALLEST_SLOT = 24
"""A slot must hold a whole fragment header, so that headers can be read as columns."""
_LARGEST_ROUND = 2**31 - 1  # Arrow's binary type has 32-bit offsets


@dataclass(frozen=True, slots=True)
class Datagrams:
    """``n`` datagrams in order of arrival.

    ``matrix``: uint8 (n or more, slot size of at least 24), C-contiguous; ``overflow``: uint8 (n or more,
    any width, also 0), the bytes beyond the slot size; ``lengths``: int64 (n,), bytes of the whole
    datagram; ``addresses``: (n,), an identity of the source address of up to 64 bits; ``ports``: uint16 (n,).
    Raises ValueError for shapes that do not fit together. Whatever is taken out of it is copied: the
    memory may be received into again afterwards.
    """

    matrix: Bytes
    overflow: Bytes
    lengths: Ints
    addresses: npt.NDArray[np.unsignedinteger[Any]]
    ports: npt.NDArray[np.uint16]

    def __post_init__(self) -> None:
        rows = len(self.lengths)
        if self.matrix.ndim != 2 or self.overflow.ndim != 2 or self.matrix.shape[1] < SMALLEST_SLOT:
            raise ValueError(f"matrix and overflow are two-dimensional, with slots of at least {SMALLEST_SLOT} bytes")
        if min(len(self.matrix), len(self.overflow)) < rows or len(self.addresses) != rows or len(self.ports) != rows:
            raise ValueError("matrix, overflow, lengths, addresses and ports differ in their number of rows")
        if self.matrix.size + self.overflow.size > _LARGEST_ROUND:
            raise ValueError("a round holds at most 2 GiB")

    @classmethod
    def of(
        cls,
        datagrams: Sequence[bytes],
        *,
        ports: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        slot_size: int = SLOT_SIZE,
    ) -> Datagrams:
        """A copy of ``datagrams`` as a round; ports and addresses are 0 where not given."""
        lengths = np.array([len(each) for each in datagrams], np.int64)
        beyond = max(int(lengths.max(initial=0)) - slot_size, 0)
        joined = np.zeros((len(datagrams), slot_size + beyond), np.uint8)
        for row, each in zip(joined, datagrams, strict=True):
            row[: len(each)] = np.frombuffer(each, np.uint8)
        none = np.zeros(len(datagrams), np.int64)
        return cls(
            matrix=np.ascontiguousarray(joined[:, :slot_size]),
            overflow=np.ascontiguousarray(joined[:, slot_size:]),
            lengths=lengths,
            addresses=np.array(none if addresses is None else addresses, np.uint64),
            ports=np.array(none if ports is None else ports, np.uint16),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def range(self, begin: int, end: int) -> Datagrams:
        """The datagrams [begin, end), as views on the same memory."""
        rows = slice(begin, end)
        return Datagrams(
            self.matrix[rows], self.overflow[rows], self.lengths[rows], self.addresses[rows], self.ports[rows]
        )

    def payloads(
        self, indices: Ints | None = None, starts: Ints | None = None, ends: Ints | None = None
    ) -> pa.Array[Any]:
        """The bytes of the datagrams ``indices`` (default: all), as one array of type ``pa.binary()``.

        ``starts`` and ``ends`` (same shape as the result) select the bytes [start, end) of each.
        """
        slot = self.matrix.shape[1]
        if indices is None and starts is None and ends is None and self.lengths.max(initial=0) <= slot:
            begins = np.arange(0, len(self) * slot, slot)
            return in_order(self.matrix, begins, begins + self.lengths)
        rows = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64)
        whole = np.minimum(self.lengths[rows], slot + self.overflow.shape[1])
        end = whole if ends is None else np.minimum(ends, whole)
        begin = np.minimum(0 if starts is None else starts, end)
        near = spans(self.matrix, rows * slot + np.minimum(begin, slot), rows * slot + np.minimum(end, slot))
        far = end > slot
        return self._joined(near, rows, begin, end, far) if far.any() else near

    def _joined(
        self, near: pa.Array[Any], rows: Ints, begin: Ints, end: Ints, far: npt.NDArray[np.bool_]
    ) -> pa.Array[Any]:
        """``near`` with what the datagrams where ``far`` have in the overflow matrix put behind."""
        slot, width = self.matrix.shape[1], self.overflow.shape[1]
        base = rows[far] * width - slot
        rest = spans(self.overflow, base + np.maximum(begin[far], slot), base + end[far])
        if len(rest) == len(near):
            return _pairs(near, rest)
        mask = pa.array(far)
        whole: pa.Array[Any] = pc.replace_with_mask(near, mask, _pairs(near.filter(mask), rest))
        return whole


def _pairs(near: pa.Array[Any], rest: pa.Array[Any]) -> pa.Array[Any]:
    """Each value of ``near`` with that of ``rest`` behind it."""
    joined: pa.Array[Any] = pc.binary_join_element_wise(near, rest, b"")  # type: ignore[call-overload]  # the stub: no scalar
    return joined


def spans(buffer: Bytes, starts: Ints, ends: Ints) -> pa.Array[Any]:
    """The bytes [start, end) of ``buffer`` for each pair, as one array of type ``pa.binary()``, copied.

    ``buffer`` is C-contiguous and holds less than 2 GiB.
    """
    # Between two spans lies a gap; the gaps' lengths must not be negative, so the spans are put in order first.
    if (starts[1:] >= ends[:-1]).all():
        return in_order(buffer, starts, ends)
    rank = np.argsort(starts, kind="stable")
    where = np.empty(len(rank), np.int64)
    where[rank] = np.arange(len(rank))
    return in_order(buffer, starts[rank], ends[rank], where)


def in_order(buffer: Bytes, starts: Ints, ends: Ints, taken: Ints | None = None) -> pa.Array[Any]:
    """As ``spans``, for spans that lie one behind the other; ``taken`` says which of them are wanted."""
    if not len(starts):
        return pa.array([], pa.binary())
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    wanted = np.arange(0, 2 * len(starts), 2) if taken is None else 2 * taken
    return binary_array(offsets, buffer).take(from_numpy(wanted))


def joined_runs(values: pa.Array[Any], starts: np.ndarray, separator: str | bytes) -> pa.Array[Any]:
    """The runs of ``values`` (binary or string) that begin at ``starts`` and end where the next one begins, joined."""
    offsets = pa.array(np.append(starts, len(values)).astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, values)  # type: ignore[call-overload]  # the stub: int64 alone
    joined: pa.Array[Any] = pc.binary_join(lists, separator)  # type: ignore[assignment]  # the stub: also scalars
    return joined
