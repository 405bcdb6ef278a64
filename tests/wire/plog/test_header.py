"""Fragment headers as columns."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.header import is_consistent, parse

GOOD = (0, 1, 2, 1, 100, 7, 150, 0xDEADBEEF, 3, 0)


def packed(*fields: int, rest: bytes = b"tag" + b"x" * 50) -> bytes:
    return struct.pack(">BBHHHIiIHH", *fields) + rest


def test_all_fields_are_read() -> None:
    fragments, invalid = parse(Datagrams.from_bytes([packed(*GOOD)], ports=[9], addresses=[1 << 63]), np.array([0]))
    assert invalid == 0
    assert {name: getattr(fragments, name).tolist() for name in fragments.__slots__} == {
        "rows": [0],
        "starts": [27],
        "lengths": [50],
        "addresses": [1 << 63],
        "ports": [9],
        "count": [2],
        "index": [1],
        "size": [100],
        "id": [7],
        "total": [150],
        "hash": [0xDEADBEEF],
        "tag_length": [3],
    }


@pytest.mark.parametrize(
    "datagram",
    [
        packed(*GOOD)[:23],
        packed(0, 1, 0, 0, *GOOD[4:]),
        packed(0, 1, 2, 2, *GOOD[4:]),
        packed(*GOOD[:6], -1, *GOOD[7:]),
        packed(*GOOD[:8], 54, 0),
        b"\0\1",
    ],
    ids=["short", "no fragments", "index beyond count", "negative total", "tags beyond the datagram", "no header"],
)
def test_an_invalid_header_is_counted_and_left_out(datagram: bytes) -> None:
    fragments, invalid = parse(Datagrams.from_bytes([packed(*GOOD), datagram, packed(*GOOD)]), np.arange(3))
    assert (fragments.rows.tolist(), invalid) == ([0, 2], 1)


@pytest.mark.parametrize(
    ("count", "index", "size", "total", "length", "consistent"),
    [
        (2, 0, 100, 150, 100, True),
        (2, 0, 100, 150, 99, False),
        (2, 1, 100, 150, 50, True),
        (2, 1, 100, 150, 51, False),
        (2, 1, 100, 100, 0, True),
        (3, 0, 100, 150, 100, False),
        (3, 2, 100, 150, 0, False),
        (65535, 65534, 65535, 2**31 - 1, 0, False),
    ],
)
def test_the_length_of_a_payload_follows_from_its_header(
    count: int, index: int, size: int, total: int, length: int, consistent: bool
) -> None:
    datagram = packed(0, 1, count, index, size, 7, total, 0, 0, 0, rest=b"x" * length)
    fragments, _ = parse(Datagrams.from_bytes([datagram]), np.array([0]))
    assert is_consistent(fragments).tolist() == [consistent]
