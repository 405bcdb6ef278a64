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
from dataclasses import dataclass, field
from typing import Any

import msgpack
import orjson
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.wire.message_ids import message_id
from penstock.wire.sender_text import LATIN_1
from penstock.wire.unpacking import Bomb, NotPacked, all_unpacked

NUL = b"\0"
MOST_BESIDE = 16 << 10
"""Bytes of a tag, and of a request's options."""
MOST_EVENTS = 1 << 20
"""Events of a request."""
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
class Request:
    """Rows, how many events were refused by reason, and the id that is to be acknowledged."""

    rows: list[bytes]
    refused: Counter[str] = field(default_factory=Counter)
    chunk: str | None = None


def read_request(data: bytes, most: int, most_unpacked: int) -> Request:
    """What ``data``, one msgpack object, asks for.

    ``most``: bytes of an event, and of its row; ``most_unpacked``: bytes that a compressed request may hold. Raises
    NotForward.
    """
    try:
        return _read(data, most, most_unpacked)
    except NotForward:
        raise
    except _WRONG as error:
        raise NotForward(str(error)) from None


def _read(data: bytes, most: int, most_unpacked: int) -> Request:
    fields = _fields(data)
    if not 2 <= len(fields) <= 4 or len(fields[0]) > MOST_BESIDE:
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
        events: Iterator[bytes] = iter([b"\x92" + fields[1] + fields[2]])
    elif kind in _ARRAYS:
        events = iter(_fields(fields[1]))
    else:
        packed = msgpack.unpackb(fields[1], raw=True, max_str_len=len(data), max_bin_len=len(data))
        events = _stream(_decompressed(packed, option.get("compressed"), most_unpacked))
    chunk = option.get("chunk")
    rows, refused = _rows(tag.replace("\0", " ").encode(), events, most, most_unpacked)
    chunk = chunk if isinstance(chunk, str) else None
    return Request(_with_uuids(rows, None if chunk is None or DIGEST.fullmatch(chunk) else chunk), refused, chunk)


def _with_uuids(rows: list[bytes], chunk: str | None) -> list[bytes]:
    """Rows that are known by the chunk's id, all that is in it, and their place: an id used twice loses nothing."""
    if chunk is None:
        return [NUL + row for row in rows]
    uuid = message_id([chunk.encode("utf-8", "replace"), *rows]).encode()
    return [b"%b-%d\0%b" % (uuid, number, row) for number, row in enumerate(rows)]


def _rows(tag: bytes, events: Iterator[bytes], most: int, most_in_all: int) -> tuple[list[bytes], Counter[str]]:
    rows: list[bytes] = []
    refused: Counter[str] = Counter()
    size = 0
    for number, event in enumerate(events):
        row = _row(tag, event) if len(event) <= most else OVERSIZE
        if isinstance(row, str) or len(row) > most:
            refused[row if isinstance(row, str) else OVERSIZE] += 1
        else:
            rows.append(row)
            size += len(row)
        if size > most_in_all or number >= MOST_EVENTS:
            raise NotForward("holds more than may be", OVERSIZE)
    return rows, refused


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


def _fields(data: bytes) -> list[bytes]:
    """The elements of a list, cut out."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    count, found = unpacker.read_array_header(), []
    for _ in range(count):
        begin = unpacker.tell()
        unpacker.skip()
        found.append(data[begin : unpacker.tell()])
    return found


def _stream(data: bytes) -> Iterator[bytes]:
    """The objects that lie one behind the other, cut out. Raises NotForward where the last is not whole."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    begin = 0
    while begin < len(data):
        unpacker.skip()
        yield data[begin : unpacker.tell()]
        begin = unpacker.tell()


def _decompressed(data: bytes, name: Any, most: int) -> bytes:
    """What one or several gzip streams or zstd frames, one behind the other, hold.

    Raises NotForward beyond ``most`` bytes, and for compressions that nobody sends.
    """
    if name in (None, "", "text"):
        return data
    try:
        return all_unpacked(data, most) if name == "gzip" else _unpacked_zstd(data, name, most)
    except Bomb:
        raise NotForward("holds more than may be", OVERSIZE) from None
    except (NotPacked, pa.ArrowException, OSError) as error:
        raise NotForward(f"cannot be unpacked: {error}") from None


def _unpacked_zstd(data: bytes, name: Any, most: int) -> bytes:
    if name != "zstd":
        raise NotForward("compressed is neither gzip nor zstd")
    with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
        unpacked: bytes = stream.read(most + 1)
    if len(unpacked) > most:
        raise Bomb(f"more than {most} bytes")
    return unpacked


def acknowledgement(chunk: str) -> bytes:
    """What tells a sender that its chunk is safe."""
    packed: bytes = msgpack.packb({"ack": chunk})
    return packed
