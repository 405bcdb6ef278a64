"""Decodes requests and responses into record batches: protobuf parses them, values are gathered by column.

Measured, entries of 256 bytes: 0.14 us per entry in a request of 1,000 plain entries, 0.26 in one of 100; 0.9 us with
two annotations each, as columns (1.6 entry by entry). Reading the wire format with numpy took 0.31, 1.4, and 1.1 (4.2
in a request of 100). In a request of 16,000 protobuf's entries leave the cache: 0.84 us each, and 0.003 as an Arrow
message, which a relay sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from penstock import records
from penstock.counts import BUCKET_SECONDS, Origin
from penstock.qualified_names import split_relayed
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.entries import to_body, to_rows
from penstock.slogd.columns.gathered import GatheredValues, gather_values
from penstock.slogd.columns.ipc_message import is_uncompressed
from penstock.slogd.errors import BadRequest
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse, LogEntry

MAX_LOOP_ENTRIES = 20
"""Number of entries up to which a loop is as fast as columns; an append of so few stays rows until it is committed."""
MAX_ENTRIES = 1_000_000
"""Limit: entries of one append; an empty one takes two bytes in a request, and 250 in memory."""
MAX_SOURCE = 32
"""Limit: bytes of the source and of the codec of relayed entries, the same as in the index of a segment."""
MAX_HOPS = 16
"""Limit: relays that an entry passes one after the other; each batch stores them."""
MAX_HOP_LENGTH = 32 + 1 + 249
"""Limit: of an instance's id and a topic."""
MAX_TIME_S = 253_370_764_800
"""Limit: seconds since the epoch in an origin, the year 9999, so that no date is out of range."""
TOO_MANY_ENTRIES = f"An append may have {MAX_ENTRIES} entries"
FEW_FIELDS = 32
"""Number of fields that a request without entries never has."""
_ENTRY_TAG, _CONTINUED = 0x12, 0x80
"""The tag of an entry in an AppendRequest; octets of a varint but for its last one have the second bit."""
_VARINT, _BYTES, _FIXED_SIZES = 0, 2, {1: 8, 5: 4}
"""Kinds of fields: the lowest three bits of a tag."""
_ANNOTATIONS_OF = attrgetter("annotations")


@dataclass(frozen=True, slots=True)
class Append:
    """An AppendRequest: its scalar fields and its entries."""

    topic: str
    body: records.Body
    transaction_id: str = ""
    producer_id: str = ""
    sequence: int = 0
    unknown: str = ""
    """Name of an unknown field that was ignored (JSON only)."""
    has_more: bool = False
    """The body has more than one JSON value; only the first one was read."""
    origin: Origin | None = None
    """Source and minute at the host that relays the entries; without counts."""


def parse_append(data: bytes) -> Append:
    """Parse an AppendRequest. Raises BadRequest."""
    if _has_too_many_entries(data):
        raise BadRequest(TOO_MANY_ENTRIES)
    try:
        request = AppendRequest.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"error unmarshalling request: {error}") from None
    if request.columns:
        if request.logs:
            raise BadRequest("An append has entries or columns, not both")
        body: records.Body = _decode_columns(request.columns)
    else:
        is_small = len(request.logs) <= MAX_LOOP_ENTRIES
        body = to_rows(request.logs) if is_small else _decode_body(data, request.logs)
    origin = _parse_origin(request.origin) if request.HasField("origin") else None
    return Append(request.topic, body, request.transaction_id, request.producer_id, request.sequence, origin=origin)


def _decode_columns(message: bytes) -> pa.RecordBatch:
    """Return the BODY batch in an encapsulated IPC message, whose buffers it shares. Raises BadRequest."""
    if not is_uncompressed(message):
        raise BadRequest(
            "The columns of an append must not be compressed, and must have format V5 of Arrow's IPC messages"
        )
    try:
        body = pa.ipc.read_record_batch(pa.py_buffer(message), records.BODY)
        if body.num_rows > MAX_ENTRIES:
            raise BadRequest(TOO_MANY_ENTRIES)
        # Full validation: wrong offsets in a sender's columns would let later reads leave their buffers.
        body.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, MemoryError) as error:
        raise BadRequest(f"The columns of an append are not an Arrow record batch of the log: {error}") from None
    # Limit: columns that share bytes would be stored with all of them, and no answer could carry their entries.
    if body.nbytes > len(message):
        raise BadRequest("The columns of an append share bytes")
    return body


def _parse_origin(origin: pb.Origin) -> Origin:
    """Return the source and minute of relayed entries. Raises BadRequest."""
    host, source = split_relayed(origin.source)
    # Limit: the index of a segment holds 32 bytes of a source. A text with a host is never one of this host's sources.
    if not (host and source and _is_short(origin.source) and _is_short(origin.codec)):
        raise BadRequest(f"The source of an origin is HOST/SOURCE; it and the codec have at most {MAX_SOURCE} bytes")
    has_minute = origin.bucket % BUCKET_SECONDS == 0 and 0 <= origin.bucket <= MAX_TIME_S
    if not (has_minute and 0 <= origin.first <= origin.last <= MAX_TIME_S * 1_000_000):
        raise BadRequest("An origin has the start of a minute, and a first receive time that is not after the last")
    if len(origin.hops) > MAX_HOPS or not all(0 < len(hop) <= MAX_HOP_LENGTH for hop in origin.hops):
        raise BadRequest(f"An origin has at most {MAX_HOPS} hops, each of at most {MAX_HOP_LENGTH} characters")
    return Origin(origin.source, origin.bucket, origin.first, origin.last, origin.codec, hops=tuple(origin.hops))


def _is_short(text: str) -> bool:
    return text.isprintable() and len(text.encode()) <= MAX_SOURCE


def _has_too_many_entries(data: bytes) -> bool:
    """Return whether a request has more than MAX_ENTRIES entries, before protobuf takes memory for them."""
    # Fast paths: an entry takes two octets, a request of columns has few fields, and each entry's tag begins with one
    # of two octets, so that few of these are few entries (a request of 64 MiB in 50 ms).
    if len(data) <= 2 * MAX_ENTRIES or len(list(islice(_tags(data), FEW_FIELDS + 1))) <= FEW_FIELDS:
        return False
    if data.count(_ENTRY_TAG) + data.count(_ENTRY_TAG | _CONTINUED) <= MAX_ENTRIES:
        return False
    entries = 0
    for number, tag in enumerate(_tags(data)):
        entries += tag == _ENTRY_TAG
        # Limit: a request has few other fields, so that the time of this loop is limited, too.
        if entries > MAX_ENTRIES or number >= MAX_ENTRIES + FEW_FIELDS:
            return True
    return False


def _tags(data: bytes) -> Iterator[int]:
    """Yield the tags of the fields of a message, in any order and of any length, as protobuf accepts them."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            position = _varint(data, position)[1]
        elif kind == _BYTES:
            size, position = _varint(data, position)
            position += size
        else:
            position += _FIXED_SIZES.get(kind, 0)
        yield tag


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position and the position after it, which is the end if the data ends before."""
    value = shift = 0
    while position < len(data):
        octet = data[position]
        position += 1
        value |= (octet & ~_CONTINUED) << shift
        shift += 7
        if not octet & _CONTINUED or shift >= 70:
            break
    return value, position


def parse_logs(data: bytes) -> tuple[pa.RecordBatch, int]:
    """Return the SCHEMA batch and next_offset of a GetLogsResponse. Raises ValueError."""
    try:
        response = GetLogsResponse.FromString(data)
        entries = list(response.logs)
        offsets = pa.array([entry.offset for entry in entries], pa.int64())
        stamps = [entry.timestamp for entry in entries]
        micros = pa.array([stamp.seconds * 1_000_000 + stamp.nanos // 1000 for stamp in stamps], pa.int64())
    except (DecodeError, OverflowError) as error:
        raise ValueError(f"not a GetLogsResponse: {error}") from None
    columns = [offsets, micros.view(records.SCHEMA.field("timestamp").type), *_decode_body(data, entries).columns]
    return pa.RecordBatch.from_arrays(columns, schema=records.SCHEMA), response.next_offset


def _decode_body(data: bytes, entries: Sequence[LogEntry]) -> pa.RecordBatch:
    """Return the BODY batch of ``entries``, which were parsed from ``data``."""
    gathered_values = gather_values(data, len(entries)) if len(entries) > MAX_LOOP_ENTRIES else None
    if gathered_values is None:
        return to_body(entries)
    payloads = pa.array(gathered_values.payloads, pa.binary())
    if not gathered_values.names:
        return records.body(payloads)
    counts = np.fromiter(map(len, map(_ANNOTATIONS_OF, entries)), np.int32, len(entries))
    # An annotation with two names or values was gathered twice, so the values cannot be assigned to entries by count.
    if not counts.sum() == len(gathered_values.names) == len(gathered_values.texts):
        return to_body(entries)
    return records.body(payloads, annotations=_annotation_maps(counts, gathered_values))


def _annotation_maps(counts: np.ndarray, gathered_values: GatheredValues) -> pa.Array[Any]:
    """Return the annotations by entry, ``counts`` of them each; null for an entry without any."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    names, texts = pa.array(gathered_values.names, pa.string()), pa.array(gathered_values.texts, pa.string())
    return records.annotation_maps(offsets, names, texts, nulls=counts == 0)
