"""Fragmentation of a message, as a sender of plog's version 0 does it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import mmh3

from penstock.wire.plog.header import FRAGMENT, HEADER_SIZE, VERSION

_HEADER = struct.Struct(">BBHHHIIIHH")
MAX_COUNT = 0xFFFF
MAX_DATAGRAM = 65_507
"""Largest payload of a UDP datagram over IPv4: 65,535 bytes less the IP and UDP headers."""
_ID_MASK = 0xFFFF_FFFF


def fragment(payload: bytes, message_id: int, *, tags: Sequence[str] = (), fragment_size: int = 1400) -> list[bytes]:
    """Return the datagrams of one message: ceil((payload + tags) / ``fragment_size``), with the tags in the last
    one.

    Ids are taken modulo 2^32. Raises ValueError if the message needs more than 65,535 fragments, or its tags do not
    fit into a datagram.
    """
    joined = "\0".join(tags).encode()
    if not 0 < fragment_size <= MAX_DATAGRAM - HEADER_SIZE:
        raise ValueError(f"fragment_size must be from 1 to {MAX_DATAGRAM - HEADER_SIZE}")
    count = max(-(-(len(payload) + len(joined)) // fragment_size), 1)
    if count > MAX_COUNT:
        raise ValueError(f"a message of {len(payload)} bytes does not fit into {MAX_COUNT} fragments")
    # All fragments but the last have one size: if the tags push payload out of the last, that size shrinks.
    size = min(fragment_size, len(payload) // (count - 1)) if count > 1 else fragment_size
    last = len(payload) - size * (count - 1)
    if HEADER_SIZE + len(joined) + last > MAX_DATAGRAM:
        raise ValueError(f"{len(joined)} bytes of tags do not fit into a datagram")
    fields = (count, size, message_id & _ID_MASK, len(payload), mmh3.hash(payload, 0, False))
    parts = [_header(index, fields, 0) + payload[index * size : (index + 1) * size] for index in range(count - 1)]
    return [*parts, _header(count - 1, fields, len(joined)) + joined + payload[len(payload) - last :]]


def _header(index: int, fields: tuple[int, int, int, int, int], tag_length: int) -> bytes:
    count, size, *rest = fields
    return _HEADER.pack(VERSION, FRAGMENT, count, index, size, *rest, tag_length, 0)
