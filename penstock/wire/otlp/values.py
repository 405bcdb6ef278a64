"""OTLP's AnyValue and KeyValue as texts, for whole columns: texts as they are, others as JSON has them.

Lists, maps and bytes (as base64) are read one by one: few attributes are such.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from penstock.records import from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.protobuf import BYTES, FIXED64, VARINT, Malformed, Message, Values, chosen
from penstock.wire.sender_text import strings

_TEXT, _BOOL, _INT, _DOUBLE, _ARRAY, _MAP, _BYTES = range(1, 8)
_KEY, _VALUE = 1, 2
_Message = TypeVar("_Message", bound=ProtobufMessage)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Names and values of the attributes of several messages; ``owner`` is the number of the message of each."""

    owner: Ints
    names: pa.Array[Any]
    texts: pa.Array[Any]

    def __len__(self) -> int:
        return len(self.owner)


def attributes(message: Message, pairs: Values) -> Attributes:
    """The KeyValues that ``pairs`` are. Raises Malformed."""
    pairs, count = pairs.in_order(), len(pairs.owner)
    fields = message.fields(pairs.begin, pairs.end)
    keys, values = fields.of(_KEY, BYTES), fields.of(_VALUE, BYTES)
    key, value = keys.last(count), values.last(count)
    names = chosen(strings(message.texts(keys.begin, keys.end)), key).fill_null("")
    texts = chosen(value_texts(message, values.begin, values.end), value).fill_null("")
    return Attributes(pairs.owner, names, texts)


def value_texts(message: Message, begins: Ints, ends: Ints) -> pa.Array[Any]:
    """The AnyValues that lie at [begins, ends) as texts; null where there is no value. Raises Malformed."""
    fields = message.fields(begins, ends)
    where, places, parts, done = np.full(len(begins), -1, np.int64), np.full(len(begins), -1, np.int64), [], 0
    for number, (kind, read) in _FORMS.items():
        values = fields.of(number, kind)
        if len(values.owner):
            values = values.at(values.begin > places[values.owner])  # of a oneof the last one holds
            parts.append(read(message, values, begins, ends))
            where[values.owner] = done + np.arange(len(values.owner))
            places[values.owner] = values.begin
            done += len(values.owner)
    return chosen(pa.concat_arrays(parts), where) if parts else pa.nulls(len(begins), pa.string())


def _texts(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return strings(message.texts(values.begin, values.end))


def _bools(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return pa.array(["false", "true"]).take(from_numpy((values.value != 0).astype(np.int64)))


def _ints(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return from_numpy(values.value.view(np.int64)).cast(pa.string())


def _doubles(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    return from_numpy(message.numbers(values.begin, "<f8")).cast(pa.string())


def _others(message: Message, values: Values, begins: Ints, ends: Ints) -> pa.Array[Any]:
    """One by one."""
    places = zip(begins[values.owner].tolist(), ends[values.owner].tolist(), strict=True)
    return pa.array([_other(message.data[begin:end]) for begin, end in places], pa.string())


def _other(data: bytes) -> str:
    return text_of_value(parsed_as(AnyValue, data))


def parsed_as(kind: type[_Message], data: bytes) -> _Message:
    """``data`` as a message. Raises Malformed."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Malformed(str(error)) from None


def text_of_value(value: AnyValue) -> str:
    """A value as a text, "" where there is none. Raises Malformed."""
    try:
        found = _plain(value)
        return found if isinstance(found, str) else "" if found is None else orjson.dumps(found).decode()
    except (RecursionError, ValueError, TypeError) as error:
        raise Malformed(f"a value cannot be read: {error}") from None


_FORMS = {
    _TEXT: (BYTES, _texts),
    _BOOL: (VARINT, _bools),
    _INT: (VARINT, _ints),
    _DOUBLE: (FIXED64, _doubles),
    _ARRAY: (BYTES, _others),
    _MAP: (BYTES, _others),
    _BYTES: (BYTES, _others),
}


def _plain(value: AnyValue) -> Any:
    """As JSON has it; what JSON has no number for is a text."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return {each.key: _plain(each.value) for each in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    found = getattr(value, kind) if kind else None
    return str(found) if isinstance(found, float) and not math.isfinite(found) else found


def texts_of_numbers(values: np.ndarray) -> pa.Array[Any]:
    """Numbers in decimal."""
    return pc.cast(from_numpy(values), pa.string())
