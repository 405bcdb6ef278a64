"""Frames: a batch with its receipt, whole in one message of the log buffer."""

from __future__ import annotations

import contextlib
from typing import Any

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Counts, Origin
from penstock.handover.frame import (
    TRAILER,
    TRAILER_MARK,
    Receipt,
    decode_frame,
    encode_frame,
    frame_head,
    frame_receipt,
    is_whole,
    published,
    reserved_value,
)
from penstock.records import EMPTY_BODY, BadBatch, body, encode
from tests.fuzzed import RAW, objects

RECEIPT = Receipt(
    Origin("events", 60, 61_000_000, 62_000_000, "plog", Counts({"seen": 2})), 3, 10, 1, 4, "abc", 5, 6, "e"
)


def joined(batch: pa.RecordBatch) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in encode_frame(batch, RECEIPT)))


def test_batch_and_receipt_come_back_as_they_were() -> None:
    batch = body([b"one", b"two"])
    assert is_whole(joined(batch))
    assert decode_frame(joined(batch)) == (batch, RECEIPT)
    assert frame_receipt(joined(EMPTY_BODY)) == RECEIPT


def test_a_message_that_is_no_frame_is_refused() -> None:
    with pytest.raises(BadBatch, match="not a receipt"):
        frame_receipt(memoryview(encode(EMPTY_BODY, {"source": "x"})))
    with pytest.raises(BadBatch):
        decode_frame(memoryview(b"nonsense"))


@given(st.integers(0), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_found(at: int, change: int) -> None:
    frame = bytearray(joined(body([b"one", b"two"])))
    frame[at % len(frame)] ^= change
    assert not is_whole(memoryview(frame))
    with pytest.raises(BadBatch):
        decode_frame(memoryview(frame))


@given(st.integers(0, 2**47 - 1), st.integers(0, 1024))
def test_round_and_slots_are_read_back_from_the_reserved_value(round_number: int, slot_end: int) -> None:
    reserved = reserved_value(round_number, slot_end)
    assert published(reserved) == (round_number, slot_end)
    assert reserved < 2**63


RECEIPTS = objects("open", "socket", "slots", "incarnation", "total", "missed", "epoch", "source", "bucket", "counts")


@given(RAW)
def test_any_payload_with_a_good_checksum_is_a_frame_or_bad(data: bytes) -> None:
    payload = memoryview(data + TRAILER.pack(crc32c.crc32c(data), TRAILER_MARK))
    for read in (decode_frame, frame_receipt, lambda whole: frame_receipt(frame_head(whole))):
        with contextlib.suppress(BadBatch):
            read(payload)


@given(RECEIPTS)
def test_any_document_is_a_receipt_or_bad(document: dict[str, Any]) -> None:
    with contextlib.suppress(BadBatch):
        assert isinstance(Receipt.of(document), Receipt)
