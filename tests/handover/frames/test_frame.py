"""Frames: a batch with its metadata in one message of the log buffer."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import crc32c
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.counts import Counts, Origin
from penstock.handover.dropped_frames import Carrier, LostCounts
from penstock.handover.frames import frame as frame_module
from penstock.handover.frames.frame import (
    TRAILER,
    TRAILER_MARK,
    FrameMetadata,
    decode_frame,
    decode_small_frame,
    encode_frame,
    frame_head,
    is_intact,
    published,
    read_frame_metadata,
    reserved_value,
    wait_until_intact,
)
from penstock.records import EMPTY_BODY, BadBatch, Rows, body, encode
from tests.fuzzed import RAW, objects

RECEIPT = FrameMetadata(
    Origin("events", 60, 61_000_000, 62_000_000, "plog", Counts({"seen": 2}), total=10),
    3,
    10,
    1,
    4,
    "abc",
    5,
    6,
    "e",
    (7, 8),
    64,
    9,
    (LostCounts((Carrier("d", 32, "in"), Carrier("c", 0, None)), Counts({"60@seen": 1})),),
)


def joined(batch: pa.RecordBatch) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in encode_frame(batch, RECEIPT)))


def test_few_rows_and_metadata_survive_a_round_trip() -> None:
    rows = Rows([(None, b"one", None, [("name", "text")])])
    frame = memoryview(b"".join(encode_frame(rows, RECEIPT)))
    assert decode_small_frame(frame) == (rows, RECEIPT)
    assert decode_frame(frame) == (rows.batch(), RECEIPT)
    assert decode_small_frame(joined(rows.batch())) == (rows.batch(), RECEIPT)


def test_batch_and_metadata_survive_a_round_trip() -> None:
    batch = body([b"one", b"two"])
    assert is_intact(joined(batch))
    assert decode_frame(joined(batch)) == (batch, RECEIPT)
    assert read_frame_metadata(joined(EMPTY_BODY)) == RECEIPT


@pytest.mark.parametrize(("late_polls", "is_damaged"), [(0, False), (3, False), (1000, True)])
def test_wait_for_a_checksum_ends_with_it_or_in_time(
    late_polls: int, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, sleeps = bytearray(joined(EMPTY_BODY)), []
    late_byte = frame[8]

    def store_late() -> None:
        frame[8] = late_byte if len(sleeps) >= late_polls else late_byte ^ 1

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        store_late()

    store_late()
    monkeypatch.setattr(frame_module, "time", SimpleNamespace(monotonic=lambda: sum(sleeps), sleep=sleep))
    wait_until_intact([memoryview(frame)])
    assert is_intact(memoryview(frame)) != is_damaged
    assert len(sleeps) == late_polls or is_damaged


def test_other_message_is_refused() -> None:
    with pytest.raises(BadBatch, match="invalid frame metadata"):
        read_frame_metadata(memoryview(encode(EMPTY_BODY, {"source": "x"})))
    with pytest.raises(BadBatch):
        decode_frame(memoryview(b"nonsense"))


@given(st.integers(0), st.integers(1, 255))
def test_any_changed_byte_is_detected(index: int, change: int) -> None:
    frame = bytearray(joined(body([b"one", b"two"])))
    frame[index % len(frame)] ^= change
    assert not is_intact(memoryview(frame))
    with pytest.raises(BadBatch):
        decode_frame(memoryview(frame))


@given(st.integers(0, 2**47 - 1), st.integers(0, 1024))
def test_reserved_value_survives_a_round_trip(round_number: int, slot_end: int) -> None:
    reserved = reserved_value(round_number, slot_end)
    assert published(reserved) == (round_number, slot_end)
    assert reserved < 2**63


RECEIPTS = objects("open", "socket", "slots", "incarnation", "total", "missed", "epoch", "source", "bucket", "counts")


@given(RAW)
def test_arbitrary_payload_is_a_frame_or_bad_batch(data: bytes) -> None:
    payload = memoryview(data + TRAILER.pack(crc32c.crc32c(data), TRAILER_MARK))
    for read in (
        decode_frame,
        decode_small_frame,
        read_frame_metadata,
        lambda content: read_frame_metadata(frame_head(content)),
    ):
        with contextlib.suppress(BadBatch):
            read(payload)


# An emulated processor needs half a minute for the first inputs (`make test-arm64`).
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(RECEIPTS)
def test_arbitrary_document_is_metadata_or_bad_batch(document: dict[str, Any]) -> None:
    with contextlib.suppress(BadBatch):
        assert isinstance(FrameMetadata.from_document(document), FrameMetadata)
