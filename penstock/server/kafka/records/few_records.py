"""Rows of a batch with a few records, one after the other: for so few, whole columns cost more.

A numpy call for a column takes as long as some records do, and many of them let go of the interpreter, which another
thread takes each time. Measured for 15 records of 1 KB: 64 us by columns, 196 with a busy thread beside it.
"""

from __future__ import annotations

from penstock.records import Row, Rows
from penstock.server.kafka.records.varints import read_one

FEW = 40
"""Up to so many records it is quicker."""


def few_rows(octets: bytes, count: int) -> Rows | None:
    """``count`` records without headers, of which ``octets`` consists; None where they are anything else."""
    rows: list[Row] = []
    at = 0
    try:
        for number in range(count):
            length, at = read_one(octets, at)
            end = at + length
            _, at = read_one(octets, at + 1)  # behind the attributes, the producer's timestamp
            told, at = read_one(octets, at)
            key, at = _field(octets, at)
            value, at = _field(octets, at)
            headers, at = read_one(octets, at)
            if headers or told != number or at != end:
                return None
            rows.append((key, value, None, None))
    except IndexError:
        return None
    return Rows(rows) if at == len(octets) else None


def _field(octets: bytes, at: int) -> tuple[bytes | None, int]:
    """The bytes behind a length, and where they end. Raises IndexError."""
    size, at = read_one(octets, at)
    if size < 0:
        return (None, at) if size == -1 else (None, len(octets) + 1)
    return octets[at : at + size], at + size
