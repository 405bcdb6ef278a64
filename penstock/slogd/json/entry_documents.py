"""Entries as JSON, in the form of slogd's HTTP API: proto3's JSON mapping with the field names of the proto file."""

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
"""Imported to register their types. An Any of another type is represented in base64."""

SORTED_TYPES = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
EXPONENT_FROM = 1e21
"""Smallest number that Go writes with an exponent."""
_EPOCH = datetime(1970, 1, 1)
_WITHOUT_DECIMALS = len("1970-01-01T00:00:00")
UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, RecursionError, DecodeError, json_format.Error)
"""Exceptions of protobuf's JSON code for values that it cannot represent."""


def dumps(document: Any) -> bytes:
    """Encode as compact JSON; lone surrogates, which JSON can express and UTF-8 cannot, are escaped."""
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def logs_document(batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """Return the response to GetLogs for the rows of SCHEMA batches; an empty object if there are none."""
    logs = [row_document(row) for batch in batches for row in rows(batch)]
    return {"logs": logs} if logs else {}


def sorted_annotations(document: dict[str, Any]) -> dict[str, Any]:
    """Sort the annotations in an answer of ``logs_document`` by name, as slogd does."""
    for entry in document.get("logs", ()):
        if len(entry.get("annotations", ())) > 1:
            entry["annotations"] = dict(sorted(entry["annotations"].items()))
    return document


def row_document(row: Row) -> dict[str, Any]:
    """Return an entry as a document; unset fields and offset 0 (proto3's default) are left out."""
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
    """Return microseconds since the epoch as RFC 3339 with 0, 3 or 6 decimals (years 1 to 9999)."""
    text = (_EPOCH + timedelta(microseconds=micros)).isoformat()
    return (text.removesuffix("000") if len(text) > _WITHOUT_DECIMALS else text) + "Z"


def any_document(type_url: str, value: bytes) -> dict[str, Any]:
    """Return an Any in its type's own JSON.

    If the type is unknown or does not match: ``{"@type", "value"}`` with base64.
    """
    if is_readable_type(type_url):
        try:
            message = ProtobufAny(type_url=type_url, value=value)
            return _normalize_for_go(json_format.MessageToDict(message, preserving_proto_field_name=True), type_url)
        except UNREADABLE:
            pass
    return {"@type": type_url, "value": base64.b64encode(value).decode()}


def _normalize_for_go(document: dict[str, Any], type_url: str) -> dict[str, Any]:
    """Format as Go's jsonpb: whole numbers without decimals, and a Struct's fields sorted by name."""
    is_sorted = type_url.rpartition("/")[2] in SORTED_TYPES
    normalized: dict[str, Any] = {name: _normalize(field, in_order=is_sorted) for name, field in document.items()}
    return normalized


def _normalize(node: Any, *, in_order: bool) -> Any:
    if isinstance(node, dict):
        members = sorted(node.items()) if in_order else node.items()
        return {name: _normalize(inner, in_order=in_order) for name, inner in members}
    if isinstance(node, list):
        return [_normalize(inner, in_order=in_order) for inner in node]
    if isinstance(node, float) and node.is_integer() and abs(node) < EXPONENT_FROM:
        return int(node)
    return node


def is_readable_type(type_url: str) -> bool:
    """Report whether the type of a URL is registered."""
    try:
        descriptor_pool.Default().FindMessageTypeByName(type_url.rpartition("/")[2])
    except KeyError:
        return False
    return True
