"""Metadata of Arrow's encapsulated IPC messages, read before Arrow allocates what they state.

Source: Arrow's Columnar.rst, "Encapsulated message format", and format/Message.fbs.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_CONTINUATION = b"\xff\xff\xff\xff"
_PREFIX_BYTES = 8
"""Bytes before the metadata: continuation mark and length."""
_UINT8, _UINT16, _INT32, _UINT32 = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I"))
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA_OF_DICTIONARY, _COMPRESSION = 1, 3


def is_uncompressed(message: bytes) -> bool:
    """Return whether no buffer of a message is compressed; False, too, for damaged metadata or an earlier format.

    Limit: a compressed buffer states its own size, and Arrow would allocate as much. Messages before format V5 name
    their compression in another place, and those before Arrow 0.15 have no continuation mark.
    """
    try:
        if message[: len(_CONTINUATION)] != _CONTINUATION:
            return False
        if pa.ipc.read_message(pa.py_buffer(message)).metadata_version != pa.ipc.MetadataVersion.V5:
            return False
        root = _follow(message, _PREFIX_BYTES)
        kind, header = _field(message, root, _HEADER_TYPE), _field(message, root, _HEADER)
        number = _UINT8.unpack_from(message, kind)[0] if kind else 0
        batch = _follow(message, header) if header else 0
        if batch and number == _DICTIONARY_BATCH:
            data = _field(message, batch, _DATA_OF_DICTIONARY)
            batch = _follow(message, data) if data else 0
        elif number != _RECORD_BATCH:
            return True
        return not (batch and _field(message, batch, _COMPRESSION))
    except (pa.ArrowException, OSError, EOFError, struct.error):
        return False


def _follow(message: bytes, position: int) -> int:
    """Return the position of the table to which the offset at ``position`` leads."""
    return int(position + _UINT32.unpack_from(message, position)[0])


def _field(message: bytes, table: int, index: int) -> int:
    """Return the position of a field of a flatbuffer's table, or 0 if the table does not have it."""
    vtable = table - _INT32.unpack_from(message, table)[0]
    if vtable < 0:
        raise struct.error("a table lies before its message")
    entry = 4 + 2 * index
    offset = _UINT16.unpack_from(message, vtable + entry)[0] if entry < _UINT16.unpack_from(message, vtable)[0] else 0
    return table + offset if offset else 0
