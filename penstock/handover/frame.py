"""What a receiver writes into its log buffer: a batch with its counts as one frame.

A frame is one encapsulated Arrow message (schema ``records.BODY``) whose document is a ``Receipt``, and a trailer.
The frame header's reserved value says which slots of which receive round it holds, so that a round
whose frame is already there is not published again (balance, section 7).
"""

from __future__ import annotations

import struct

import crc32c
import pyarrow as pa

from penstock.handover.receipt import Receipt
from penstock.records import BODY, BadBatch, checksum, decode, encode_parts, read_document

TRAILER = struct.Struct("<II")
"""Behind the message: its CRC32C, and a mark."""
TRAILER_MARK = 0x4B545350  # "PSTK"
SLOT_BITS = 16


def encode_frame(batch: pa.RecordBatch, receipt: Receipt) -> list[memoryview | bytes]:
    """The frame's payload in parts: ``batch`` (schema BODY, may be empty) with its receipt, and a CRC32C of that.

    After a power cut a frame's header may be there and a page of its body not.
    """
    parts = encode_parts(batch, receipt.document())
    return [*parts, TRAILER.pack(checksum(parts), TRAILER_MARK)]


def decode_frame(data: memoryview) -> tuple[pa.RecordBatch, Receipt]:
    """Batch (zero-copy on ``data``) and receipt of a frame's payload, its checksum verified. Raises BadBatch."""
    if not is_whole(data):
        raise BadBatch("its checksum does not fit")
    batch, document = decode(data[: -TRAILER.size], BODY)
    return batch, Receipt.of(document)


def is_whole(data: memoryview) -> bool:
    """Whether a frame's payload is as it was written, by its checksum."""
    if len(data) <= TRAILER.size:
        return False
    return TRAILER.unpack(data[-TRAILER.size :]) == (crc32c.crc32c(data[: -TRAILER.size]), TRAILER_MARK)


def frame_head(data: memoryview) -> memoryview:
    """The part of a frame's payload that ``frame_receipt`` reads; all of it where that cannot be told."""
    return data[: 8 + int.from_bytes(data[4:8], "little")] if len(data) > 8 else data


def frame_receipt(data: memoryview) -> Receipt:
    """The receipt of a frame's payload alone, no checksum looked at. Raises BadBatch."""
    return Receipt.of(read_document(data))


def reserved_value(round_number: int, slot_end: int) -> int:
    """What a frame header's reserved value says: slots before ``slot_end`` of this round are published."""
    return round_number << SLOT_BITS | slot_end


def published(reserved: int) -> tuple[int, int]:
    """Round number and slot end of a reserved value."""
    return reserved >> SLOT_BITS, reserved & ((1 << SLOT_BITS) - 1)
