"""Entries as JSON, in the form of slogd's HTTP API: proto3's JSON mapping with the proto's own field names."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from google.protobuf import (
    api_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    source_context_pb2,
    struct_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.any_pb2 import Any as ProtobufAny
from google.protobuf.message import DecodeError

from penstock.slogd.columns.entries import Row, rows

WELL_KNOWN = (api_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, type_pb2, wrappers_pb2)
"""Imported so that the types they describe are known; an Any of any other type passes as base64."""

UNORDERED = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
WHOLE = 1e21
"""From here on Go writes an exponent."""
_EPOCH = datetime(1970, 1, 1)
_WITHOUT_DECIMALS = len("1970-01-01T00:00:00")
UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, RecursionError, DecodeError, json_format.Error)
"""What protobuf's JSON code raises on values it cannot take."""


def dumps(document: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def logs_document(batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """The answer to GetLogs of the rows of SCHEMA batches; without rows an empty object."""
    logs = [row_document(row) for batch in batches for row in rows(batch)]
    return {"logs": logs} if logs else {}


def sorted_annotations(document: dict[str, Any]) -> dict[str, Any]:
    """What ``logs_document`` gave, with annotations in the order of their names, as slogd answers them."""
    for entry in document.get("logs", ()):
        if len(entry.get("annotations", ())) > 1:
            entry["annotations"] = dict(sorted(entry["annotations"].items()))
    return document


def row_document(row: Row) -> dict[str, Any]:
    """One entry; what is not set is left out, and so is offset 0 (proto3's default)."""
    document: dict[str, Any] = {"offset": str(row.offset)} if row.offset else {}
    document["timestamp"] = timestamp_text(row.timestamp)
    if row.annotations:
        document["annotations"] = row.annotations
    if row.type_url is not None:
        document["protobuf"] = any_document(row.type_url, row.payload or b"")
    elif row.payload is not None:
        document["raw_bytes"] = base64.b64encode(row.payload).decode()
    if row.key is not None:
        document["key"] = base64.b64encode(row.key).decode()
    return document


def timestamp_text(micros: int) -> str:
    """Microseconds since the epoch as RFC 3339 with 0, 3 or 6 decimals (years 1 to 9999)."""
    text = (_EPOCH + timedelta(microseconds=micros)).isoformat()
    return (text.removesuffix("000") if len(text) > _WITHOUT_DECIMALS else text) + "Z"


def any_document(type_url: str, value: bytes) -> dict[str, Any]:
    """An Any by its type's own JSON; ``{"@type", "value"}`` with base64 where the type is not known or does not fit."""
    if is_known(type_url):
        try:
            message = ProtobufAny(type_url=type_url, value=value)
            return _as_go(json_format.MessageToDict(message, preserving_proto_field_name=True), type_url)
        except UNREADABLE:
            pass
    return {"@type": type_url, "value": base64.b64encode(value).decode()}


def _as_go(document: dict[str, Any], type_url: str) -> dict[str, Any]:
    """As Go's jsonpb has it: whole numbers without decimals, and a Struct's fields in their order."""
    unordered = type_url.rpartition("/")[2] in UNORDERED
    shown: dict[str, Any] = {name: _value(value, in_order=unordered) for name, value in document.items()}
    return shown


def _value(value: Any, *, in_order: bool) -> Any:
    if isinstance(value, dict):
        items = sorted(value.items()) if in_order else value.items()
        return {name: _value(inner, in_order=in_order) for name, inner in items}
    if isinstance(value, list):
        return [_value(inner, in_order=in_order) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE:
        return int(value)
    return value


def is_known(type_url: str) -> bool:
    """Whether the type that a URL names can be read."""
    try:
        descriptor_pool.Default().FindMessageTypeByName(type_url.rpartition("/")[2])
    except KeyError:
        return False
    return True
