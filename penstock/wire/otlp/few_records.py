"""Requests of few ordinary records, decoded field by field to rows.

Fast path: columns of one record cost as much to create as columns of fifty, 1,100 us against 20 here. It reads the
form in which SDKs write requests: known tags, each single field at most once, valid UTF-8. Any other request is left
to ``records.read_logs``.

Invariant: where this decodes a request, ``read_logs`` returns the same messages.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack_from

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from penstock.errors import PenstockError
from penstock.records import Rows
from penstock.wire.otlp.records import ID_SIZES, RECORD_FIELDS, Logs, resource_pairs, scope_pairs
from penstock.wire.otlp.values import parsed_as, text_of_value
from penstock.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, Malformed

MAX_FEW_RECORDS = 20
"""Limit of the fast path: 20 records cost as much here as in columns."""
MAX_FEW_BYTES, MAX_GROWTH, FIELD_NAMES_BYTES = 8 << 10, 6, 300
"""Limit of the fast path: a message has at most MAX_GROWTH times the request's bytes (escapes in JSON) and the names
of its fields, so that 20 messages stay below MIN_ROOM_BYTES.
"""
MAX_CACHED_BYTES, MAX_CACHED = 1024, 256
"""Limit of the cached resources and scopes: senders repeat theirs in each request."""
_Pairs = tuple[tuple[str, str], ...]
_Field = tuple[int, int, int]
_FIRST, _SECOND, _SCHEMA_URL = 1 << 3 | BYTES, 2 << 3 | BYTES, 3 << 3 | BYTES
"""Tags of a request's resources, a resource and its scopes, a scope and its records, and of their schemas."""
_BODY, _ATTRIBUTE = 5 << 3 | BYTES, 6 << 3 | BYTES
_KEY, _VALUE = 1 << 3 | BYTES, 2 << 3 | BYTES
_STRING, _BOOL, _INT, _DOUBLE = 1 << 3 | BYTES, 2 << 3 | VARINT, 3 << 3 | VARINT, 4 << 3 | FIXED64
_NESTED = (5 << 3 | BYTES, 6 << 3 | BYTES, 7 << 3 | BYTES)
_SIGN = 1 << 63
_FIELD_NAMES = {number << 3 | kind: name for name, (number, kind) in RECORD_FIELDS.items()}
_ID_SIZE = {number << 3 | BYTES: size for number, size in ID_SIZES.items()}
_SEVERITY = RECORD_FIELDS["severity_number"][0] << 3 | VARINT


class _Unusual(PenstockError):
    """The request has a form that only ``read_logs`` decodes."""


def read_few(data: bytes, max_message_bytes: int) -> Logs | None:
    """Decode a request of up to MAX_FEW_RECORDS ordinary records; return None for any other request."""
    if not 0 < len(data) <= MAX_FEW_BYTES or MAX_GROWTH * len(data) + FIELD_NAMES_BYTES > max_message_bytes:
        return None
    rows, malformed_ids = Rows(), 0
    try:
        for begin, end in _resource_spans(data, 0, len(data)):
            resource, scopes = _owner_and_members(data, begin, end)
            of_resource = _cached_resource(resource) if len(resource) < MAX_CACHED_BYTES else _resource(resource)
            for scope_begin, scope_end in scopes:
                scope, records = _owner_and_members(data, scope_begin, scope_end)
                if len(rows) + len(records) > MAX_FEW_RECORDS:
                    return None
                shared = (_cached_scope(scope) if len(scope) < MAX_CACHED_BYTES else _scope(scope)) + of_resource
                for record in records:
                    malformed_ids += _add_record(data, *record, shared, rows)
    except (_Unusual, Malformed, IndexError, UnicodeDecodeError):
        return None
    return Logs(rows, {}, malformed_ids) if rows else None


def _fields(data: bytes, position: int, end: int) -> list[_Field]:
    """Return tag, begin and end of each field of a message; instead of the begin of a varint, its value."""
    fields: list[_Field] = []
    while position < end:
        tag, begin = data[position], position + 1
        kind = tag & 7
        if kind == BYTES:
            size, begin = data[begin], begin + 1
            if size >= 0x80:
                size, begin = _varint(data, begin - 1)
            position = begin + size
        elif kind == FIXED64:
            position = begin + 8
        elif kind == VARINT:
            begin, position = _varint(data, begin)
        elif kind == FIXED32:
            position = begin + 4
        else:
            raise _Unusual
        fields.append((tag, begin, position))
    if position != end:
        raise _Unusual
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while (octet := data[position]) >= 0x80:
        number |= (octet & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if shift > 63:
            raise _Unusual
    number |= octet << shift
    if number >= 2 * _SIGN:
        raise _Unusual
    return number, position + 1


def _resource_spans(data: bytes, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of a message whose fields all have the first tag."""
    fields = _fields(data, begin, end)
    if any(tag != _FIRST for tag, _, _ in fields):
        raise _Unusual
    return [(begin, end) for _, begin, end in fields]


def _owner_and_members(data: bytes, begin: int, end: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the bytes of a resource or scope, and the spans of its scopes or records."""
    owner, members = None, []
    for tag, member_begin, member_end in _fields(data, begin, end):
        if tag == _SECOND:
            members.append((member_begin, member_end))
        elif tag == _FIRST and owner is None:
            owner = data[member_begin:member_end]
        elif tag != _SCHEMA_URL:
            raise _Unusual
    return owner or b"", members


def _resource(data: bytes) -> _Pairs:
    return tuple(resource_pairs(data))


def _scope(data: bytes) -> _Pairs:
    return tuple(scope_pairs(data))


_cached_resource, _cached_scope = lru_cache(MAX_CACHED)(_resource), lru_cache(MAX_CACHED)(_scope)


def _add_record(data: bytes, begin: int, end: int, shared: _Pairs, rows: Rows) -> int:
    """Add the message of a record to ``rows``; return the number of its malformed ids."""
    payload, malformed_ids = b"", 0
    texts: dict[int, str] = {}
    attributes: list[tuple[str, str]] = []
    has_body = False
    for tag, field_begin, field_end in _fields(data, begin, end):
        if tag == _ATTRIBUTE:
            attributes.append(_attribute(data, field_begin, field_end))
        elif tag == _BODY:
            if has_body:
                raise _Unusual
            payload, has_body = _text(data, field_begin, field_end).encode(), True
        elif tag not in _FIELD_NAMES or tag in texts:
            raise _Unusual
        elif tag in _ID_SIZE:
            raw = data[field_begin:field_end]
            is_malformed = len(raw) != _ID_SIZE[tag]
            malformed_ids += is_malformed and bool(raw)
            texts[tag] = raw.hex() if not is_malformed and any(raw) else ""
        elif tag & 7 == BYTES:
            texts[tag] = data[field_begin:field_end].decode()
        else:
            number = _number(data, tag, field_begin, field_end)
            texts[tag] = str(number) if number else ""
    # Invariant: the order of annotations is that of ``read_logs``: fields, attributes, scope, resource.
    pairs = [(name, text) for tag, name in _FIELD_NAMES.items() if (text := texts.get(tag))]
    rows.append((None, payload, None, [*pairs, *attributes, *shared] or None))
    return malformed_ids


def _number(data: bytes, tag: int, begin: int, end: int) -> int:
    if tag & 7 != VARINT:
        return int.from_bytes(data[begin:end], "little")
    return _signed(begin) if tag == _SEVERITY else begin


def _signed(number: int) -> int:
    return number - 2 * _SIGN if number & _SIGN else number


def _attribute(data: bytes, begin: int, end: int) -> tuple[str, str]:
    name = text = None
    for tag, field_begin, field_end in _fields(data, begin, end):
        if tag == _KEY and name is None:
            name = "attributes." + data[field_begin:field_end].decode()
        elif tag == _VALUE and text is None:
            text = _text(data, field_begin, field_end)
        else:
            raise _Unusual
    return name or "attributes.", text or ""


def _text(data: bytes, begin: int, end: int) -> str:
    """Return an AnyValue as text."""
    if begin == end:
        return ""
    fields = _fields(data, begin, end)
    if len(fields) > 1:
        raise _Unusual
    ((tag, value_begin, value_end),) = fields
    if tag == _STRING:
        return data[value_begin:value_end].decode()
    if tag == _INT:
        return str(_signed(value_begin))
    if tag == _BOOL:
        return "true" if value_begin else "false"
    if tag == _DOUBLE:
        number: pa.Array[pa.DoubleScalar] = pa.array(unpack_from("<d", data, value_begin), pa.float64())
        return str(number.cast(pa.string())[0].as_py())
    if tag in _NESTED:
        return text_of_value(parsed_as(AnyValue, data[begin:end]))
    raise _Unusual
