"""Batches of syslog messages as columns of a table: header fields, and the message after the header."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import ANNOTATIONS
from penstock.wire.datagrams import Ints
from penstock.wire.sender_text import strings
from penstock.wire.syslog.codec import build_maps, parse_times, priority_names
from penstock.wire.syslog.framing import without_ends
from penstock.wire.syslog.headers import Headers
from penstock.wire.syslog.structured_data import read_parameters

_TYPES: dict[str, pa.DataType] = {
    "facility": pa.string(),
    "severity": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "host": pa.string(),
    "app_name": pa.string(),
    "proc_id": pa.string(),
    "msg_id": pa.string(),
    "structured_data": ANNOTATIONS,
    "message": pa.string(),
}
COLUMNS = pa.schema(_TYPES)
"""Columns of syslog messages; null if the header lacks a field. ``structured_data`` has keys ``SD-ID.NAME``."""


def syslog_columns(payloads: pa.Array[Any], received: Ints, zone: tzinfo | None = UTC) -> pa.RecordBatch:
    """Return the columns of ``payloads`` (type binary, without nulls): schema COLUMNS.

    ``received``: microseconds since the epoch, one per row or one for all, for times without a year; ``zone``: zone of
    times without one, None for this machine's. An unreadable time is null; bytes that are not UTF-8 become U+FFFD.
    """
    messages = without_ends(payloads)
    header = Headers(messages)
    facility, severity = priority_names(header)
    texts = [strings(header.column(name)) for name in ("hostname", "app_name", "proc_id", "msg_id")]
    time = parse_times(header, received, zone).column()
    columns = [facility, severity, time, *texts, _structured_data(header), _messages(header)]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def syslog_messages(payloads: pa.Array[Any]) -> pa.Array[Any]:
    """Return only the column ``message`` of ``payloads`` (type binary, without nulls)."""
    return _messages(Headers(without_ends(payloads)))


def _messages(header: Headers) -> pa.Array[Any]:
    return strings(header.octets.texts(header.ends, header.octets.stops))


def _structured_data(header: Headers) -> pa.Array[Any]:
    """Return the parameters as maps; unreadable structured data is the map's only entry, under its own name."""
    spans = header.fields["structured_data"]
    # Fast path: most batches have no structured data, and need no maps.
    if (parameters := read_parameters(header.octets, spans)) is None:
        return pa.nulls(len(header.octets), ANNOTATIONS)
    texts = strings(header.octets.texts(spans.begins, spans.ends))
    indices = np.arange(len(texts))[:, None]
    maps = build_maps(("structured_data",), texts, indices, parameters.is_unsplit[:, None], parameters)
    is_present: pa.Array[Any] = pa.array(spans.filled)
    column: pa.Array[Any] = pc.if_else(is_present, maps, pa.scalar(None, ANNOTATIONS))
    return column
