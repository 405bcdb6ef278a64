"""Chunks of GELF messages: magic bytes, an id of 8 bytes, an index, the number of chunks, and a part of the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.records import values_of
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.plog.reassembly import Header, MessageIdentity

MAGIC = (0x1E, 0x0F)
HEADER_BYTES = 12
MAX_CHUNKS = 128


class Chunk(NamedTuple):
    """A chunk: the row of its datagram, the identity of its message, its index and its part of the message."""

    row: int
    key: MessageIdentity
    header: Header
    number: int
    part: bytes


def are_chunks(datagrams: Datagrams) -> np.ndarray:
    """Return which datagrams begin like a chunk, complete or not."""
    head = datagrams.matrix[: len(datagrams), :2]
    is_chunk: np.ndarray = (datagrams.lengths > 1) & (head[:, 0] == MAGIC[0]) & (head[:, 1] == MAGIC[1])
    return is_chunk


def well_formed(datagrams: Datagrams, rows: Ints) -> np.ndarray:
    """Return which of the chunks in ``rows`` have a valid header."""
    # Limit: GELF allows 128 chunks, so that an id cannot reserve more.
    number, count = datagrams.matrix[rows, 10], datagrams.matrix[rows, 11]
    is_valid: np.ndarray = (datagrams.lengths[rows] >= HEADER_BYTES) & (number < count) & (count <= MAX_CHUNKS)
    return is_valid


def chunks_of(datagrams: Datagrams, rows: Ints) -> Iterator[Chunk]:
    """Yield the well-formed chunks in ``rows`` in order of arrival."""
    # Fast path: the headers of all chunks are decoded as columns.
    heads = np.ascontiguousarray(datagrams.matrix[rows, 2:10])
    ids = heads.view(">u8").ravel().tolist()
    numbers, counts = datagrams.matrix[rows, 10].tolist(), datagrams.matrix[rows, 11].tolist()
    # Messages of different numbers of chunks are different messages, although their sender gave them one id.
    names = (name * (MAX_CHUNKS + 1) + count for name, count in zip(ids, counts, strict=True))
    senders = zip(datagrams.addresses[rows].tolist(), datagrams.ports[rows].tolist(), names, strict=True)
    parts = values_of(datagrams.payloads(rows, np.full(len(rows), HEADER_BYTES)))
    for row, key, number, count, part in zip(rows.tolist(), senders, numbers, counts, parts, strict=True):
        yield Chunk(row, key, Header(count, 0, 0, None), number, part)
