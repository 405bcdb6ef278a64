"""Chunks of GELF messages: magic bytes, an id of 8 bytes, a number and how many there are, a part of the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.records import values_of
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.plog.reassembly import Header, MessageIdentity

MAGIC = (0x1E, 0x0F)
HEADER = 12
MOST_CHUNKS = 128


class Chunk(NamedTuple):
    """One chunk: the datagram it came in, its message, its number there, its part of it."""

    row: int
    key: MessageIdentity
    header: Header
    number: int
    part: bytes


def are_chunks(datagrams: Datagrams) -> np.ndarray:
    """Which datagrams are chunks, or what is left of one."""
    head = datagrams.matrix[: len(datagrams), :2]
    found: np.ndarray = (datagrams.lengths > 1) & (head[:, 0] == MAGIC[0]) & (head[:, 1] == MAGIC[1])
    return found


def well_formed(datagrams: Datagrams, rows: Ints) -> np.ndarray:
    """Which of the chunks ``rows`` have a header that can be."""
    number, count = datagrams.matrix[rows, 10], datagrams.matrix[rows, 11]
    found: np.ndarray = (datagrams.lengths[rows] >= HEADER) & (number < count) & (count <= MOST_CHUNKS)
    return found


def chunks_of(datagrams: Datagrams, rows: Ints) -> Iterator[Chunk]:
    """The chunks in ``rows``, well-formed ones, in order of arrival."""
    heads = np.ascontiguousarray(datagrams.matrix[rows, 2:10])
    ids = heads.view(">u8").ravel().tolist()
    numbers, counts = datagrams.matrix[rows, 10].tolist(), datagrams.matrix[rows, 11].tolist()
    senders = zip(datagrams.addresses[rows].tolist(), datagrams.ports[rows].tolist(), ids, strict=True)
    parts = values_of(datagrams.payloads(rows, np.full(len(rows), HEADER)))
    for row, key, number, count, part in zip(rows.tolist(), senders, numbers, counts, parts, strict=True):
        yield Chunk(row, key, Header(count, 0, 0, None), number, part)
