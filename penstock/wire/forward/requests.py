"""Decoder of one request of the forward protocol: its events as rows of bytes, and the id to acknowledge.

A row has uuid, tag, time in nanoseconds, the record as JSON, and the event's metadata as JSON if it has some, separated
by NUL; ``codec`` makes columns of the rows. The events of a chunk with an id have a uuid, the same one whenever the
chunk is repeated.

Limit: an event is cut out of the request before it is decoded, so that its size bounds the memory of its objects.
"""

from __future__ import annotations

import base64
import gc
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack
import numpy as np
import orjson
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.wire.json_text import count_values
from penstock.wire.message_ids import MessageIdBuilder
from penstock.wire.sender_text import LATIN_1
from penstock.wire.unpacking import Bomb, NotPacked, arrow_parts, unpacked_parts

NUL = b"\0"
MAX_TAG_BYTES = 16 << 10
"""Limit: bytes of a tag, and of a request's options."""
ROW_OVERHEAD_BYTES = 64
"""Memory of a row besides its bytes."""
BYTES_PER_UNIT = 2048
"""Unit of work: as many bytes take as long to decompress or to read as one event."""
MAX_FIELDS = 4
"""Limit: elements of a request."""
DIGEST = re.compile(r"[0-9a-f]{32}")
"""Form of Fluent Bit's chunk ids: hashes of the content, which are equal for equal messages of different hosts."""
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
_ARRAYS = (*range(0x90, 0xA0), 0xDC, 0xDD)
_STRINGS = (*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB, 0xC4, 0xC5, 0xC6)
_MAPS = (*range(0x80, 0x90), 0xDE, 0xDF)
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")
"""Bytes that each number which is not finite has; few others have them."""
MAX_SLOW_VALUES = 16_384
"""Limit: values of an event that are converted one by one, up to 1 us each, during which others wait."""
MAX_CONTAINERS = 131_072
"""Limit: maps and lists of an event: 20 ms, during which others wait. An empty one is one byte."""
_DECODING_ERRORS = (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException, struct.error)
"""Errors of msgpack and orjson for invalid input."""


class NotForward(PenstockError, ValueError):
    """Bytes that are not a request of the protocol; ``reason`` is the name of their count."""

    def __init__(self, text: str, reason: str = DAMAGED) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of a request. ``max_event``: bytes of an event and of its row; ``max_unpacked``: bytes of all rows,
    and of a decompressed request.
    """

    max_event: int
    max_unpacked: int
    max_events: int


class RequestReader:
    """Reader of one request, a msgpack object, in parts, between which the senders of other connections are served.

    ``refused`` counts refused events by reason; ``chunk`` is the id to acknowledge, if any, in its sent type;
    ``is_read``: all events are read, and ``take_rows`` returns their rows; ``work_done``: units of work of all
    calls of ``read``. Its methods raise NotForward.
    """

    def __init__(self, data: bytes, limits: RequestLimits) -> None:
        self.size, self._limits = len(data), limits
        self.refused: Counter[str] = Counter()
        self.chunk: str | bytes | int | None = None
        self.is_read = False
        self.work_done = 0
        self._uuid: MessageIdBuilder | None = None
        self._is_list = False
        self._rows: list[bytes] = []
        self._rows_taken = 0
        self._packed: Iterator[bytes] | None = None
        self._unpacked_parts: list[bytes] = []
        self._events_read = self._row_bytes = self._unpacked_bytes = 0
        try:
            self._begin(data)
        except NotForward:
            raise
        except _DECODING_ERRORS as error:
            raise NotForward(str(error)) from None

    def _begin(self, data: bytes) -> None:
        fields = list(_elements(data, MAX_FIELDS))
        if len(fields) < 2 or len(fields[0]) > MAX_TAG_BYTES:
            raise NotForward("not a list of a tag and events")
        tag = _as_text(_unpacked(fields[0]))
        kind = fields[1][0]
        is_message = kind not in _ARRAYS + _STRINGS or _is_time(fields[1])
        if is_message and len(fields) < 3:
            raise NotForward("a message has a tag, a time and a record")
        options = fields[3 if is_message else 2 :]
        option = _unpacked(options[0]) if options and len(options[0]) <= MAX_TAG_BYTES else {}
        if not isinstance(tag, str) or not isinstance(option, dict | None):
            raise NotForward("the tag must be a string and the options a map")
        option = {_as_text(name): content for name, content in (option or {}).items()}
        if is_message:
            self._events: Iterator[bytes] = iter([b"\x92" + fields[1] + fields[2]])
        elif kind in _ARRAYS:
            self._is_list = True
            self._events = _elements(fields[1], self._limits.max_events)
        else:
            packed = msgpack.unpackb(fields[1], raw=True, max_str_len=len(data), max_bin_len=len(data))
            compression = _as_text(option.get("compressed"))
            if compression not in (None, "", "text"):
                self._packed = _decompressed_parts(packed, compression, self._limits.max_unpacked)
            self._events = iter(()) if self._packed else _stream(packed)
        chunk = option.get("chunk")
        self.chunk = chunk if isinstance(chunk, str | bytes | int) else None
        chunk_text = str(_as_text(chunk))
        if self.chunk is not None and not DIGEST.fullmatch(chunk_text):
            self._uuid = MessageIdBuilder()
            self._uuid.add(chunk_text.encode("utf-8", "replace"))
        self._tag = tag.replace("\0", " ").encode()

    @property
    def held_bytes(self) -> int:
        """Bytes of memory of the unpacked request and its rows."""
        return self._unpacked_bytes + self._row_bytes + ROW_OVERHEAD_BYTES * len(self._rows)

    def read(self, work: int) -> int:
        """Do up to ``work`` units of work (an event, or BYTES_PER_UNIT); return the work done."""
        try:
            work_done = self._read(work)
            self.work_done += work_done
            return work_done
        except Bomb:
            raise NotForward(f"holds more than {self._limits.max_unpacked} bytes unpacked", OVERSIZE) from None
        except (NotPacked, pa.ArrowException, OSError) as error:
            raise NotForward(f"cannot be unpacked: {error}") from None
        except NotForward:
            raise
        except _DECODING_ERRORS as error:
            raise NotForward(str(error)) from None

    def _read(self, work: int) -> int:
        work_done = 0
        while self._packed is not None:
            part = next(self._packed, None)
            if part is None:
                self._packed, self._events = None, _stream(b"".join(self._unpacked_parts))
                self._unpacked_parts = []
                break
            self._unpacked_parts.append(part)
            self._unpacked_bytes += len(part)
            work_done += len(part) // BYTES_PER_UNIT
            if work_done >= work:
                return work_done
        for event in self._events:
            self._add_event(event)
            work_done += 1 + len(event) // BYTES_PER_UNIT
            if work_done >= work:
                return work_done
        self.is_read = True
        return work_done

    def _add_event(self, event: bytes) -> None:
        limits = self._limits
        self._events_read += 1
        if self._events_read > limits.max_events:
            raise NotForward(f"holds more than {limits.max_events} events (max_messages)", OVERSIZE)
        if event[0] != 0x92 and not self._is_list:
            # In a stream the events behind it could begin anywhere.
            raise NotForward("an event is a time and a record")
        row = _row_without_gc(self._tag, event) if len(event) <= limits.max_event else OVERSIZE
        if isinstance(row, str) or len(row) > limits.max_event:
            self.refused[row if isinstance(row, str) else OVERSIZE] += 1
        else:
            self._rows.append(row)
            self._row_bytes += len(row)
            if self._uuid is not None:
                self._uuid.add(row)
        if self._row_bytes > limits.max_unpacked:
            raise NotForward(f"holds more than {limits.max_unpacked} bytes unpacked (max_body)", OVERSIZE)

    @property
    def has_rows(self) -> bool:
        """Whether rows are left to take."""
        return self._rows_taken < len(self._rows)

    def take_rows(self, count: int | None = None) -> list[bytes]:
        """Return the rows of the next ``count`` events of a request that is read; None for all remaining ones."""
        begin = self._rows_taken
        rows = self._rows[begin : None if count is None else begin + count]
        self._rows_taken += len(rows)
        if self._uuid is None:
            return [NUL + row for row in rows]
        # The uuid is made of the chunk's id, its whole content and the index: an id used twice loses no event.
        uuid = self._uuid.message_id().encode()
        return [b"%b-%d\0%b" % (uuid, number, row) for number, row in enumerate(rows, begin)]


def _row_without_gc(tag: bytes, event: bytes) -> bytes | str:
    # The collector would traverse a million empty lists several times: 330 ms for an event of 1 MiB, else 100 ms.
    if len(event) < LARGE_EVENT_BYTES or not gc.isenabled():
        return _row(tag, event)
    gc.disable()
    try:
        return _row(tag, event)
    finally:
        gc.enable()


def _row(tag: bytes, event: bytes) -> bytes | str:
    """Return the row of an event, or the reason of its refusal."""
    if event[0] != 0x92:
        return DAMAGED
    try:
        containers = _Budget(MAX_CONTAINERS, "maps and lists")
        hooks = dict.fromkeys(("object_hook", "list_hook"), containers.spend) if _may_be_containers(event) else {}
        time, record = msgpack.unpackb(event, ext_hook=_slow_values().extension, **hooks, **_UNPACK_OPTIONS)
        if not isinstance(record, dict):
            return DAMAGED
        return NUL.join((tag, _nanoseconds(time), _json_of_record(record, event), *_metadata(time, event)))
    except NotForward as error:
        return error.reason
    except _DECODING_ERRORS:
        return DAMAGED


def _metadata(time: Any, event: bytes) -> list[bytes]:
    """Return what Fluent Bit 2.1 and later adds to the time of an event, as JSON; none if it is empty."""
    if not isinstance(time, list) or len(time) < 2 or time[1:] == [{}]:
        return []
    if len(time) > 2 or not isinstance(time[1], dict):
        return [_json(time[1:])]
    _, metadata = _elements(next(_elements(event, 2)), 2)
    return [_json_of_record(time[1], b"\x92\0" + metadata)]


def _pair_count(event: bytes) -> int:
    """Return the number of pairs that the record of an event, which is a map, states."""
    begin = 1 + _TIME_BYTES.get(event[1], 0)
    if begin == 1:
        # [time, {}] of Fluent Bit 2.1 and later: a list of an EventTime and an empty map
        begin = 13 if event[1:3] == b"\x92\xd7" and event[12:13] == b"\x80" else _time_end(event)
    header = event[begin]
    if header < 0x90:
        return header & 15
    return int.from_bytes(event[begin + 1 : begin + (3 if header == 0xDE else 5)], "big")


def _time_end(event: bytes) -> int:
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
    return _json(msgpack.unpackb(event, **hooks, **_UNPACK_OPTIONS)[1], event)


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


def _is_time(data: bytes) -> bool:
    """Return whether a list is a time with metadata, which are a map, and not a list of events."""
    return data[0] == 0x92 and data[1] not in _ARRAYS and data[_time_end(data)] in _MAPS


_UNPACK_OPTIONS: dict[str, Any] = {"raw": False, "unicode_errors": LATIN_1, "strict_map_key": False}


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, **_UNPACK_OPTIONS)


def _as_text(content: Any) -> Any:
    """Return a text of type bin, as some msgpack libraries write it, as string; anything else unchanged."""
    return content.decode("utf-8", LATIN_1) if isinstance(content, bytes) else content


def _elements(data: bytes, max_count: int) -> Iterator[bytes]:
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


def _stream(data: bytes) -> Iterator[bytes]:
    """Yield concatenated objects, cut out one by one. Raises NotForward if the last one is incomplete."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    begin = 0
    while begin < len(data):
        unpacker.skip()
        yield data[begin : unpacker.tell()]
        begin = unpacker.tell()


def _decompressed_parts(data: bytes, compression: Any, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of concatenated gzip streams or zstd frames.

    Raises Bomb above ``max_bytes``, and NotForward for other compressions.
    """
    if compression == "gzip":
        yield from unpacked_parts(data, max_bytes)
        return
    if compression != "zstd":
        raise NotForward("compressed is neither gzip nor zstd")
    yield from arrow_parts(data, max_bytes, "zstd")


def acknowledgement(chunk: str | bytes | int) -> bytes:
    """Return the message that confirms a chunk as stored."""
    packed: bytes = msgpack.packb({"ack": chunk})
    return packed
