"""Headers of record batches as a broker stores them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import BadRecords
from penstock.kafka.records.batch_headers import split_batches
from tests.kafka.stored_batches import batch, control_batch, framed


def test_a_batch_covers_its_offsets_and_has_the_remaining_records() -> None:
    full, holes, empty = split_batches(batch(5, [0, 1, 2]) + batch(8, [1, 4], last=6) + batch(20, [], last=2))
    assert [(stored.first, stored.end, stored.count) for stored in (full, holes, empty)] == [
        (5, 8, 3),
        (8, 15, 2),
        (20, 23, 0),
    ]
    assert [stored.offsets().tolist() for stored in (full, holes, empty)] == [[5, 6, 7], [9, 12], []]


def test_markers_tell_how_their_transaction_ended() -> None:
    abort, commit = split_batches(control_batch(3, 9, commit=False) + control_batch(4, 9, commit=True))
    assert (abort.is_control, abort.is_abort(), commit.is_control, commit.is_abort()) == (True, True, True, False)
    (removed,) = split_batches(framed(3, b"", 0, 0, 0x30, 9))
    assert removed.is_control
    assert not removed.is_abort()


def test_messages_of_old_formats_are_batches_of_one_offset() -> None:
    body = struct.pack(">IbbqiI", 0, 1, 0, 0, -1, 1) + b"v"
    (stored,) = split_batches(struct.pack(">qi", 7, len(body)) + body)
    assert (stored.first, stored.end, stored.offsets().tolist()) == (7, 8, [7])


@pytest.mark.parametrize(
    "data",
    [
        framed(0, b"", 3, 1),
        framed(0, b"", -1, 1),
        framed(0, b"", 0, -1),
        struct.pack(">qi", 0, 5) + bytes(20),
        bytes(framed(0, b"", 0, 0)).replace(b"\x02", b"\x03", 1),
    ],
    ids=["more records than offsets", "negative count", "no offset", "length", "format"],
)
def test_impossible_headers_are_refused(data: bytes) -> None:
    with pytest.raises(BadRecords):
        list(split_batches(data))


@given(st.binary(max_size=200), st.integers(0, 120), st.booleans())
def test_any_bytes_are_batches_or_refused(noise: bytes, position: int, control: bool) -> None:
    stored = control_batch(3, 9, commit=False) if control else batch(3, [0, 3, 9])
    data = stored[:position] + noise + stored[position + len(noise) :]
    try:
        for found in split_batches(data):
            offsets = found.offsets()
            assert all(found.first <= offset < found.end for offset in offsets[:100].tolist())
            found.is_abort()
    except BadRecords:
        pass
