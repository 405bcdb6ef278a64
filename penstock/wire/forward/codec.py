"""The codec ``forward``: rows of events to messages, with tag, time, uuid and metadata as annotations.

The record is the payload, as JSON.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts
from penstock.records import annotated
from penstock.wire.datagrams import Ints
from penstock.wire.decoded import Decoded
from penstock.wire.raw import RawDecoder
from penstock.wire.sender_text import strings

TAG, TIMESTAMP, UUID, METADATA = "tag", "timestamp", "uuid", "metadata"
_ROW = (
    r"(?s)\A(?P<uuid>[^\x00]*)\x00(?P<tag>[^\x00]*)\x00(?P<time>[0-9]*)"
    r"\x00(?P<record>[^\x00]*)(?:\x00(?P<metadata>.*))?\z"
)


class ForwardDecoder(RawDecoder):
    """Decoder of one listener's rows; ``statistics`` has plog's keys."""

    def _decoded(self, lines: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        # Fast path: the rows are split as columns; NUL cannot occur in their parts, which are checked or JSON.
        parts = pc.extract_regex(lines, _ROW)
        uuids = _null_if_empty(parts.field("uuid"))
        fields = {TAG: strings(parts.field("tag")), TIMESTAMP: _format_times(parts.field("time")), UUID: uuids}
        fields[METADATA] = _null_if_empty(parts.field("metadata"))
        return Decoded(annotated(parts.field("record"), fields), counts, rows=rows)


def _format_times(digits: pa.Array[Any]) -> pa.Array[Any]:
    """Format nanoseconds since the epoch as RFC 3339; null for an empty text."""
    stamps: pa.Array[Any] = _null_if_empty(digits).cast(pa.int64()).cast(pa.timestamp("ns", "UTC"))
    formatted: pa.Array[Any] = pc.strftime(stamps, "%Y-%m-%dT%H:%M:%SZ")
    return formatted


def _null_if_empty(parts: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``parts`` as texts, null for empty ones."""
    empty = pc.equal(parts, pa.scalar(b"", pa.binary()))
    texts: pa.Array[Any] = pc.replace_with_mask(strings(parts), empty, pa.scalar(None, pa.string()))
    return texts
