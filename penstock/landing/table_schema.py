"""The columns of the table ``landed``, as every engine reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

MICROS = pa.timestamp("us", "UTC")
SYSLOG_COLUMNS = {
    "severity": "severity",
    "facility": "facility",
    "app_name": "app_name",
    "procid": "proc_id",
    "msgid": "msg_id",
}
"""Columns of syslog messages, and the annotations that they are taken from."""
FOREIGN_COLUMNS = {"severity": "severity_text", "trace_id": "trace_id", "span_id": "span_id"}
"""Columns of messages of other protocols (OTLP), and the annotations that they are taken from."""
_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": MICROS,
    "received": MICROS,
    "source": pa.string(),
    "bucket": MICROS,
    "landed_at": MICROS,
    "type": pa.string(),
    "uuid": pa.string(),
    "host": pa.string(),
    "event_time": MICROS,
    "data": pa.string(),
    "payload": pa.binary(),
    "key": pa.binary(),
    "type_url": pa.string(),
    "annotations": pa.map_(pa.string(), pa.string()),
    "reason": pa.string(),
    **dict.fromkeys([*SYSLOG_COLUMNS, "message", "trace_id", "span_id"], pa.string()),
}
FILE_SCHEMA = pa.schema(_TYPES)
"""What a file holds: ``data`` is JSON text."""
PARTITION_COLUMNS = ("kind", "date")
LANDED = pa.schema({**_TYPES, "kind": pa.string(), "date": pa.date32()})
"""What a reader sees: besides, what the names of the folders say."""
STATISTICS = ("topic", "offset", "timestamp", "landed_at", "type", "event_time", "uuid", "host")
"""Columns whose least and greatest value readers are told, to pass over files."""
DICTIONARIES = ["topic", "source", "type", "host", "reason", "type_url", "severity", "facility", "app_name", "msgid"]


@dataclass(frozen=True, slots=True)
class FileForm:
    """What the files of a table hold; ``folders``: columns that the names of their folders say instead."""

    schema: pa.Schema = FILE_SCHEMA
    folders: tuple[str, ...] = PARTITION_COLUMNS
    dictionaries: Sequence[str] = tuple(DICTIONARIES)


LANDED_FORM = FileForm()
_PLACE = "topic, partition, offset, timestamp, received, source, bucket"
VIEW_COLUMNS = {
    "events": f"{_PLACE}, landed_at, date, type, uuid, host, event_time, data, payload, key, annotations",
    "syslog": (
        f"{_PLACE}, landed_at, date, host, event_time, {', '.join(SYSLOG_COLUMNS)}, message, payload, key, annotations"
    ),
    "messages": (
        f"{_PLACE}, landed_at, date, host, event_time, {', '.join(FOREIGN_COLUMNS)}, "
        "payload, key, type_url, annotations"
    ),
    "quarantine": f"{_PLACE}, landed_at, date, reason, payload, key, annotations",
}
"""The columns of each view."""
