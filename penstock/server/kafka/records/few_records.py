"""Rows of a batch with a few records, one after the other: for so few, whole columns cost more.

A numpy call for a column takes as long as some records do, and many of them let go of the interpreter, which another
thread takes each time. Measured on an idle machine: 15 records of 1 KB 8 us, by columns 54; 145 of 100 B 66 and 101;
what is made of these rows by the log's commit is less, too.
"""

from __future__ import annotations

import numpy as np

from penstock.kafka.records.varints import LONGEST, joined, read_one
from penstock.records import Row, Rows, values_of

FEW, FEW_PLAIN = 40, 256
"""Up to so many records it is quicker; and where they have nothing but values."""


def few_rows(octets: bytes, count: int) -> Rows | None:
    """``count`` records without headers, of which ``octets`` consists; None where they are anything else, or many."""
    try:
        rows = _plain_rows(octets, count) if count <= FEW_PLAIN else None
        return _rows(octets, count) if rows is None and count <= FEW else rows
    except IndexError:
        return None


_MARKS = values_of(joined([np.arange(FEW_PLAIN), b"\x01"]))
"""What stands in each record before its value: its number, and that it has no key."""


def _plain_rows(octets: bytes, count: int) -> Rows | None:
    """Records with nothing but values, of less than 8 KiB each. Calls would take as long as what is done here."""
    rows: list[Row] = []
    at = 0
    for mark in _MARKS[:count]:
        length = octets[at]
        if length >= 0x80:
            at += 1
            length = length & 0x7F | octets[at] << 7
        end = at + 1 + (length >> 1)
        at = begin = at + 2  # behind the attributes, the producer's timestamp
        while octets[at] >= 0x80:
            at += 1
        too_long = at - begin >= LONGEST
        at += 1 + len(mark)
        size = octets[at]
        if too_long or length & 0x4001 or size & 1 or not octets.startswith(mark, at - len(mark)):
            return None
        if size >= 0x80:
            at += 1
            size = size & 0x7F | octets[at] << 7
        at += 1
        last = at + (size >> 1)
        if size & 0x4000 or last + 1 != end or octets[last]:
            return None
        rows.append((None, octets[at:last], None, None))
        at = end
    return Rows(rows) if at == len(octets) else None


def _rows(octets: bytes, count: int) -> Rows | None:
    rows: list[Row] = []
    at = 0
    for number in range(count):
        length, at = read_one(octets, at)
        end = at + length
        _, at = read_one(octets, at + 1)
        told, at = read_one(octets, at)
        key, at = _field(octets, at)
        value, at = _field(octets, at)
        headers, at = read_one(octets, at)
        if headers or told != number or at != end:
            return None
        rows.append((key, value, None, None))
    return Rows(rows) if at == len(octets) else None


def _field(octets: bytes, at: int) -> tuple[bytes | None, int]:
    """The bytes behind a length, and where they end. Raises IndexError."""
    size, at = read_one(octets, at)
    if size < 0:
        return (None, at) if size == -1 else (None, len(octets) + 1)
    return octets[at : at + size], at + size
