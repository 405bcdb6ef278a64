"""The 24-byte header of a version 0 fragment, read as columns.

Layout, all big-endian (plog's README, "Packet type 01"): version, type, count, index, size, id, total, hash, tag
length, and two reserved bytes that are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # senders need the header without Arrow
    from penstock.wire.datagrams import Datagrams, Ints

HEADER = np.dtype(
    [
        ("version", "u1"),
        ("type", "u1"),
        ("count", ">u2"),
        ("index", ">u2"),
        ("size", ">u2"),
        ("id", ">u4"),
        ("total", ">i4"),
        ("hash", ">u4"),
        ("tag_length", ">u2"),
        ("reserved", ">u2"),
    ]
)
HEADER_SIZE = HEADER.itemsize
VERSION = 0
COMMAND = 0
FRAGMENT = 1
LAST_VERSION = 31
"""Highest first byte that is a version; a larger first byte begins an unboxed message."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fragments:
    """Fragments with valid headers, in order of arrival; each column has one entry per fragment.

    ``rows``: row among the datagrams; ``starts``: offset of the payload in the datagram; ``lengths``: bytes of
    payload. The other columns are the header's fields.
    """

    rows: Ints
    starts: Ints
    lengths: Ints
    addresses: npt.NDArray[np.uint64]
    ports: Ints
    count: Ints
    index: Ints
    size: Ints
    id: Ints
    total: Ints
    hash: Ints
    tag_length: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, mask: Mask | Ints) -> Fragments:
        """Return the fragments that ``mask`` (booleans or indices) selects."""
        return Fragments(*(getattr(self, name)[mask] for name in self.__slots__))


def parse(datagrams: Datagrams, rows: Ints) -> tuple[Fragments, int]:
    """Return the fragments among the datagrams ``rows``, and the number of datagrams with an invalid header.

    Invalid: shorter than 24 bytes, count 0, index not below count, total negative, tags longer than the datagram.
    """
    # One copy of 24 bytes per datagram gives aligned rows that numpy views as header fields: no statement per
    # datagram.
    head = np.ascontiguousarray(datagrams.matrix[rows, :HEADER_SIZE]).view(HEADER).reshape(-1)
    lengths = datagrams.lengths[rows]
    starts = HEADER_SIZE + head["tag_length"].astype(np.int64)
    valid = (lengths >= starts) & (head["index"] < head["count"]) & (head["total"] >= 0)
    # int64 throughout: products such as size * index would overflow the header's 16-bit fields.
    columns = {name: head[name].astype(np.int64) for name in ("count", "index", "size", "id", "total", "hash")}
    fragments = Fragments(
        rows=rows,
        starts=starts,
        lengths=lengths - starts,
        addresses=datagrams.addresses[rows].astype(np.uint64),
        ports=datagrams.ports[rows].astype(np.int64),
        tag_length=starts - HEADER_SIZE,
        **columns,
    )
    parsed = fragments if valid.all() else fragments.where(valid)
    return parsed, len(rows) - len(parsed)


def is_consistent(fragments: Fragments) -> Mask:
    """Return a mask of the payloads whose length agrees with their own header.

    A payload has ``size`` bytes, that of the last fragment ``total - size * index``. If ``total`` leaves a negative
    length for the last fragment, all fragments of that header are inconsistent.
    """
    last = fragments.count - 1
    rest = fragments.total - fragments.size * last
    expected = np.where(fragments.index == last, rest, fragments.size)
    consistent: Mask = (rest >= 0) & (fragments.lengths == expected)
    return consistent
