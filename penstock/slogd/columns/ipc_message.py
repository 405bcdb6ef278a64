"""Metadata of Arrow's encapsulated IPC messages, read before Arrow allocates what they state.

Source: Arrow's Columnar.rst, "Encapsulated message format", and format/Message.fbs.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from penstock.records import BadBatch, field_of, target_of

_CONTINUATION = b"\xff\xff\xff\xff"
_BATCHES = ("dictionary", "record batch")
_HEADER = 2
_DATA_OF_DICTIONARY, _COMPRESSION = 1, 3


def is_uncompressed(message: bytes) -> bool:
    """Return whether no buffer of an encapsulated message is compressed; False, too, if it is damaged or of an earlier
    format: messages before Arrow 0.15 have no continuation mark.
    """
    if message[: len(_CONTINUATION)] != _CONTINUATION:
        return False
    try:
        return is_uncompressed_message(pa.ipc.read_message(pa.py_buffer(message)))
    except (pa.ArrowException, OSError, EOFError):
        return False


def is_uncompressed_message(message: pa.Message) -> bool:
    """Return whether no buffer of a message is compressed; False, too, for damaged metadata or a format before V5,
    which names its compression in another place.

    Limit: a compressed buffer states its own size, and Arrow would allocate as much.
    """
    try:
        metadata = memoryview(message.metadata)
        batch = field_of(metadata, target_of(metadata, 0), _HEADER) if message.type in _BATCHES else None
        if batch is not None and message.type == "dictionary":
            batch = field_of(metadata, batch, _DATA_OF_DICTIONARY)
        is_compressed = batch is not None and field_of(metadata, batch, _COMPRESSION) is not None
    except (struct.error, BadBatch):
        return False
    return message.metadata_version == pa.ipc.MetadataVersion.V5 and not is_compressed
