"""Whole batches of syslog messages as columns of a table: the fields of their headers, and the message behind it."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import ANNOTATIONS
from penstock.wire.datagrams import Ints
from penstock.wire.sender_text import strings
from penstock.wire.syslog.codec import maps_of, names_of, times_of
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
"""Null is what a header does not say; ``structured_data`` has each parameter by ``SD-ID.NAME``."""


def syslog_columns(payloads: pa.Array[Any], received: Ints, zone: tzinfo | None = UTC) -> pa.RecordBatch:
    """The columns of ``payloads`` (type binary, without nulls): schema COLUMNS.

    ``received``: microseconds since the epoch, one a row or one for all, for times without a year; ``zone``: of times
    that name none, None is this machine's. A time that is none is null; bytes that are no UTF-8 become U+FFFD.
    """
    messages = without_ends(payloads)
    header = Headers(messages)
    facility, severity = names_of(header)
    texts = [strings(header.said(name)) for name in ("hostname", "app_name", "proc_id", "msg_id")]
    time = times_of(header, received, zone).column()
    columns = [facility, severity, time, *texts, _structured_data(header), _messages(header)]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def syslog_messages(payloads: pa.Array[Any]) -> pa.Array[Any]:
    """The column ``message`` of ``payloads`` alone (type binary, without nulls)."""
    return _messages(Headers(without_ends(payloads)))


def _messages(header: Headers) -> pa.Array[Any]:
    return strings(header.octets.texts(header.ends, header.octets.stops))


def _structured_data(header: Headers) -> pa.Array[Any]:
    """The parameters as maps. Structured data that cannot be split is the map's only entry, under its own name."""
    places = header.fields["structured_data"]
    if (parameters := read_parameters(header.octets, places)) is None:
        return pa.nulls(len(header.octets), ANNOTATIONS)
    texts = strings(header.octets.texts(places.begins, places.ends))
    maps = maps_of(("structured_data",), [texts], parameters.whole[:, None], parameters)
    given: pa.Array[Any] = pa.array(places.filled)
    column: pa.Array[Any] = pc.if_else(given, maps, pa.scalar(None, ANNOTATIONS))
    return column
