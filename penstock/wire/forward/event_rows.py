"""Events of the forward protocol as rows of bytes.

A row has tag, time in nanoseconds, the record as JSON, and the event's metadata as JSON if it has some, separated by
NUL. Limit: the containers of an event, and its values that are converted one by one,
because the senders of other connections wait while it is decoded.
"""

from __future__ import annotations

import base64
import gc
import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack
import numpy as np
import orjson

from penstock.errors import PenstockError
from penstock.wire.json_text import count_values
from penstock.wire.sender_text import LATIN_1

NUL = b"\0"
OVERSIZE, DAMAGED = "oversize", "damaged"
LARGE_EVENT_BYTES = 64 << 10
"""Size of events that are decoded without Python's garbage collector."""
_EVENT_TIME = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GROUP_MARKERS = 0xFFFFFFFE
"""Fluent Bit marks the begin and the end of a group of OTLP records by the times -1 and -2 in 32 bits."""
_MAX_TIME_NS = 2**63 - 1
_UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3))
"""Bounds of times in seconds, milliseconds and microseconds, with their factor; larger times are nanoseconds."""
_TIME_BYTES = {
    0xD6: 6,
    0xD7: 10,
    0xCE: 5,
    0xCF: 9,
    0xD2: 5,
    0xD3: 9,
    0xCB: 9,
    0xCA: 5,
    **dict.fromkeys(range(0x80), 1),
}
"""Size of a usual encoding of a time by its first byte."""
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")
"""Bytes that each number which is not finite has; few others have them."""
MAX_SLOW_VALUES = 16_384
"""Limit: values of an event that are converted one by one, up to 1 us each, during which others wait."""
MAX_CONTAINERS = 131_072
"""Limit: maps and lists of an event: 20 ms, during which others wait. An empty one is one byte."""
DECODING_ERRORS = (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException, struct.error)
"""Errors of msgpack and orjson for invalid input."""
UNPACK_OPTIONS: dict[str, Any] = {"raw": False, "unicode_errors": LATIN_1, "strict_map_key": False}


class NotForward(PenstockError, ValueError):
    """Bytes that are not a request of the protocol; ``reason`` is the name of their count."""

    def __init__(self, text: str, reason: str = DAMAGED) -> None:
        super().__init__(text)
        self.reason = reason


def build_row(tag: bytes, event: bytes) -> bytes | str:
    """Return the row of an event, or the reason of its refusal."""
    # The collector would traverse a million empty lists several times: 330 ms for an event of 1 MiB, else 100 ms.
    if len(event) < LARGE_EVENT_BYTES or not gc.isenabled():
        return _row(tag, event)
    gc.disable()
    try:
        return _row(tag, event)
    finally:
        gc.enable()


def _row(tag: bytes, event: bytes) -> bytes | str:
    if event[0] != 0x92:
        return DAMAGED
    try:
        containers = _Budget(MAX_CONTAINERS, "maps and lists")
        hooks = dict.fromkeys(("object_hook", "list_hook"), containers.spend) if _may_be_containers(event) else {}
        time, record = msgpack.unpackb(event, ext_hook=_slow_values().extension, **hooks, **UNPACK_OPTIONS)
        if not isinstance(record, dict):
            return DAMAGED
        return NUL.join((tag, _nanoseconds(time), _json_of_record(record, event), *_metadata(time, event)))
    except NotForward as error:
        return error.reason
    except DECODING_ERRORS:
        return DAMAGED


def _metadata(time: Any, event: bytes) -> list[bytes]:
    """Return what Fluent Bit 2.1 and later adds to the time of an event, as JSON; none if it is empty."""
    if not isinstance(time, list) or len(time) < 2 or time[1:] == [{}]:
        return []
    if len(time) > 2 or not isinstance(time[1], dict):
        return [_json(time[1:])]
    _, metadata = elements(next(elements(event, 2)), 2)
    return [_json_of_record(time[1], b"\x92\0" + metadata)]


def _pair_count(event: bytes) -> int:
    """Return the number of pairs that the record of an event, which is a map, states."""
    begin = 1 + _TIME_BYTES.get(event[1], 0)
    if begin == 1:
        # [time, {}] of Fluent Bit 2.1 and later: a list of an EventTime and an empty map
        begin = 13 if event[1:3] == b"\x92\xd7" and event[12:13] == b"\x80" else time_end(event)
    header = event[begin]
    if header < 0x90:
        return header & 15
    return int.from_bytes(event[begin + 1 : begin + (3 if header == 0xDE else 5)], "big")


def time_end(event: bytes) -> int:
    """Return the position after the time of an event, in any encoding."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(event))
    unpacker.feed(event)
    unpacker.read_array_header()
    unpacker.skip()
    end: int = unpacker.tell()
    return end


def _json_of_record(record: dict[Any, Any], event: bytes) -> bytes:
    """Return the record of an event as JSON, with each repeated key, and keys of type bin as text. Raises NotForward if
    it has too many values for this.
    """
    # Fast path: comparing the number of keys costs little; only records with such keys are decoded again.
    count = _pair_count(event)
    if count == len(record):
        try:
            return _json(record, event)
        except orjson.JSONEncodeError:  # a key of type bin, or too many extensions
            pass
    budget = _slow_values()
    budget.require(count)
    hooks = {"object_pairs_hook": lambda pairs: _distinct(budget.spend_all(pairs)), "list_hook": budget.spend_all}
    return _json(msgpack.unpackb(event, **hooks, **UNPACK_OPTIONS)[1], event)


def _may_be_containers(event: bytes) -> bool:
    """Report whether more than MAX_CONTAINERS bytes could begin a map or list; they may also be text."""
    if len(event) <= MAX_CONTAINERS:
        return False
    return int(np.count_nonzero((np.frombuffer(event, np.uint8) & 0xE0) == 0x80)) > MAX_CONTAINERS


class _Budget:
    """Parts of one event that may still be read, such as maps. ``parts``: their name for the error."""

    def __init__(self, limit: int, parts: str) -> None:
        self._limit = self._remaining = limit
        self._parts = parts

    def require(self, count: int) -> None:
        """Raise NotForward if ``count`` further parts would be too many."""
        if self._remaining < count:
            raise NotForward(f"has more than {self._limit} {self._parts}", OVERSIZE)

    def spend(self, part: Any) -> Any:
        """Return the part. Raises NotForward if it is one too many."""
        self.require(1)
        self._remaining -= 1
        return part

    def spend_all(self, values: list[Any]) -> list[Any]:
        """Return the values of a list or a map. Raises NotForward if they are too many."""
        # Limit: an empty list or map costs as much as a value.
        cost = len(values) or 1
        self.require(cost)
        self._remaining -= cost
        return values

    def extension(self, code: int, octets: bytes) -> msgpack.ExtType:
        """Return an extension. Raises NotForward if it is one too many."""
        extension: msgpack.ExtType = self.spend(msgpack.ExtType(code, octets))
        return extension

    def text(self, content: object) -> str:
        """Convert a value that JSON lacks to text. Raises NotForward if it is one too many."""
        return _text(content if isinstance(content, bytes) else self.spend(content))


def _slow_values() -> _Budget:
    """Return the budget of an event's values that become text one by one."""
    return _Budget(MAX_SLOW_VALUES, "values that JSON lacks, or next to a repeated key")


class _Key(str):
    """A key that differs from every other one, also from one with the same text: a dict keeps repeated ones."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Return the members of a map, with each repeated key, and with all keys as texts."""
    return {_Key(key if isinstance(key, str) else _key_text(key)): member for key, member in pairs}


def _key_text(key: Any) -> str:
    if isinstance(key, bytes | msgpack.ExtType | msgpack.Timestamp):
        return _text(key)
    # orjson writes the key, with 0 for its value: ``{"7":0}``.
    return orjson.dumps({key: 0}, option=orjson.OPT_NON_STR_KEYS)[2:-4].decode()


def _json(record: Any, event: bytes = b"") -> bytes:
    """Encode a value as JSON; ``event``: its encoding, if it is known."""
    encoded = orjson.dumps(record, default=_slow_values().text, option=orjson.OPT_NON_STR_KEYS)
    # Fast path: orjson writes null for NaN and infinity, so only a record with a null is searched for them.
    if b"null" not in encoded or (event and not _NOT_FINITE.search(event)):
        return encoded
    # Limit: these values are only looked at, which takes an eighth of the time.
    if count_values(encoded) > 8 * MAX_SLOW_VALUES:
        raise NotForward(f"has more than {8 * MAX_SLOW_VALUES} values next to one that is not finite", OVERSIZE)
    return orjson.dumps(_finite(record), default=_text, option=orjson.OPT_NON_STR_KEYS)


def _finite(content: Any) -> Any:
    """Replace numbers that JSON lacks by the texts ``nan`` and ``inf``."""
    if isinstance(content, dict):
        return {key: _finite(each) for key, each in content.items()}
    if isinstance(content, list):
        return [_finite(each) for each in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


def _text(content: object) -> str:
    """Convert a value that JSON lacks to text: times to RFC 3339, other extensions to base64 of their bytes."""
    if isinstance(content, bytes):  # some senders encode text as bytes
        return content.decode("utf-8", LATIN_1)
    if isinstance(content, msgpack.Timestamp):
        return _time_text(content.seconds, content.nanoseconds)
    if isinstance(content, msgpack.ExtType):
        is_time = content.code == _EVENT_TIME and len(content.data) == 8
        return _time_text(*struct.unpack(">II", content.data)) if is_time else base64.b64encode(content.data).decode()
    return str(content)


def _time_text(seconds: int, nanoseconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:  # msgpack's seconds have 64 bits, those of RFC 3339 end with the year 9999
        return f"{seconds}.{nanoseconds:09}"
    return f"{moment.isoformat()[:19]}.{nanoseconds:09}Z"


def _nanoseconds(time: Any) -> bytes:
    """Return a time as digits of nanoseconds since the epoch, empty if it is invalid. Newer Fluent Bit adds
    metadata.
    """
    if isinstance(time, list) and time:
        time = time[0]
    if isinstance(time, msgpack.ExtType) and time.code == _EVENT_TIME and len(time.data) == 8:
        seconds, rest = struct.unpack(">II", time.data)
        nanoseconds = seconds * 1_000_000_000 + rest if seconds < _GROUP_MARKERS else -1
    elif isinstance(time, msgpack.Timestamp):
        nanoseconds = time.to_unix_nano()
    elif isinstance(time, int | float) and not isinstance(time, bool) and 0 <= time <= _MAX_TIME_NS:
        # Fluentd's integers are seconds; other senders give finer units, which the magnitude tells apart.
        # In decimal, by the digits that the sender wrote: multiplied as a double, 1764360000.123 s would become 200 ns
        # less, and an earlier microsecond.
        nanoseconds = int(Decimal(repr(time)) * next((factor for limit, factor in _UNITS if time < limit), 1))
    else:
        return b""
    return b"%d" % nanoseconds if 0 <= nanoseconds <= _MAX_TIME_NS else b""


def elements(data: bytes, max_count: int) -> Iterator[bytes]:
    """Yield the elements of a list, cut out one by one. Raises NotForward above ``max_count``."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    count = unpacker.read_array_header()
    # Limit: the count is announced by the sender, and checked before any element is read.
    if count > max_count:
        raise NotForward(f"holds more than {max_count} elements in a list", OVERSIZE)
    for _ in range(count):
        begin = unpacker.tell()
        unpacker.skip()
        yield data[begin : unpacker.tell()]
