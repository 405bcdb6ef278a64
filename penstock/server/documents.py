"""Entries as JSON, both ways, in the form of slogd's HTTP API.

The rules are those of proto3's JSON mapping with the proto's own field names, and of Go's decoder
where slogd's clients can tell: what follows the first value of a body is ignored, so are unknown
fields, ``null`` means not given, base64 is the standard alphabet with padding.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
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
from google.protobuf.timestamp_pb2 import Timestamp

from penstock import records
from penstock.server.entries import Row, rows
from penstock.server.errors import BadRequest

WELL_KNOWN = (api_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, type_pb2, wrappers_pb2)
"""Imported so that the types they describe are known; an Any of any other type passes as base64."""

_EPOCH = datetime(1970, 1, 1)
_WITHOUT_DECIMALS = len("1970-01-01T00:00:00")
_BAD_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, RecursionError, DecodeError, json_format.Error)
"""What protobuf's JSON code raises on values it cannot take."""


def dumps(document: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def logs_document(batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """The answer to GetLogs of the rows of SCHEMA batches; without rows an empty object."""
    logs = [row_document(row) for batch in batches for row in rows(batch)]
    return {"logs": logs} if logs else {}


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
    if _known(type_url):
        try:
            message = ProtobufAny(type_url=type_url, value=value)
            return dict(json_format.MessageToDict(message, preserving_proto_field_name=True))
        except _UNREADABLE:
            pass
    return {"@type": type_url, "value": base64.b64encode(value).decode()}


def _known(type_url: str) -> bool:
    try:
        descriptor_pool.Default().FindMessageTypeByName(type_url.rpartition("/")[2])
    except KeyError:
        return False
    return True


def parse_append(data: bytes) -> pa.RecordBatch:
    """The BODY batch of an append request's JSON. Raises BadRequest and nothing else."""
    request = _first_value(data)
    _expect(request, dict, "the request")
    _expect(request.get("topic") or "", str, "topic")
    logs = request.get("logs")
    entries = _expect([] if logs is None else logs, list, "logs")
    columns = [_entry(_expect(entry, dict, "an entry of logs")) for entry in entries]
    keys, payloads, type_urls, annotations = zip(*columns, strict=True) if columns else ((), (), (), ())
    return records.body(
        pa.array(payloads, pa.binary()),
        keys=pa.array(keys, pa.binary()),
        type_urls=pa.array(type_urls, pa.string()),
        annotations=pa.array(annotations, records.ANNOTATIONS),
    )


def _first_value(data: bytes) -> Any:
    text = data.decode(errors="replace").lstrip(" \t\r\n")
    if not text:
        raise BadRequest("EOF")
    try:
        return _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)

_Entry = tuple[bytes | None, bytes | None, str | None, list[tuple[str, str]] | None]


def _entry(document: Mapping[str, Any]) -> _Entry:
    """Key, payload, type URL and annotations of one entry; offset and timestamp are checked and left out."""
    _check_offset(document.get("offset"))
    _check_timestamp(document.get("timestamp"))
    key, annotations = _bytes(document, "key"), _annotations(document.get("annotations"))
    raw = _bytes(document, "raw_bytes", "rawBytes")
    any_given = document.get("protobuf")
    # Given both, raw bytes are taken, as slogd does.
    if any_given is None or raw is not None:
        return key, raw, None, annotations
    message = _any(_expect(any_given, dict, "protobuf"))
    return key, message.value, message.type_url, annotations


def _expect(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise BadRequest(f"{what}: cannot take {type(value).__name__} where {kind.__name__} is expected")
    return value


def _bytes(document: Mapping[str, Any], *names: str) -> bytes | None:
    value = next((document[name] for name in names if document.get(name) is not None), None)
    if value is None:
        return None
    text = _expect(value, str, names[0]).replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        wrong = _BAD_BASE64.search(text)
        raise BadRequest(f"illegal base64 data at input byte {wrong.start() if wrong else len(text)}") from None


def _annotations(value: Any) -> list[tuple[str, str]] | None:
    given = _expect({} if value is None else value, dict, "annotations")
    return [(_text(name), _text("" if text is None else text)) for name, text in given.items()] or None


def _text(value: Any) -> str:
    """A lone surrogate, which JSON can spell and UTF-8 cannot, becomes U+FFFD."""
    text = str(_expect(value, str, "annotations"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_offset(value: Any) -> None:
    digits = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if value is not None and not (re.fullmatch(r"[0-9]{1,20}", digits) and int(digits) < 2**64):
        raise BadRequest("offset: not a number from 0 to 2^64 - 1")


def _check_timestamp(value: Any) -> None:
    if value is None:
        return
    try:
        Timestamp().FromJsonString(_expect(value, str, "timestamp"))
    except ValueError as error:
        raise BadRequest(f"bad Timestamp: {error}") from None


def _any(document: dict[str, Any]) -> ProtobufAny:
    type_url = _expect(document.get("@type"), str, "@type")
    try:
        if _known(type_url):
            message = ProtobufAny()
            json_format.ParseDict(document, message, ignore_unknown_fields=True)
            return message
        if document.keys() == {"@type", "value"}:
            return ProtobufAny(type_url=type_url, value=_bytes(document, "value") or b"")
    except _UNREADABLE as error:
        raise BadRequest(f"protobuf: {error}") from None
    raise BadRequest(f'unknown message type "{type_url.rpartition("/")[2]}"')
