"""Lists and maps of OTAP, which are encoded in CBOR (RFC 8949), as what JSON can hold.

Senders write text, integers, doubles, booleans, null, bytes, lists and maps, of stated or unstated length. Tags, and
keys that are not text, are refused.
"""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

from penstock.wire.otlp.values import json_of_members
from penstock.wire.protobuf import Malformed

MAX_DEPTH = 64
"""Limit: lists and maps inside of each other, as deep as JSON in requests may be."""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(8)
_UNSTATED = 31
"""Additional information of a list, map or text whose end is marked."""
_BREAK = 0xFF
_MAX_INTEGER = (1 << 63) - 1
_SIMPLE_VALUES = {20: False, 21: True, 22: None, 23: None}
_FLOATS = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}


def document_of(data: bytes, max_items: int) -> tuple[Any, int]:
    """Return a value as what JSON can hold, and the number of its items.

    Bytes become base64, and doubles that are not finite text. Raises Malformed, also for bytes after the value, and for
    more than ``max_items`` values in each other: an empty list takes one byte here and 60 as an object.
    """
    reader = _Reader(data, max_items)
    try:
        document = reader.read(0)
    except (IndexError, struct.error):
        raise Malformed("a value in CBOR is cut short") from None
    except UnicodeDecodeError:
        raise Malformed("a text in CBOR is not UTF-8") from None
    if reader.position != len(data):
        raise Malformed("bytes follow a value in CBOR")
    return document, reader.items


class _Reader:
    def __init__(self, data: bytes, max_items: int) -> None:
        self._data, self._max_items = data, max_items
        self.position = self.items = 0

    def read(self, depth: int) -> Any:
        self.items += 1
        if self.items > self._max_items:
            raise Malformed("the lists and maps of a batch have too many items")
        kind, info = self._initial()
        if kind in (_LIST, _MAP):
            if depth == MAX_DEPTH:
                raise Malformed(f"a value in CBOR has more than {MAX_DEPTH} levels")
            return self._list(info, depth + 1) if kind == _LIST else self._map(info, depth + 1)
        if kind == _TEXT:
            return self._string(info, kind).decode()
        if kind == _BYTES:
            return base64.b64encode(self._string(info, kind)).decode()
        if kind == _SIMPLE:
            return self._simple(info)
        if kind == _TAG:
            raise Malformed("a tag in CBOR is not supported")
        number = self._argument(info)
        if number > _MAX_INTEGER:
            raise Malformed("an integer in CBOR has more than 64 bits")
        return number if kind == _UNSIGNED else -1 - number

    def _initial(self) -> tuple[int, int]:
        octet = self._data[self.position]
        self.position += 1
        return octet >> 5, octet & 31

    def _argument(self, info: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise Malformed("a length in CBOR has no known form")
        size = 1 << (info - 24)
        return int.from_bytes(self._take_bytes(size), "big")

    def _take_bytes(self, size: int) -> bytes:
        begin, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise IndexError
        return self._data[begin : self.position]

    def _string(self, info: int, kind: int) -> bytes:
        if info != _UNSTATED:
            return self._take_bytes(self._argument(info))
        parts = []
        while not self._takes_break():
            part_kind, part_info = self._initial()
            if part_kind != kind or part_info == _UNSTATED:
                raise Malformed("a part of a text in CBOR has another type")
            parts.append(self._take_bytes(self._argument(part_info)))
        return b"".join(parts)

    def _takes_break(self) -> bool:
        if self._data[self.position] != _BREAK:
            return False
        self.position += 1
        return True

    def _is_over(self, count: int, limit: int | None) -> bool:
        return self._takes_break() if limit is None else count >= limit

    def _list(self, info: int, depth: int) -> list[Any]:
        limit = None if info == _UNSTATED else self._argument(info)
        # Limit: the stated length allocates nothing; the list grows with the bytes that are there.
        items: list[Any] = []
        while not self._is_over(len(items), limit):
            items.append(self.read(depth))
        return items

    def _map(self, info: int, depth: int) -> Any:
        limit = None if info == _UNSTATED else self._argument(info)
        members: list[tuple[str, Any]] = []
        while not self._is_over(len(members), limit):
            key_kind, key_info = self._initial()
            if key_kind != _TEXT:
                raise Malformed("a key in CBOR is not a text")
            key = self._string(key_info, key_kind).decode()
            members.append((key, self.read(depth)))
        return json_of_members(members)

    def _simple(self, info: int) -> Any:
        if info in _FLOATS:
            code, size = _FLOATS[info]
            (number,) = struct.unpack(code, self._take_bytes(size))
            return number if math.isfinite(number) else str(number)
        if info not in _SIMPLE_VALUES:
            raise Malformed("a simple value in CBOR is not known")
        return _SIMPLE_VALUES[info]
