"""The codec ``forward``: rows of events to messages, with tag, time and uuid in annotations, the record as JSON."""

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

TAG, TIMESTAMP, UUID = "tag", "timestamp", "uuid"
_ROW = r"(?s)\A(?P<uuid>[^\x00]*)\x00(?P<tag>[^\x00]*)\x00(?P<time>[0-9]*)\x00(?P<record>.*)\z"


class ForwardDecoder(RawDecoder):
    """Decodes the rows of one listener; ``statistics`` has plog's keys."""

    def _decoded(self, lines: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        """One message per row."""
        parts = pc.extract_regex(lines, _ROW)
        uuids = _given(parts.field("uuid"))
        fields = {TAG: strings(parts.field("tag")), TIMESTAMP: _written(parts.field("time")), UUID: uuids}
        return Decoded(annotated(parts.field("record"), fields), counts, rows=rows)


def _written(digits: pa.Array[Any]) -> pa.Array[Any]:
    """Nanoseconds since the epoch as RFC 3339; null for none."""
    stamps: pa.Array[Any] = _given(digits).cast(pa.int64()).cast(pa.timestamp("ns", "UTC"))
    written: pa.Array[Any] = pc.strftime(stamps, "%Y-%m-%dT%H:%M:%SZ")
    return written


def _given(parts: pa.Array[Any]) -> pa.Array[Any]:
    """Texts; null for empty ones."""
    empty = pc.equal(parts, pa.scalar(b"", pa.binary()))
    given: pa.Array[Any] = pc.replace_with_mask(strings(parts), empty, pa.scalar(None, pa.string()))
    return given
