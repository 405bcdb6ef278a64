"""Decoder of one request of the forward protocol: its events as rows of bytes, and the id to acknowledge.

Each row of ``event_rows`` gets a uuid and NUL in front; ``codec`` makes columns of the rows. The uuid is empty without
an id of the chunk, and the same one whenever the chunk is repeated.

Limit: an event is cut out of the request before it is decoded, so that its size bounds the memory of its objects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import pyarrow as pa

from penstock.wire.forward.event_rows import (
    DECODING_ERRORS,
    NUL,
    OVERSIZE,
    UNPACK_OPTIONS,
    NotForward,
    build_row,
    elements,
    time_end,
)
from penstock.wire.message_ids import MessageIdBuilder
from penstock.wire.sender_text import LATIN_1
from penstock.wire.unpacking import Bomb, NotPacked, arrow_parts, unpacked_parts

MAX_TAG_BYTES = 16 << 10
"""Limit: bytes of a tag, and of a request's options."""
ROW_OVERHEAD_BYTES = 64
"""Memory of a row besides its bytes."""
BYTES_PER_UNIT = 2048
"""Unit of work: as many bytes take as long to decompress or to read as one event."""
MAX_FIELDS = 4
"""Limit: elements of a request."""
DIGEST = re.compile(r"[0-9a-f]{32}")
"""Form of Fluent Bit's older chunk ids: hashes of the content, which are equal for equal messages of two hosts."""
FLUENT_SIGNAL = "fluent_signal"
"""Option of Fluent Bit 2.1 and later. Its ids may be such hashes in base64, which look like Fluentd's random ids."""
_ARRAYS = (*range(0x90, 0xA0), 0xDC, 0xDD)
_STRINGS = (*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB, 0xC4, 0xC5, 0xC6)
_MAPS = (*range(0x80, 0x90), 0xDE, 0xDF)


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
        except DECODING_ERRORS as error:
            raise NotForward(str(error)) from None

    def _begin(self, data: bytes) -> None:
        fields = list(elements(data, MAX_FIELDS))
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
            self._events = elements(fields[1], self._limits.max_events)
        else:
            packed = msgpack.unpackb(fields[1], raw=True, max_str_len=len(data), max_bin_len=len(data))
            compression = _as_text(option.get("compressed"))
            if compression not in (None, "", "text"):
                self._packed = _decompressed_parts(packed, compression, self._limits.max_unpacked)
            self._events = iter(()) if self._packed else _stream(packed)
        chunk = option.get("chunk")
        self.chunk = chunk if isinstance(chunk, str | bytes | int) else None
        chunk_text = str(_as_text(chunk))
        if self.chunk is not None and FLUENT_SIGNAL not in option and not DIGEST.fullmatch(chunk_text):
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
        except DECODING_ERRORS as error:
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
        row = build_row(self._tag, event) if len(event) <= limits.max_event else OVERSIZE
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


def _is_time(data: bytes) -> bool:
    """Return whether a list is a time with metadata, which are a map, and not a list of events."""
    return data[0] == 0x92 and data[1] not in _ARRAYS and data[time_end(data)] in _MAPS


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, **UNPACK_OPTIONS)


def _as_text(content: Any) -> Any:
    """Return a text of type bin, as some msgpack libraries write it, as string; anything else unchanged."""
    return content.decode("utf-8", LATIN_1) if isinstance(content, bytes) else content


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
