"""What a receiver writes into its log buffer: a batch with its counts as one frame.

A frame is one encapsulated Arrow message (schema ``records.BODY``) whose document is a ``Receipt``, and a trailer.
The frame header's reserved value says which slots of which receive round it holds, so that a round
whose frame is already there is not published again (balance, section 7).
"""

from __future__ import annotations

import struct

import crc32c
import numpy as np
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.handover.receipt import Receipt
from penstock.records import BODY, BadBatch, buffer_of, decode, encode, metadata_of, read_document
from penstock.wire.sender_text import MOST_GROWTH
from penstock.wire.syslog.headers import FIELDS

TRAILER = struct.Struct("<II")
"""Behind the message: its CRC32C, and a mark."""
TRAILER_MARK = 0x4B545350  # "PSTK"
SLOT_BITS = 16
LARGEST_DATAGRAM = 65_535
MESSAGE_COST = 1024
"""Bytes of a frame that one message takes at most beyond twice its own: offsets, names of annotations."""
GROWTH = {"plog": MOST_GROWTH, "syslog": len(FIELDS) * MOST_GROWTH, "raw": 0}
"""Bytes by which a message's annotations may be longer than what they were taken from, by codec."""
FRAME_COST = 32 << 10
"""Bytes of a frame for its own document and padding."""


def frame_length(term_length: int) -> int:
    """Bytes of one frame's payload at most: an eighth of a term, as for any message of a log buffer."""
    return min(term_length // 8, 16 << 20)


def least_frame(listener: ListenerConfig) -> int:
    """Bytes that one frame has to hold: the largest message, twice, as its annotations may repeat it."""
    if listener.protocol == "tcp":
        largest = listener.max_line
    else:
        largest = LARGEST_DATAGRAM + (listener.defrag.max_size if listener.defragments else 0)
    return 2 * largest + GROWTH[listener.codec] + MESSAGE_COST + FRAME_COST


def encode_frame(batch: pa.RecordBatch, receipt: Receipt) -> list[pa.Buffer | bytes]:
    """The frame's payload in two parts: ``batch`` (schema BODY, may be empty) with its receipt, and a CRC32C of that.

    After a power cut a frame's header may be there and a page of its body not.
    """
    message = encode(batch, receipt.document())
    return [message, TRAILER.pack(crc32c.crc32c(message), TRAILER_MARK)]


class FrameEncoder:
    """Encodes frames as ``encode_frame`` does, in memory of its own: each is valid until the next one."""

    def __init__(self, length: int) -> None:
        """``length``: bytes of the longest frame's payload. Only what frames use of them is taken."""
        preamble = len(BODY.serialize())
        self._memory = np.empty(length + preamble, np.uint8)
        self._buffer, self._begin = buffer_of(self._memory), preamble
        self._options = pa.ipc.IpcWriteOptions()

    def encode(self, batch: pa.RecordBatch, receipt: Receipt) -> list[memoryview | bytes]:
        """The frame's payload in two parts."""
        sink = pa.FixedSizeBufferWriter(self._buffer)
        # Not closed on purpose: close() would append an end-of-stream marker.
        writer = pa.RecordBatchStreamWriter(sink, BODY, options=self._options)
        writer.write_batch(batch, custom_metadata=metadata_of(receipt.document()))
        message = self._memory.data[self._begin : sink.tell()]
        return [message, TRAILER.pack(crc32c.crc32c(message), TRAILER_MARK)]


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
