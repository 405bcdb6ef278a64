"""Both ways to find records, at once and one by one, return the same spans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.kafka.errors import BadRecords
from penstock.kafka.records import record_spans
from penstock.kafka.records.record_spans import MIN_RECORD_BYTES, find_records
from penstock.kafka.records.varints import read_one


def length(size: int) -> bytes:
    """Return the length of a record, as a zigzag varint."""
    raw, octets = size << 1 ^ size >> 63, bytearray()
    while raw >= 0x80:
        octets.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*octets, raw])


def spans_by_loop(data: bytes, count: int) -> list[tuple[int, int]] | None:
    """Return the records by the format's definition; None unless ``count`` of them fill ``data``."""
    position, spans = 0, []
    try:
        for _ in range(count):
            size, position = read_one(data, position)
            if size < MIN_RECORD_BYTES or position + size > len(data):
                return None
            spans.append((position, position + size))
            position += size
    except IndexError:
        return None
    return spans if position == len(data) and count >= 0 else None


def described(data: bytes, count: int) -> list[tuple[int, int]] | None:
    try:
        spans = find_records(np.frombuffer(data, np.uint8), count)
    except BadRecords:
        return None
    return list(zip(spans.begins.tolist(), spans.ends.tolist(), strict=True))


SIZES = st.lists(st.one_of(st.integers(-3, 300), st.sampled_from([8191, 8192, 70_000])), max_size=12)


@given(SIZES, st.integers(-1, 1), st.booleans())
def test_spans_follow_the_lengths(sizes: list[int], more: int, at_once: bool) -> None:
    data = b"".join(length(size) + bytes(max(size, 0)) for size in sizes)
    with pytest.MonkeyPatch.context() as patch:
        if at_once:
            patch.setattr(record_spans, "FEW_RECORDS", 0)
            patch.setattr(record_spans, "LARGE_RECORD_BYTES", 1 << 20)
        assert described(data, len(sizes) + more) == spans_by_loop(data, len(sizes) + more)


@given(st.binary(max_size=120), st.integers(-5, 20))
@example(b"\xff\xff\xff\xff\x0f" + bytes(9), 1)
@example(b"\xff" * 40, 1)
def test_any_bytes_have_the_spans_of_their_lengths_or_none(data: bytes, count: int) -> None:
    assert described(data, count) == spans_by_loop(data, count)
