"""Transport bytes around a syslog message: a sender's end of message, a length prefix, compression."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import bounds
from penstock.wire.datagrams import Bytes
from penstock.wire.syslog.octets import Bools, Octets, raw_bytes

_NEWLINE, _RETURN = 10, 13
_IS_END = np.zeros(256, np.bool_)
_IS_END[[0, _NEWLINE]] = True
_ZIPPED = ord("z")
"""Prefix of a message that rsyslog compressed (``ZipLevel``); zlib's own header follows."""
_PROBE_BYTES = 64
_COUNT = r"\A(?P<count>[1-9][0-9]{0,9}) <[0-9]{1,3}>"


def without_ends(messages: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``messages`` (type binary) without trailing newlines and NULs, which other transports use as ends.

    Invariant: a message has the same bytes over every transport, so its duplicate is recognised.
    """
    data, starts, ends = raw_bytes(messages)
    # Fast path: most transports leave no ends, and need no padded copy of the bytes.
    if not len(data) or not ((ends > starts) & _IS_END[data[ends - 1]]).any():
        return messages
    octets = Octets(messages)
    buffer, starts, ends = octets.data, octets.starts, octets.stops
    while (has_end := (ends > starts) & _IS_END[buffer[ends - 1]]).any():
        ends = ends - has_end
        ends = ends - (has_end & (ends > starts) & (buffer[ends] == _NEWLINE) & (buffer[ends - 1] == _RETURN))
    return octets.texts(starts, ends)


def without_counts(messages: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``messages`` (type binary) without the length that some senders prepend, as on TCP.

    Only an exact length belongs to the transport; other numbers are text.
    """
    # Fast path: one comparison of the first bytes; only messages that begin with a digit reach the pattern.
    leads = np.flatnonzero(_first_bytes(messages) - np.uint8(ord("1")) < 9)
    if not len(leads):
        return messages
    octets = Octets(messages)
    counted = pc.extract_regex(octets.texts(octets.starts[leads], octets.stops[leads]), _COUNT)
    leads, counted = leads[counted.is_valid().to_numpy(zero_copy_only=False)], counted.filter(counted.is_valid())
    counts = counted.field("count").cast(pa.string()).cast(pa.int64()).to_numpy(zero_copy_only=False)
    begins = octets.starts[leads] + np.diff(bounds(counted.field("count"))) + 1
    sizes = octets.stops[leads] - begins
    ends = np.diff(bounds(messages))[leads] - np.diff(bounds(without_ends(messages)))[leads]
    exact = (sizes == counts) | (sizes - ends == counts)
    starts = octets.starts.copy()
    starts[leads[exact]] = begins[exact]
    return octets.texts(starts, octets.stops)


def compressed_rows(messages: pa.Array[Any]) -> Bools:
    """Return a mask of the messages (type binary) that are compressed and must not be parsed."""
    is_zlib_message: Bools = (_first_bytes(messages) == _ZIPPED) & (np.diff(bounds(messages)) > 2)
    # Only messages that begin with a z and have two more bytes reach this loop: almost none.
    for row in np.flatnonzero(is_zlib_message).tolist():
        is_zlib_message[row] = _is_zlib(messages[row].as_py())
    return is_zlib_message


def _first_bytes(messages: pa.Array[Any]) -> Bytes:
    """Return the first byte of each message; 0 for an empty one."""
    data, starts, stops = raw_bytes(messages)
    if not len(data):
        return np.zeros(len(messages), np.uint8)
    return data[np.minimum(starts, len(data) - 1)] * (stops > starts)


def _is_zlib(message: bytes) -> bool:
    """Report whether the first bytes after the z are a valid zlib stream."""
    try:
        # Limit: only 64 bytes are decompressed, enough to distinguish a stream from text that begins with z.
        zlib.decompressobj().decompress(message[1:], _PROBE_BYTES)
    except zlib.error:
        return False
    return True
