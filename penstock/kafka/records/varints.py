"""Zigzag varints, whole columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kafka.errors import BadRecords
from penstock.records import binary_array

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
LONGEST, WIDEST = 10, 5
"""Bytes of the longest varint of 64 bits, and of 32."""


def read_one(octets: bytes | memoryview, at: int) -> tuple[int, int]:
    """The value of up to 32 bits that begins at ``at``, and where it ends. Raises IndexError where there is none."""
    found = octets[at]
    if found >= 0x80:
        found, at = found & 0x7F | octets[at + 1] << 7, at + 1
        shift = 14
        while found >> shift:
            if shift == 7 * WIDEST:
                raise IndexError
            found, at = found & (1 << shift) - 1 | octets[at + 1] << shift, at + 1
            shift += 7
    return (found >> 1) ^ -(found & 1), at + 1


def read(data: Bytes, places: Ints) -> tuple[Ints, Ints]:
    """The values that begin at ``places`` of ``data``, and where each ends.

    One that runs past the end has an end behind it. Raises BadRecords for one that is too long.
    """
    byte = data.take(places, mode="clip")
    ends = places + 1
    if byte.max(initial=0) < 0x80:
        return _OF_ONE_BYTE.take(byte), ends
    found = (byte & 0x7F).astype(np.uint64)
    more = np.flatnonzero(byte & 0x80)
    for shift in range(7, 7 * LONGEST, 7):
        if not len(more):
            return zigzag(found), ends
        byte = data.take(ends[more], mode="clip")
        found[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        ends[more] += 1
        more = more[(byte & 0x80) != 0]
    if len(more):
        raise BadRecords("a number has more than 64 bits")
    return zigzag(found), ends


def zigzag(found: npt.NDArray[np.uint64]) -> Ints:
    """The signed numbers that stand in ``found``."""
    return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)


_MOST = np.uint64(2**64 - 1)
_OF_ONE_BYTE = zigzag(np.arange(0x80, dtype=np.uint64))


def sizes(values: Ints) -> Ints:
    """How many bytes each value takes."""
    found = _unsigned(values)
    widths = np.ones(len(values), np.int64)
    for shift in range(7, 7 * LONGEST, 7):
        longer = found >= np.uint64(1 << shift)
        if not longer.any():
            break
        widths += longer
    return widths


def _unsigned(values: Ints) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).astype(np.uint64)


def joined(columns: Sequence[Ints | bytes]) -> pa.Array[Any]:
    """For each row, the varints of its values one after the other; bytes stand in all rows alike."""
    rows = next(len(column) for column in columns if not isinstance(column, bytes))
    places = [place for column in columns for place in _places(column)]
    matrix, ends = np.empty((rows, len(places)), np.uint8), np.zeros(rows + 1, np.int32)
    for number, (byte, _) in enumerate(places):
        matrix[:, number] = byte
    if all(there is None for _, there in places):
        ends[1:] = len(places)
        return binary_array(np.cumsum(ends, dtype=np.int32), matrix)
    mask = np.ones(matrix.shape, np.bool_)
    for number, (_, there) in enumerate(places):
        if there is not None:
            mask[:, number] = there
    np.cumsum(mask.sum(axis=1), out=ends[1:])
    return binary_array(ends, matrix[mask])


_Place = tuple[Bytes | int, npt.NDArray[np.bool_] | None]


def _places(column: Ints | bytes) -> Iterator[_Place]:
    """Byte by byte what stands there in each row (or in all), and which rows have it, unless all do."""
    if isinstance(column, bytes):
        yield from ((byte, None) for byte in column)
        return
    values = _unsigned(column)
    low, high = (int(edge) for edge in (values.min(initial=_MOST), values.max(initial=0)))
    there = None
    for shift in range(0, max(high.bit_length(), 1), 7):
        more = values >> np.uint64(shift + 7) != 0 if low >> (shift + 7) == 0 != high >> (shift + 7) else None
        byte = (values >> np.uint64(shift)).astype(np.uint8) & np.uint8(0x7F)
        if more is not None:
            byte |= more.view(np.uint8) << np.uint8(7)
        elif high >> (shift + 7):
            byte |= np.uint8(0x80)
        yield (int(byte[0]) if low == high else byte), there
        there = more if more is not None else there
