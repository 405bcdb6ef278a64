"""What stands around a syslog message and is none of it: the end that a sender puts behind each, a compression."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import bounds
from penstock.wire.syslog.octets import Bools, Octets

_NEWLINE, _RETURN = 10, 13
_IS_END = np.zeros(256, np.bool_)
_IS_END[[0, _NEWLINE]] = True
_ZIPPED = ord("z")
"""Before a message that rsyslog compressed (``ZipLevel``); zlib's own header follows."""
_PROBED = 64
_COUNT = r"\A(?P<count>[1-9][0-9]{0,9}) <[0-9]{1,3}>"


def without_ends(messages: pa.Array[Any]) -> pa.Array[Any]:
    """``messages`` (type binary) without the newlines and NULs behind them: other transports end messages with these.

    So the same message has the same bytes over each of them.
    """
    octets = Octets(messages)
    data, starts, ends = octets.data, octets.starts, octets.stops
    while (ending := (ends > starts) & _IS_END[data[ends - 1]]).any():
        ends = ends - ending
        ends = ends - (ending & (ends > starts) & (data[ends] == _NEWLINE) & (data[ends - 1] == _RETURN))
    return messages if ends is octets.stops else octets.texts(starts, ends)


def without_counts(messages: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``messages`` (type binary) without the length that some senders put in front, as on TCP.

    Only a length that is exact belongs to the transport; other numbers are text.
    """
    octets = Octets(messages)
    leads = np.flatnonzero(octets.data[octets.starts] - np.uint8(ord("1")) < 9)
    if not len(leads):
        return messages
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


def compressed(messages: pa.Array[Any]) -> Bools:
    """Which of ``messages`` (type binary) are compressed: their text is not to be read."""
    octets = Octets(messages)
    found: Bools = (octets.data[octets.starts] == _ZIPPED) & (octets.stops > octets.starts + 2)
    for row in np.flatnonzero(found).tolist():
        found[row] = _is_zlib(messages[row].as_py())
    return found


def _is_zlib(message: bytes) -> bool:
    """Whether a message that begins with a z goes on as zlib's format does, as far as its first bytes tell."""
    try:
        zlib.decompressobj().decompress(message[1:], _PROBED)
    except zlib.error:
        return False
    return True
