"""Parses an append request in JSON in the same way as slogd's gateway.

The rules are proto3's JSON mapping in Go's jsonpb: a name may be spelt in both ways (camel case wins), ``null`` means
absent, a number may be a text, and unknown fields and anything after the first value of the body are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as ProtobufAny

from penstock import records
from penstock.slogd.columns.decode import MAX_ENTRIES, MAX_LOOP_ENTRIES, TOO_MANY_ENTRIES, Append
from penstock.slogd.errors import BadRequest
from penstock.slogd.json.entry_documents import UNREADABLE
from penstock.slogd.json.values import first_value, first_value_and_rest, from_base64, mismatch, parse_time

ENTRY_NAMES = frozenset({"offset", "timestamp", "annotations", "protobuf", "raw_bytes", "rawBytes", "key"})
MAX_VALUES = 1 << 21
"""Limit: values in the JSON of a request. Decoding them holds the interpreter lock for 90 to 160 ms.

MAX_ENTRIES entries of one field have fewer.
"""
_BEFORE_VALUES = (b",", b"[", b"{")
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_PAYLOAD_NAMES = frozenset({"payload", "message", "data", "value", "body", "content", "text", "any"})
_PAYLOAD_NAME_PART = re.compile(r"raw|byte|proto", re.IGNORECASE)
"""Names of unknown fields that probably were meant to hold the payload."""


def parse_append(topic: str, data: bytes) -> Append:
    """Parse an append request in JSON; ``topic`` is that of the path. Raises BadRequest only."""
    if _has_too_many_values(data):
        raise BadRequest(f"The body has more than {MAX_VALUES} values in JSON: send fewer entries in a request")
    try:
        document, has_more = first_value_and_rest(data)
        return replace(_request(topic, document), has_more=has_more)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _has_too_many_values(data: bytes) -> bool:
    """Return whether a body has more than MAX_VALUES values, before the parser takes memory for them."""
    # Fast path: texts with such characters only make the sum larger (100 MB in 30 ms).
    if sum(map(data.count, _BEFORE_VALUES)) <= MAX_VALUES:
        return False
    without_texts = _TEXT.sub(b"", data)
    return sum(map(without_texts.count, _BEFORE_VALUES)) > MAX_VALUES


def _request(topic: str, document: Any) -> Append:
    request = _object(document)
    _text(request.get("topic"))
    if len(_array(request.get("logs"))) > MAX_ENTRIES:
        raise ValueError(TOO_MANY_ENTRIES)
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
    return rows if len(rows) <= MAX_LOOP_ENTRIES else rows.batch()


def _entry(document: Mapping[str, Any]) -> records.Row:
    """Return key, payload, type URL and annotations of an entry. Offset and timestamp are checked and left out."""
    _uint64(document.get("offset"))
    if document.get("timestamp") is not None:
        parse_time(_text(document["timestamp"]))
    annotations, key = _annotations(document.get("annotations")), _bytes(document.get("key"))
    raw_bytes, any_document = _bytes(_either(document, "raw_bytes", "rawBytes")), document.get("protobuf")
    if any_document is None and raw_bytes is None:
        _check_names(document)
    # slogd prefers raw bytes if an entry has both.
    if any_document is None or raw_bytes is not None:
        return key, raw_bytes, None, annotations
    message = _any(_object(any_document))
    return key, message.value, message.type_url, annotations


def _check_names(document: Mapping[str, Any]) -> None:
    """Refuse an entry without payload that has a payload under another name: it would be stored empty."""
    for name in document:
        if name not in ENTRY_NAMES and (name.lower() in _PAYLOAD_NAMES or _PAYLOAD_NAME_PART.search(name)):
            raise ValueError(
                f"unknown field {json.dumps(name)} in an entry without payload: raw_bytes has it in base64"
            )


def _either(document: Mapping[str, Any], name: str, camel: str) -> Any:
    return document.get(camel, document.get(name))


def _object(node: Any) -> dict[str, Any]:
    if node is None:
        return {}
    if not isinstance(node, dict):
        raise mismatch(node, "map[string]json.RawMessage")
    return node


def _array(node: Any) -> list[Any]:
    if node is None:
        return []
    if not isinstance(node, list):
        raise mismatch(node, "[]json.RawMessage")
    if None in node:
        # The text of Go's jsonpb.
        raise ValueError("proto: repeated field Logs has nil element")
    return node


def _text(node: Any) -> str:
    """Return a text; a lone surrogate, which JSON can express and UTF-8 cannot, becomes U+FFFD."""
    if node is None:
        return ""
    if not isinstance(node, str):
        raise mismatch(node, "string")
    return node.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bytes(node: Any) -> bytes | None:
    """Decode a base64 text."""
    if node is None:
        return None
    if not isinstance(node, str):
        raise mismatch(node, "[]uint8")
    return from_base64(node)


def _uint64(node: Any) -> int:
    """Return a number, which may be spelt as a text."""
    number = first_value(node.encode("utf-8", "replace")) if isinstance(node, str) else node
    if number is None:
        return 0
    # `type`, because isinstance accepts a Boolean as int.
    if type(number) is int and 0 <= number < 1 << 64:
        return number
    raise mismatch(number, "uint64")


def _annotations(node: Any) -> list[tuple[str, str]] | None:
    pairs = _object(node)
    return [(_text(name), _text(text)) for name, text in pairs.items()] or None


def _any(document: dict[str, Any]) -> ProtobufAny:
    if not document:
        raise ValueError("Any JSON doesn't have '@type'")
    try:
        return json_format.ParseDict(document, ProtobufAny(), ignore_unknown_fields=True)
    except UNREADABLE as error:
        reason = str(error) if isinstance(error, json_format.Error) else "it does not fit its type"
        raise ValueError(f"can't unmarshal Any: {reason}") from None
