"""Frames of the log buffer: a batch with its counts.

A frame is one encapsulated Arrow message (schema ``records.BODY``) with ``FrameMetadata`` as its document, and a
trailer. The reserved value of the frame header names the receive round and its slots, so that a round whose frame
exists is not published again (docs/accounting.md, section 7).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence

import crc32c
import pyarrow as pa

from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.log.store.row_format import body_message, rows_of_body
from penstock.logbuffer import Frame
from penstock.records import (
    BODY,
    FEW_ROWS,
    BadBatch,
    Body,
    Rows,
    as_batch,
    checksum,
    decode,
    encode_parts,
    read_document,
)

TRAILER = struct.Struct("<II")
"""CRC32C of the message, and a mark."""
TRAILER_MARK = 0x4B545350  # "PSTK"
SLOT_BITS = 16
MAX_INTACT_WAIT_S, INTACT_POLL_S = 0.02, 0.001
"""Limit of the wait for a checksum, for all frames of a group together."""


def encode_frame(messages: Body, metadata: FrameMetadata) -> list[memoryview | bytes]:
    """Return the frame's payload in parts: ``messages`` (may be empty) with their metadata and a CRC32C.

    Crash: after a power failure the frame's header may be on the disk without a page of its body; the CRC shows it.
    """
    parts: Sequence[memoryview | bytes]
    if isinstance(messages, Rows) and 0 < len(messages) <= FEW_ROWS:
        parts = body_message(messages, metadata.document())
    else:
        parts = encode_parts(as_batch(messages), metadata.document())
    return [*parts, TRAILER.pack(checksum(parts), TRAILER_MARK)]


def decode_frame(data: memoryview) -> tuple[pa.RecordBatch, FrameMetadata]:
    """Return batch (zero-copy on ``data``) and metadata of a payload with a valid checksum. Raises BadBatch."""
    if not is_intact(data):
        raise BadBatch("checksum mismatch")
    batch, document = decode(data[: -TRAILER.size], BODY)
    return batch, FrameMetadata.from_document(document)


def decode_small_frame(data: memoryview) -> tuple[Body, FrameMetadata]:
    """Return the messages of a frame as ``decode_frame`` does, few of them as rows. Raises BadBatch."""
    if is_intact(data) and (small := rows_of_body(data[: -TRAILER.size])) is not None:
        return small[0], FrameMetadata.from_document(small[1])
    return decode_frame(data)


def is_intact(data: memoryview) -> bool:
    """Report whether a frame's payload has its checksum."""
    if len(data) <= TRAILER.size:
        return False
    return TRAILER.unpack(data[-TRAILER.size :]) == (crc32c.crc32c(data[: -TRAILER.size]), TRAILER_MARK)


def wait_until_intact(payloads: Iterable[memoryview]) -> None:
    """Wait up to MAX_INTACT_WAIT_S until the payloads in the buffer of a running writer have their checksums.

    Those that still have not are damaged. For processors that reorder stores.
    """
    deadline = time.monotonic() + MAX_INTACT_WAIT_S
    for data in payloads:
        while not is_intact(data) and time.monotonic() < deadline:
            time.sleep(INTACT_POLL_S)


def frame_head(data: memoryview) -> memoryview:
    """Return the part of a payload that ``read_frame_metadata`` needs, or all of a payload that is too short."""
    return data[: 8 + int.from_bytes(data[4:8], "little")] if len(data) > 8 else data


def read_frame_metadata(data: memoryview) -> FrameMetadata:
    """Return the metadata of a payload without verifying its checksum. Raises BadBatch."""
    return FrameMetadata.from_document(read_document(data))


def intact_metadata(frame: Frame) -> FrameMetadata | None:
    """Return the metadata of a frame; None when it is damaged."""
    try:
        return read_frame_metadata(frame.data) if is_intact(frame.data) else None
    except BadBatch:
        return None


def reserved_value(round_number: int, slot_end: int) -> int:
    """Return the reserved value for a round of which the slots before ``slot_end`` are published."""
    return round_number << SLOT_BITS | slot_end


def published(reserved: int) -> tuple[int, int]:
    """Return round number and slot end of a reserved value."""
    return reserved >> SLOT_BITS, reserved & ((1 << SLOT_BITS) - 1)
