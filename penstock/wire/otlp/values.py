"""Conversion of OTLP's AnyValue and KeyValue to texts, for whole columns: strings unchanged, other values as JSON.

Lists, maps and bytes (as base64) are decoded one by one, because few attributes have these types.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from penstock.records import from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.protobuf import BYTES, FIXED64, VARINT, Malformed, Message, Values, take_or_null
from penstock.wire.sender_text import strings

_TEXT, _BOOL, _INT, _DOUBLE, _ARRAY, _MAP, _BYTES = range(1, 8)
_KEY, _VALUE = 1, 2
_Message = TypeVar("_Message", bound=ProtobufMessage)
_STRING = pa.string()


@dataclass(frozen=True, slots=True)
class Attributes:
    """Names and texts of the attributes of several messages; ``owner`` is the index of each attribute's message."""

    owner: Ints
    names: pa.Array[Any]
    texts: pa.Array[Any]

    def __len__(self) -> int:
        return len(self.owner)


def decode_attributes(message: Message, pairs: Values) -> Attributes:
    """Decode the KeyValues at ``pairs``. Raises Malformed."""
    pairs, count = pairs.in_order(), len(pairs.owner)
    fields = message.fields(pairs.begin, pairs.end)
    keys, values = fields.with_tag(_KEY, BYTES), fields.with_tag(_VALUE, BYTES)
    names = take_or_null(strings(message.texts(keys.begin, keys.end)), keys.last(count)).fill_null("")
    texts = merged_texts(message, values, count).fill_null("")
    return Attributes(pairs.owner, names, texts)


def merged_texts(message: Message, values: Values, count: int, as_type: pa.DataType = _STRING) -> pa.Array[Any]:
    """Return the AnyValue of each of ``count`` messages as text; null without a value. Raises Malformed.

    Bytes that are not UTF-8 do not change in binary, and become U+FFFD in strings. A value that occurs more than
    once is merged, as protobuf demands. Concatenated bytes are a merged message.
    """
    last = values.last(count)
    if len(values.owner) == np.count_nonzero(last >= 0):  # fast path: serializers repeat none
        return take_or_null(value_texts(message, values.begin, values.end, as_type), last)
    values = values.in_order()
    values = values.select(np.argsort(values.owner, kind="stable"))
    spans = zip(values.begin.tolist(), values.end.tolist(), strict=True)
    merged = Message(b"".join(message.data[begin:end] for begin, end in spans))
    last, offsets = values.last(count), np.concatenate([[0], np.cumsum(values.end - values.begin)])
    ends = offsets[last[last >= 0] + 1]
    rows = np.where(last >= 0, np.cumsum(last >= 0) - 1, -1)
    return take_or_null(value_texts(merged, np.concatenate([[0], ends[:-1]]), ends, as_type), rows)


def value_texts(message: Message, begins: Ints, ends: Ints, as_type: pa.DataType = _STRING) -> pa.Array[Any]:
    """Return the AnyValues at [begins, ends) as texts; null without a value. Raises Malformed."""
    fields = message.fields(begins, ends)
    # Row of each value in the concatenated parts, and the position of the field that it was read from.
    rows, positions = np.full(len(begins), -1, np.int64), np.full(len(begins), -1, np.int64)
    parts, row_count = [], 0
    for number, (kind, read) in _FORMS.items():
        values = fields.with_tag(number, kind)
        if len(values.owner):
            # Of a repeated oneof the last field counts; fields are read by type, so their positions decide.
            values = values.select(values.begin > positions[values.owner])
            texts = read(message, values, begins, ends)
            parts.append(strings(texts) if number == _TEXT and as_type == _STRING else texts.cast(as_type))
            rows[values.owner] = row_count + np.arange(len(values.owner))
            positions[values.owner] = values.begin
            row_count += len(values.owner)
    return take_or_null(pa.concat_arrays(parts), rows) if parts else pa.nulls(len(begins)).cast(as_type)


def _texts(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return message.texts(values.begin, values.end)


def _bools(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return pa.array(["false", "true"]).take(from_numpy((values.value != 0).astype(np.int64)))


def _ints(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return from_numpy(values.value.view(np.int64)).cast(pa.string())


def _doubles(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return from_numpy(message.numbers(values.begin, "<f8")).cast(pa.string())


def _nested(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    spans = zip(begins[values.owner].tolist(), ends[values.owner].tolist(), strict=True)
    texts = [text_of_value(parsed_as(AnyValue, message.data[begin:end])) for begin, end in spans]
    return pa.array(texts, pa.string())


def parsed_as(message_class: type[_Message], data: bytes) -> _Message:
    """Decode ``data`` as a protobuf message. Raises Malformed."""
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise Malformed(str(error)) from None


def text_of_value(value: AnyValue) -> str:
    """Return a value as text, "" without a value. Raises Malformed."""
    if text := value.string_value:  # fast path: most values are texts
        return text
    try:
        document = _to_json(value)
        return document if isinstance(document, str) else "" if document is None else orjson.dumps(document).decode()
    except (RecursionError, ValueError, TypeError) as error:
        raise Malformed(f"a value cannot be decoded: {error}") from None


_FORMS = {
    _TEXT: (BYTES, _texts),
    _BOOL: (VARINT, _bools),
    _INT: (VARINT, _ints),
    _DOUBLE: (FIXED64, _doubles),
    _ARRAY: (BYTES, _nested),
    _MAP: (BYTES, _nested),
    _BYTES: (BYTES, _nested),
}


def _to_json(value: AnyValue) -> Any:
    """Convert a value to what JSON can hold; numbers that JSON lacks become texts."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_to_json(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _map_to_json(value.kvlist_value.values)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    scalar = getattr(value, kind) if kind else None
    return str(scalar) if isinstance(scalar, float) and not math.isfinite(scalar) else scalar


def _map_to_json(pairs: Sequence[KeyValue]) -> Any:
    return json_of_members([(each.key, _to_json(each.value)) for each in pairs])


def json_of_members(members: Sequence[tuple[str, Any]]) -> Any:
    """Return members as a map; if a key is repeated, as a JSON text (orjson.Fragment) with each of them."""
    document = dict(members)
    if len(document) == len(members):
        return document
    texts = (f"{orjson.dumps(key).decode()}:{orjson.dumps(member).decode()}" for key, member in members)
    return orjson.Fragment("{" + ",".join(texts) + "}")


def texts_of_numbers(values: np.ndarray) -> pa.Array[Any]:
    """Return numbers in decimal."""
    return pc.cast(from_numpy(values), pa.string())
