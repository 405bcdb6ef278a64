"""Bytes of a request as the classes of kio. No length that is told takes memory: what is not there is not read.

kio's own reader makes room for as many elements as an array says it has, whatever is behind it.
"""

from __future__ import annotations

import datetime
import struct
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from penstock.server.kafka.errors import BadFrame

MAX_ELEMENTS = 20_000
"""Limit: elements of all arrays of a request, and tagged fields: each takes 20 us to read and 40 us to answer."""
Read = Callable[["Octets"], Any]
_NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "bool": ">?", "float64": ">d"}


class Octets:
    """A frame that is read from its beginning on. What runs past its end raises BadFrame."""

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self._data, self.at = memoryview(data), at
        self._elements = 0
        self.stays: list[int] = []
        """Where each part begins that is left where it is."""

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise BadFrame("a request is shorter than it says")
        found, self.at = self._data[self.at : end], end
        return found

    def number(self, form: str) -> Any:
        """A number of a fixed size."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self) -> int:
        """An unsigned number of up to five bytes."""
        found = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        raise BadFrame("a number is too long")

    def count_elements(self, count: int) -> None:
        """Count ``count`` elements that are about to be read. Raises BadFrame where they are too many."""
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise BadFrame(f"a request has more than {MAX_ELEMENTS} elements")

    def length(self, *, compact: bool, form: str) -> int:
        """A length; -1 for none. It is never more than the bytes that are left."""
        size = self.varint() - 1 if compact else self.number(form)
        if not -1 <= size <= len(self._data) - self.at:
            raise BadFrame("a request is shorter than it says")
        return int(size)


def reader(schema: Any) -> Read:
    """What reads the entities of a class."""
    return _reader(schema)


@cache
def _reader(schema: Any) -> Read:
    hints, flexible = typing.get_type_hints(schema), bool(schema.__flexible__)
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    for one in fields(schema):
        compact = flexible and not (schema.__name__ == "RequestHeader" and one.name == "client_id")
        read = _of_hint(hints[one.name], one.metadata.get("kafka_type", ""), compact)
        if (tag := one.metadata.get("tag")) is not None:
            tagged[tag] = one.name, read
        else:
            plain.append((one.name, read))

    def read_entity(octets: Octets) -> Any:
        values = {name: read(octets) for name, read in plain}
        tags = octets.length(compact=True, form="") + 1 if flexible else 0
        octets.count_elements(tags)
        for _ in range(tags):
            tag, size = octets.varint(), octets.varint()
            inner = Octets(octets.take(size))
            if tag in tagged:
                name, read = tagged[tag]
                values[name] = read(inner)
        return schema(**values)

    return read_entity


def _of_hint(hint: Any, kind: str, compact: bool) -> Read:
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) is tuple:
        return _array(_of_hint(typing.get_args(hint)[0], kind, compact), compact, optional)
    if is_dataclass(hint):
        return _nullable(reader(hint)) if optional else reader(hint)
    if kind in ("string", "bytes", "records"):
        return _text(compact, optional) if kind == "string" else _bytes(compact, optional, kind == "records")
    return _PRIMITIVES[kind]


def _array(read: Read, compact: bool, optional: bool) -> Read:
    def read_array(octets: Octets) -> Any:
        count = octets.length(compact=compact, form=">i")
        octets.count_elements(max(count, 0))
        return _none(optional) if count < 0 else tuple(read(octets) for _ in range(count))

    return read_array


def _nullable(read: Read) -> Read:
    return lambda octets: None if octets.number(">b") < 0 else read(octets)


def _text(compact: bool, optional: bool) -> Read:
    def read_text(octets: Octets) -> Any:
        size = octets.length(compact=compact, form=">h")
        try:
            return _none(optional) if size < 0 else str(octets.take(size), "utf-8")
        except UnicodeDecodeError:
            raise BadFrame("a text is no UTF-8") from None

    return read_text


def _bytes(compact: bool, optional: bool, stay: bool) -> Read:
    """``stay``: a view into the frame, as records are large and copied once more soon."""

    def read_bytes(octets: Octets) -> Any:
        size = octets.length(compact=compact, form=">i")
        if size < 0:
            return _none(optional)
        if stay:
            octets.stays.append(octets.at)
        return octets.take(size) if stay else bytes(octets.take(size))

    return read_bytes


def _none(optional: bool) -> None:
    if not optional:
        raise BadFrame("something is missing in a request")


def _uuid(octets: Octets) -> uuid.UUID | None:
    found = uuid.UUID(bytes=bytes(octets.take(16)))
    return found if found.int else None


def _span(form: str) -> Read:
    return lambda octets: datetime.timedelta(milliseconds=octets.number(form))


def _fixed(form: str) -> Read:
    return lambda octets: octets.number(form)


_PRIMITIVES: dict[str, Read] = {
    **{kind: _fixed(form) for kind, form in _NUMBERS.items()},
    "uuid": _uuid,
    "timedelta_i32": _span(">i"),
    "timedelta_i64": _span(">q"),
}
