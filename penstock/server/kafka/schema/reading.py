"""Reads bytes of a request as classes of kio.

Invariant: no announced length or count takes memory before its bytes are there. kio's own reader allocates as many
elements as an array announces.
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
Read = Callable[["FrameReader"], Any]
_NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "bool": ">?", "float64": ">d"}


class FrameReader:
    """A frame that is read from start to end. Reading past its end raises BadFrame."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self._data, self.position = memoryview(data), position
        self._elements = 0
        self.record_positions: list[int] = []
        """Positions of record batches, which stay in the frame as views."""

    def read_bytes(self, size: int) -> memoryview:
        """Return the next ``size`` bytes."""
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise BadFrame("a request is shorter than its lengths say")
        part, self.position = self._data[self.position : end], end
        return part

    def number(self, form: str) -> Any:
        """Read a number of fixed size."""
        return struct.unpack(form, self.read_bytes(struct.calcsize(form)))[0]

    def varint(self) -> int:
        """Read an unsigned number of up to five bytes."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.read_bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise BadFrame("a varint of a request has more than 5 bytes")

    def count_elements(self, count: int) -> None:
        """Count elements that are about to be read. Raises BadFrame over the limit."""
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise BadFrame(f"a request has more than {MAX_ELEMENTS} elements")

    def length(self, *, compact: bool, form: str) -> int:
        """Read a length; -1 for null. Never larger than the remaining bytes."""
        size = self.varint() - 1 if compact else self.number(form)
        if not -1 <= size <= len(self._data) - self.position:
            raise BadFrame("a request is shorter than its lengths say")
        return int(size)


def entity_reader(schema: Any) -> Read:
    """Return the function that reads entities of a class."""
    return _build_reader(schema)


@cache
def _build_reader(schema: Any) -> Read:
    # Fast path: type hints are resolved once per class, not per request.
    hints, flexible = typing.get_type_hints(schema), bool(schema.__flexible__)
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    for field in fields(schema):
        # KIP-482: client_id has no compact form, so that brokers can read headers of versions that they do not
        # support.
        compact = flexible and not (schema.__name__ == "RequestHeader" and field.name == "client_id")
        read = _field_reader(hints[field.name], field.metadata.get("kafka_type", ""), compact)
        if (tag := field.metadata.get("tag")) is not None:
            tagged[tag] = field.name, read
        else:
            plain.append((field.name, read))

    def read_entity(frame: FrameReader) -> Any:
        values = {name: read(frame) for name, read in plain}
        tags = frame.length(compact=True, form="") + 1 if flexible else 0
        frame.count_elements(tags)
        for _ in range(tags):
            tag, size = frame.varint(), frame.varint()
            # Unknown tags are skipped by their size: clients may send fields of later versions.
            inner = FrameReader(frame.read_bytes(size))
            if tag in tagged:
                name, read = tagged[tag]
                values[name] = read(inner)
        return schema(**values)

    return read_entity


def _field_reader(hint: Any, kind: str, compact: bool) -> Read:
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        hint = next(argument for argument in typing.get_args(hint) if argument is not type(None))
    if typing.get_origin(hint) is tuple:
        return _array_reader(_field_reader(typing.get_args(hint)[0], kind, compact), compact, optional)
    if is_dataclass(hint):
        return _nullable_reader(entity_reader(hint)) if optional else entity_reader(hint)
    if kind in ("string", "bytes", "records"):
        return (
            _text_reader(compact, optional) if kind == "string" else _bytes_reader(compact, optional, kind == "records")
        )
    return _PRIMITIVES[kind]


def _array_reader(read: Read, compact: bool, optional: bool) -> Read:
    def read_array(frame: FrameReader) -> Any:
        count = frame.length(compact=compact, form=">i")
        frame.count_elements(max(count, 0))
        return _null(optional) if count < 0 else tuple(read(frame) for _ in range(count))

    return read_array


def _nullable_reader(read: Read) -> Read:
    return lambda frame: None if frame.number(">b") < 0 else read(frame)


def _text_reader(compact: bool, optional: bool) -> Read:
    def read_text(frame: FrameReader) -> Any:
        size = frame.length(compact=compact, form=">h")
        try:
            return _null(optional) if size < 0 else str(frame.read_bytes(size), "utf-8")
        except UnicodeDecodeError:
            raise BadFrame("a string of a request is not UTF-8") from None

    return read_text


def _bytes_reader(compact: bool, optional: bool, as_view: bool) -> Read:
    """Return a reader of bytes. ``as_view`` leaves them in the frame: records are large and copied again when
    decoded.
    """

    def read_bytes(frame: FrameReader) -> Any:
        size = frame.length(compact=compact, form=">i")
        if size < 0:
            return _null(optional)
        if as_view:
            frame.record_positions.append(frame.position)
        return frame.read_bytes(size) if as_view else bytes(frame.read_bytes(size))

    return read_bytes


def _null(optional: bool) -> None:
    if not optional:
        raise BadFrame("a required field of a request is null")


def _read_uuid(frame: FrameReader) -> uuid.UUID | None:
    identifier = uuid.UUID(bytes=bytes(frame.read_bytes(16)))
    return identifier if identifier.int else None


def _duration_reader(form: str) -> Read:
    return lambda frame: datetime.timedelta(milliseconds=frame.number(form))


def _number_reader(form: str) -> Read:
    return lambda frame: frame.number(form)


_PRIMITIVES: dict[str, Read] = {
    **{kind: _number_reader(form) for kind, form in _NUMBERS.items()},
    "uuid": _read_uuid,
    "timedelta_i32": _duration_reader(">i"),
    "timedelta_i64": _duration_reader(">q"),
}
