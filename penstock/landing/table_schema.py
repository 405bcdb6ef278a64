"""Columns of the table ``landed``, as every engine reads them."""

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
"""Columns of syslog messages, with the annotations that they come from."""
FOREIGN_COLUMNS = {"severity": "severity_text", "trace_id": "trace_id", "span_id": "span_id"}
"""Columns of messages of other protocols (OTLP), with the annotations that they come from."""
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
"""Columns in a file; ``data`` is JSON text."""
PARTITION_COLUMNS = ("kind", "date")
LANDED = pa.schema({**_TYPES, "kind": pa.string(), "date": pa.date32()})
"""Columns for readers: also the partition columns, which are only in the names of folders."""
STATISTICS = ("topic", "offset", "timestamp", "landed_at", "type", "event_time", "uuid", "host")
"""Columns with smallest and largest value in each commit, so that readers skip files."""
DICTIONARY_COLUMNS = [
    "topic",
    "source",
    "type",
    "host",
    "reason",
    "type_url",
    "severity",
    "facility",
    "app_name",
    "msgid",
]
"""Columns with few different values, which dictionaries make small."""


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form of a table's files; ``folders``: columns that are only in the names of folders."""

    schema: pa.Schema = FILE_SCHEMA
    folders: tuple[str, ...] = PARTITION_COLUMNS
    dictionaries: Sequence[str] = tuple(DICTIONARY_COLUMNS)


LANDED_FORM = FileForm()
"""Form of new files of the table ``landed``."""
_ORIGIN_COLUMNS = "topic, partition, offset, timestamp, received, source, bucket"
VIEW_COLUMNS = {
    "events": f"{_ORIGIN_COLUMNS}, landed_at, date, type, uuid, host, event_time, data, payload, key, annotations",
    "syslog": (
        f"{_ORIGIN_COLUMNS}, landed_at, date, host, event_time, {', '.join(SYSLOG_COLUMNS)}, message, "
        "payload, key, annotations"
    ),
    "messages": (
        f"{_ORIGIN_COLUMNS}, landed_at, date, host, event_time, {', '.join(FOREIGN_COLUMNS)}, "
        "payload, key, type_url, annotations"
    ),
    "quarantine": f"{_ORIGIN_COLUMNS}, landed_at, date, reason, payload, key, annotations",
}
"""Columns of each view."""
