"""Rows of a batch with few records, decoded one after the other: for so few, numpy calls per column cost more.

A numpy call takes as long as some records do, and many of them release the interpreter lock, which another thread then
takes. Measured on an idle machine: 15 records of 1 KB take 8 us, by columns 54; 145 records of 100 B take 66 us, by
columns 101. Committing these rows costs less as well.
"""

from __future__ import annotations

import numpy as np

from penstock.kafka.records.varints import MAX_BYTES_64, joined, read_one
from penstock.records import Row, Rows, values_of

MAX_FEW_RECORDS, MAX_PLAIN_RECORDS = 40, 256
"""Limit: records up to which this is faster than columns, in general and if records have only values."""


def few_rows(octets: bytes, count: int) -> Rows | None:
    """Return the rows of ``count`` records without headers; None if the bytes are anything else, or too many."""
    try:
        rows = _plain_rows(octets, count) if count <= MAX_PLAIN_RECORDS else None
        return _keyed_rows(octets, count) if rows is None and count <= MAX_FEW_RECORDS else rows
    except IndexError:
        return None


_PREFIXES = values_of(joined([np.arange(MAX_PLAIN_RECORDS), b"\x01"]))
"""Bytes of each plain record between its timestamp and its value: its number, and no key."""


def _plain_rows(octets: bytes, count: int) -> Rows | None:
    """Return the rows of records with only values, of less than 8 KiB each; None for any others."""
    rows: list[Row] = []
    position = 0
    for prefix in _PREFIXES[:count]:
        # Fast path: lengths of up to two bytes are decoded inline, because calls would take as long as the rest.
        length = octets[position]
        if length >= 0x80:
            position += 1
            length = length & 0x7F | octets[position] << 7
        end = position + 1 + (length >> 1)
        position = begin = position + 2  # behind the attributes, the producer's timestamp
        while octets[position] >= 0x80:
            position += 1
        too_long = position - begin >= MAX_BYTES_64
        position += 1 + len(prefix)
        size = octets[position]
        if too_long or length & 0x4001 or size & 1 or not octets.startswith(prefix, position - len(prefix)):
            return None
        if size >= 0x80:
            position += 1
            size = size & 0x7F | octets[position] << 7
        position += 1
        last = position + (size >> 1)
        if size & 0x4000 or last + 1 != end or octets[last]:
            return None
        rows.append((None, octets[position:last], None, None))
        position = end
    return Rows(rows) if position == len(octets) else None


def _keyed_rows(octets: bytes, count: int) -> Rows | None:
    rows: list[Row] = []
    position = 0
    for number in range(count):
        length, position = read_one(octets, position)
        end = position + length
        _, position = read_one(octets, position + 1)
        record_number, position = read_one(octets, position)
        key, position = _read_field(octets, position)
        value, position = _read_field(octets, position)
        headers, position = read_one(octets, position)
        if headers or record_number != number or position != end:
            return None
        rows.append((key, value, None, None))
    return Rows(rows) if position == len(octets) else None


def _read_field(octets: bytes, position: int) -> tuple[bytes | None, int]:
    """Return the field that follows a length, and where it ends. Raises IndexError."""
    size, position = read_one(octets, position)
    if size < 0:
        # An end behind the last byte makes the caller reject the record.
        return (None, position) if size == -1 else (None, len(octets) + 1)
    return octets[position : position + size], position + size
