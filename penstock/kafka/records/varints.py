"""Zigzag varints of whole columns: a numpy call per byte of a varint, not a Python statement per number."""

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
MAX_BYTES_64, MAX_BYTES_32 = 10, 5
"""Limit: bytes of a varint of 64 bits, and of 32 bits."""


def read_one(octets: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a number of up to 32 bits at ``position`` and where it ends. Raises IndexError for an invalid one."""
    number = octets[position]
    if number >= 0x80:
        # Fast path: most numbers have one or two bytes; only longer ones enter the loop.
        number, position = number & 0x7F | octets[position + 1] << 7, position + 1
        shift = 14
        while number >> shift:
            if shift == 7 * MAX_BYTES_32:
                raise IndexError
            number, position = number & (1 << shift) - 1 | octets[position + 1] << shift, position + 1
            shift += 7
    return (number >> 1) ^ -(number & 1), position + 1


def read(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """Return the numbers at ``positions`` of ``data``, and where each ends.

    A number that runs past the end of ``data`` ends behind it. Raises BadRecords for a number that is too long.
    """
    # Positions past the end are clipped: they read any byte, and the caller rejects their ends.
    byte = data.take(positions, mode="clip")
    ends = positions + 1
    if byte.max(initial=0) < 0x80:
        # Fast path: all numbers have one byte.
        return _ONE_BYTE_NUMBERS.take(byte), ends
    numbers = (byte & 0x7F).astype(np.uint64)
    more = np.flatnonzero(byte & 0x80)
    for shift in range(7, 7 * MAX_BYTES_64, 7):
        if not len(more):
            return zigzag(numbers), ends
        byte = data.take(ends[more], mode="clip")
        numbers[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        ends[more] += 1
        more = more[(byte & 0x80) != 0]
    if len(more):
        raise BadRecords("a number has more than 64 bits")
    return zigzag(numbers), ends


def zigzag(unsigned: npt.NDArray[np.uint64]) -> Ints:
    """Decode zigzag: even numbers are positive, odd ones negative."""
    return (unsigned >> np.uint64(1)).astype(np.int64) ^ -(unsigned & np.uint64(1)).astype(np.int64)


_MAX_UNSIGNED = np.uint64(2**64 - 1)
_ONE_BYTE_NUMBERS = zigzag(np.arange(0x80, dtype=np.uint64))


def sizes(values: Ints) -> Ints:
    """Return the bytes that each number takes as varint."""
    unsigned = _unsigned(values)
    widths = np.ones(len(values), np.int64)
    for shift in range(7, 7 * MAX_BYTES_64, 7):
        longer = unsigned >= np.uint64(1 << shift)
        if not longer.any():
            break
        widths += longer
    return widths


def _unsigned(values: Ints) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).astype(np.uint64)


def joined(columns: Sequence[Ints | bytes]) -> pa.Array[Any]:
    """Return for each row the varints of its numbers; ``bytes`` are the same in all rows."""
    rows = next(len(column) for column in columns if not isinstance(column, bytes))
    byte_columns = [byte_column for column in columns for byte_column in _byte_columns(column)]
    matrix, ends = np.empty((rows, len(byte_columns)), np.uint8), np.zeros(rows + 1, np.int32)
    for number, (byte, _) in enumerate(byte_columns):
        matrix[:, number] = byte
    if all(present is None for _, present in byte_columns):
        # Fast path: all rows have the same length, so nothing is masked out.
        ends[1:] = len(byte_columns)
        return binary_array(np.cumsum(ends, dtype=np.int32), matrix)
    mask = np.ones(matrix.shape, np.bool_)
    for number, (_, present) in enumerate(byte_columns):
        if present is not None:
            mask[:, number] = present
    np.cumsum(mask.sum(axis=1), out=ends[1:])
    return binary_array(ends, matrix[mask])


_ByteColumn = tuple[Bytes | int, npt.NDArray[np.bool_] | None]


def _byte_columns(column: Ints | bytes) -> Iterator[_ByteColumn]:
    """Yield for each byte its value per row (or for all), and the rows that have it; None means all rows."""
    if isinstance(column, bytes):
        yield from ((byte, None) for byte in column)
        return
    values = _unsigned(column)
    low, high = (int(edge) for edge in (values.min(initial=_MAX_UNSIGNED), values.max(initial=0)))
    present = None
    for shift in range(0, max(high.bit_length(), 1), 7):
        continues = values >> np.uint64(shift + 7) != 0 if low >> (shift + 7) == 0 != high >> (shift + 7) else None
        byte = (values >> np.uint64(shift)).astype(np.uint8) & np.uint8(0x7F)
        if continues is not None:
            byte |= continues.view(np.uint8) << np.uint8(7)
        elif high >> (shift + 7):
            byte |= np.uint8(0x80)
        yield (int(byte[0]) if low == high else byte), present
        present = continues if continues is not None else present
