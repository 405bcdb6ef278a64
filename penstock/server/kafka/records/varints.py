"""Zigzag varints, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.records import binary_array
from penstock.server.kafka.errors import BadRecords

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
LONGEST = 10
"""Bytes of the longest varint of 64 bits."""


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
    parts = [_matrix(column, rows) for column in columns]
    matrix, mask = (np.hstack(side) for side in zip(*parts, strict=True))
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(mask.sum(axis=1), out=ends[1:])
    return binary_array(ends, matrix[mask])


def _matrix(column: Ints | bytes, rows: int) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """The bytes of each row, and which of them count."""
    if isinstance(column, bytes):
        same = np.broadcast_to(np.frombuffer(column, np.uint8), (rows, len(column)))
        return same, np.ones(same.shape, np.bool_)
    widths = sizes(column)
    places = np.arange(int(widths.max(initial=1)))
    shifted = (_unsigned(column)[:, None] >> (7 * places).astype(np.uint64)) & np.uint64(0x7F)
    last = (widths - 1)[:, None]
    return shifted.astype(np.uint8) | np.where(places < last, 0x80, 0).astype(np.uint8), places <= last
