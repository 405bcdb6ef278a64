"""An append request as JSON, read as slogd's gateway does.

The rules are those of proto3's JSON mapping as Go's jsonpb has it: both spellings of a name (the camel one wins),
``null`` means not given, numbers may be texts, fields that are not known are passed over, and so is what follows the
first value of a body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as ProtobufAny

from penstock import records
from penstock.slogd.columns.decode import FEW, Append
from penstock.slogd.errors import BadRequest
from penstock.slogd.json.entry_documents import UNREADABLE
from penstock.slogd.json.values import first_value, from_base64, mismatch, parse_time

ENTRY_NAMES = frozenset({"offset", "timestamp", "annotations", "protobuf", "raw_bytes", "rawBytes", "key"})
_MEANT = frozenset({"payload", "message", "data", "value", "body", "content", "text", "any"})
_MEANT_BY = re.compile(r"raw|byte|proto", re.IGNORECASE)
"""Names under which a payload may have been meant."""


def parse_append(topic: str, data: bytes) -> Append:
    """An append request's JSON; ``topic`` is that of the path. Raises BadRequest and nothing else."""
    try:
        return _request(topic, first_value(data))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _request(topic: str, document: Any) -> Append:
    request = _object(document)
    _text(request.get("topic"))
    entries = [_object(entry) for entry in _array(request.get("logs"))]
    unknown = [name for entry in entries for name in entry if name not in ENTRY_NAMES]
    return Append(
        topic,
        _body(records.Rows(_entry(entry) for entry in entries)),
        _text(_either(request, "transaction_id", "transactionId")),
        _text(_either(request, "producer_id", "producerId")),
        _uint64(request.get("sequence")),
        next(iter(unknown), ""),
    )


def _body(rows: records.Rows) -> records.Body:
    return rows if len(rows) <= FEW else rows.batch()


def _entry(document: Mapping[str, Any]) -> records.Row:
    """Key, payload, type URL and annotations of one entry; offset and timestamp are checked and left out."""
    _uint64(document.get("offset"))
    if document.get("timestamp") is not None:
        parse_time(_text(document["timestamp"]))
    annotations, key = _annotations(document.get("annotations")), _bytes(document.get("key"))
    raw, given = _bytes(_either(document, "raw_bytes", "rawBytes")), document.get("protobuf")
    if given is None and raw is None:
        _check_names(document)
    # Given both, raw bytes are taken, as slogd does.
    if given is None or raw is not None:
        return key, raw, None, annotations
    message = _any(_object(given))
    return key, message.value, message.type_url, annotations


def _check_names(document: Mapping[str, Any]) -> None:
    """Refuse an entry without a payload that has one under another name: it would be stored empty."""
    for name in document:
        if name not in ENTRY_NAMES and (name.lower() in _MEANT or _MEANT_BY.search(name)):
            raise ValueError(
                f"unknown field {json.dumps(name)} in an entry without payload: raw_bytes has it in base64"
            )


def _either(document: Mapping[str, Any], name: str, camel: str) -> Any:
    return document.get(camel, document.get(name))


def _object(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise mismatch(value, "map[string]json.RawMessage")
    return value


def _array(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise mismatch(value, "[]json.RawMessage")
    if None in value:
        raise ValueError("proto: repeated field Logs has nil element")
    return value


def _text(value: Any) -> str:
    """A lone surrogate, which JSON can spell and UTF-8 cannot, becomes U+FFFD."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise mismatch(value, "string")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bytes(value: Any) -> bytes | None:
    """Base64."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise mismatch(value, "[]uint8")
    return from_base64(value)


def _uint64(value: Any) -> int:
    """A number, or a text of one."""
    number = first_value(value.encode("utf-8", "replace")) if isinstance(value, str) else value
    if number is None:
        return 0
    if type(number) is int and 0 <= number < 1 << 64:
        return number
    raise mismatch(number, "uint64")


def _annotations(value: Any) -> list[tuple[str, str]] | None:
    given = _object(value)
    return [(_text(name), _text(text)) for name, text in given.items()] or None


def _any(document: dict[str, Any]) -> ProtobufAny:
    if not document:
        raise ValueError("Any JSON doesn't have '@type'")
    try:
        return json_format.ParseDict(document, ProtobufAny(), ignore_unknown_fields=True)
    except UNREADABLE as error:
        told = str(error) if isinstance(error, json_format.Error) else "it does not fit its type"
        raise ValueError(f"can't unmarshal Any: {told}") from None
