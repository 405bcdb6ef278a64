"""One request of the forward protocol: its events, each a row of bytes, and the id that its sender wants to see again.

A row is its uuid, the tag, the time in nanoseconds and the record as JSON, with NULs between them: ``codec`` makes
columns of it. Events of a chunk with an id have a uuid, the same one whenever the chunk comes. Events are cut out of
the request before anything is made of them, so that none takes more memory than its size allows.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import orjson
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.wire.message_ids import message_id
from penstock.wire.sender_text import LATIN_1
from penstock.wire.unpacking import Bomb, NotPacked, arrow_parts, unpacked_parts

NUL = b"\0"
MOST_BESIDE = 16 << 10
"""Bytes of a tag, and of a request's options."""
BYTES_PER_UNIT = 2048
"""Bytes that take as long to unpack or to read as one event."""
MAX_FIELDS = 4
"""Parts of a request."""
DIGEST = re.compile(r"[0-9a-f]{32}")
"""The id of a chunk of Fluent Bit's: a hash of what is in it, the same for equal messages of different hosts."""
OVERSIZE, DAMAGED = "oversize", "damaged"
_EVENT_TIME = 0
_LATEST = 2**63 - 1
_UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3))
"""Below these a time is in seconds, milliseconds, microseconds; from the last one on in nanoseconds."""
_ARRAYS = (*range(0x90, 0xA0), 0xDC, 0xDD)
_STRINGS = (*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB, 0xC4, 0xC5, 0xC6)
_WRONG = (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException, struct.error)
"""What msgpack and orjson raise for what cannot be."""


class NotForward(PenstockError, ValueError):
    """Bytes that are no request of the protocol; ``reason`` is the name of their count."""

    def __init__(self, text: str, reason: str = DAMAGED) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """``max_event``: bytes of an event and of its row; ``max_unpacked``: of all rows, and of a packed request."""

    max_event: int
    max_unpacked: int
    max_events: int


class RequestReader:
    """Reads one request, a msgpack object, in parts: between them the senders of other connections are served.

    ``refused`` counts refused events by reason; ``chunk`` is the id to acknowledge, if there is one. What it raises is
    NotForward.
    """

    def __init__(self, data: bytes, limits: RequestLimits) -> None:
        self.size, self._limits = len(data), limits
        self.refused: Counter[str] = Counter()
        self.chunk: str | None = None
        self._rows: list[bytes] = []
        self._packed: Iterator[bytes] | None = None
        self._unpacked_parts: list[bytes] = []
        self._events_read = self._rows_bytes = 0
        try:
            self._begin(data)
        except NotForward:
            raise
        except _WRONG as error:
            raise NotForward(str(error)) from None

    def _begin(self, data: bytes) -> None:
        fields = list(_elements(data, MAX_FIELDS))
        if len(fields) < 2 or len(fields[0]) > MOST_BESIDE:
            raise NotForward("no list of a tag and events")
        tag = _unpacked(fields[0])
        kind = fields[1][0]
        is_message = kind not in _ARRAYS + _STRINGS or _is_time(fields[1])
        if is_message and len(fields) < 3:
            raise NotForward("a message has a tag, a time and a record")
        options = fields[3 if is_message else 2 :]
        option = _unpacked(options[0]) if options and len(options[0]) <= MOST_BESIDE else {}
        if not isinstance(tag, str) or not isinstance(option, dict | None):
            raise NotForward("a tag is a text, options are a map")
        option = option or {}
        if is_message:
            self._events: Iterator[bytes] = iter([b"\x92" + fields[1] + fields[2]])
        elif kind in _ARRAYS:
            self._events = _elements(fields[1], self._limits.max_events)
        else:
            packed = msgpack.unpackb(fields[1], raw=True, max_str_len=len(data), max_bin_len=len(data))
            compression = option.get("compressed")
            if compression not in (None, "", "text"):
                self._packed = _decompressed_parts(packed, compression, self._limits.max_unpacked)
            self._events = iter(()) if self._packed else _stream(packed)
        chunk = option.get("chunk")
        self.chunk = chunk if isinstance(chunk, str) else None
        self._tag = tag.replace("\0", " ").encode()

    def read(self, work: int) -> tuple[bool, int]:
        """Do up to ``work`` units of work (an event, or BYTES_PER_UNIT); whether all is read, and the work done."""
        try:
            return self._read(work)
        except Bomb:
            raise NotForward(f"holds more than {self._limits.max_unpacked} bytes unpacked", OVERSIZE) from None
        except (NotPacked, pa.ArrowException, OSError) as error:
            raise NotForward(f"cannot be unpacked: {error}") from None
        except NotForward:
            raise
        except _WRONG as error:
            raise NotForward(str(error)) from None

    def _read(self, work: int) -> tuple[bool, int]:
        done = 0
        while self._packed is not None:
            part = next(self._packed, None)
            if part is None:
                self._packed, self._events = None, _stream(b"".join(self._unpacked_parts))
                self._unpacked_parts = []
                break
            self._unpacked_parts.append(part)
            done += len(part) // BYTES_PER_UNIT
            if done >= work:
                return False, done
        for event in self._events:
            self._take(event)
            done += 1 + len(event) // BYTES_PER_UNIT
            if done >= work:
                return False, done
        return True, done

    def _take(self, event: bytes) -> None:
        limits = self._limits
        self._events_read += 1
        if self._events_read > limits.max_events:
            raise NotForward(f"holds more than {limits.max_events} events (max_messages)", OVERSIZE)
        row = _row(self._tag, event) if len(event) <= limits.max_event else OVERSIZE
        if isinstance(row, str) or len(row) > limits.max_event:
            self.refused[row if isinstance(row, str) else OVERSIZE] += 1
        else:
            self._rows.append(row)
            self._rows_bytes += len(row)
        if self._rows_bytes > limits.max_unpacked:
            raise NotForward(f"holds more than {limits.max_unpacked} bytes unpacked (max_body)", OVERSIZE)

    def rows(self) -> list[bytes]:
        """The rows of all events, once they are read."""
        chunk = self.chunk
        return _with_uuids(self._rows, None if chunk is None or DIGEST.fullmatch(chunk) else chunk)


def _with_uuids(rows: list[bytes], chunk: str | None) -> list[bytes]:
    """Rows that are known by the chunk's id, all that is in it, and their place: an id used twice loses nothing."""
    if chunk is None:
        return [NUL + row for row in rows]
    uuid = message_id([chunk.encode("utf-8", "replace"), *rows]).encode()
    return [b"%b-%d\0%b" % (uuid, number, row) for number, row in enumerate(rows)]


def _row(tag: bytes, event: bytes) -> bytes | str:
    """The row of an event, or why it is refused. Raises NotForward for what is not even a pair."""
    if event[0] != 0x92:
        raise NotForward("an event is a time and a record")
    try:
        time, record = _unpacked(event)
        if not isinstance(record, dict):
            return DAMAGED
        return NUL.join((tag, _nanoseconds(time), _json(record)))
    except _WRONG:
        return DAMAGED


def _json(record: dict[Any, Any]) -> bytes:
    written = orjson.dumps(record, default=_text, option=orjson.OPT_NON_STR_KEYS)
    if b"null" not in written:
        return written
    return orjson.dumps(_finite(record), default=_text, option=orjson.OPT_NON_STR_KEYS)


def _finite(value: Any) -> Any:
    """A value with texts (``nan``, ``inf``) for numbers that JSON has not: orjson writes null for them."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    """What JSON has no word for: bytes are texts that some senders do not call so."""
    return value.decode("utf-8", LATIN_1) if isinstance(value, bytes) else str(value)


def _nanoseconds(time: Any) -> bytes:
    """A time since the epoch, as digits; none where it is none. Newer ones of Fluent Bit have metadata beside it."""
    if isinstance(time, list) and time:
        time = time[0]
    if isinstance(time, msgpack.ExtType) and time.code == _EVENT_TIME and len(time.data) == 8:
        seconds, rest = struct.unpack(">II", time.data)
        found = seconds * 1_000_000_000 + rest
    elif isinstance(time, int | float) and not isinstance(time, bool) and 0 <= time <= _LATEST:
        # Fluentd's integers are seconds; other senders give finer units, which the magnitude tells apart.
        found = int(time * next((factor for limit, factor in _UNITS if time < limit), 1))
    else:
        return b""
    return b"%d" % found if found <= _LATEST else b""


def _is_time(data: bytes) -> bool:
    """Whether a list is a time with metadata beside it, and not one of events."""
    return data[0] == 0x92 and data[1] not in _ARRAYS


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, raw=False, unicode_errors=LATIN_1, strict_map_key=False)


def _elements(data: bytes, most: int) -> Iterator[bytes]:
    """The elements of a list of at most ``most``, cut out one by one. Raises NotForward where there are more."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    count = unpacker.read_array_header()
    if count > most:
        raise NotForward(f"holds more than {most} elements in a list", OVERSIZE)
    for _ in range(count):
        begin = unpacker.tell()
        unpacker.skip()
        yield data[begin : unpacker.tell()]


def _stream(data: bytes) -> Iterator[bytes]:
    """The objects that lie one behind the other, cut out. Raises NotForward where the last is not whole."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    begin = 0
    while begin < len(data):
        unpacker.skip()
        yield data[begin : unpacker.tell()]
        begin = unpacker.tell()


def _decompressed_parts(data: bytes, compression: Any, most: int) -> Iterator[bytes]:
    """Yield what gzip streams or zstd frames, one behind the other, hold.

    Raises Bomb beyond ``most`` bytes, and NotForward for compressions that nobody sends.
    """
    if compression == "gzip":
        yield from unpacked_parts(data, most)
        return
    if compression != "zstd":
        raise NotForward("compressed is neither gzip nor zstd")
    yield from arrow_parts(data, most, "zstd")


def acknowledgement(chunk: str) -> bytes:
    """What tells a sender that its chunk is safe."""
    packed: bytes = msgpack.packb({"ack": chunk})
    return packed
