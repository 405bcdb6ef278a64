"""Splitter of a connection of the forward protocol: bytes in as they arrive, rows and replies out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgpack
import pyarrow as pa

from penstock.wire.forward.event_rows import DAMAGED, OVERSIZE, NotForward
from penstock.wire.forward.handshake import Handshake
from penstock.wire.forward.requests import RequestLimits, RequestReader, acknowledgement
from penstock.wire.framing.line_framing import NO_LINES, Lines
from penstock.wire.requests import MAX_MESSAGES

MAX_REQUEST_BYTES = 16 << 20
"""Limit of a request: Fluentd's chunks have 8 MiB, Fluent Bit's 2 MiB."""
WORK_PER_TURN = 2048
"""Limit: events, or units of bytes, read before other connections have their turn: 2 to 4 us each, so 8 ms; and rows
returned at once, which the caller decodes in 12 ms.
"""
FREE_WORK = 128
"""Limit: units of work that are always done at once, so that small requests wait for no large one: 256 KiB."""
DEFERRED_BYTES = 256 << 10
"""Bytes of a request that is read only when all connections that are ready have had their turn."""
PROTOCOL, KEY = "protocol", "key"
"""Reasons to close a connection."""


class RequestMemory:
    """Bytes of the requests that all connections of a listener are reading.

    Limit: 100 KiB unpack to ``max_body``, and each of 10,000 connections may send them. Beyond ``limit`` one request
    at a time is read further than FREE_WORK, and beyond four times ``limit`` no other one at all.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[ForwardSplitter, int] = {}
        self._sum = 0
        self._first: ForwardSplitter | None = None

    def has_room_for(self, splitter: ForwardSplitter) -> bool:
        """Return whether ``may_grow`` would be true."""
        return self._sum < self._limit or self._first in (None, splitter)

    def may_grow(self, splitter: ForwardSplitter) -> bool:
        """Return whether the request of ``splitter`` may be read further now."""
        if self._sum < self._limit:
            return True
        if self._first is None:
            self._first = splitter
        return self._first is splitter

    @property
    def has_room_for_small(self) -> bool:
        """Whether small requests may be read while another one is read further."""
        return self._sum < 4 * self._limit

    def hold(self, splitter: ForwardSplitter, size: int) -> None:
        """Record the bytes that the request of ``splitter`` holds; 0 at its end."""
        self._sum += size - self._held.pop(splitter, 0)
        if size:
            self._held[splitter] = size
        elif self._first is splitter:
            self._first = None


class ForwardSplitter:
    """Splitter of one connection into requests, and of requests into events.

    ``replies`` must be sent at once, ``acknowledgements`` once the log has the rows before them; the caller removes
    both. An empty acknowledgement is not sent: the log must have the rows before it, and more of the request follows.
    ``closed``: the reason why the connection cannot continue, or "". ``has_work``: whether ``feed`` must be
    called again without new bytes before more of the connection is read. ``memory`` is shared by the connections of a
    listener; the caller calls ``abandon`` if the connection ends early.
    """

    waits = False

    def __init__(
        self,
        max_line: int,
        max_unpacked: int,
        handshake: Handshake | None = None,
        max_events: int = MAX_MESSAGES,
        memory: RequestMemory | None = None,
    ) -> None:
        self._memory = memory or RequestMemory(max_unpacked)
        self._limits = RequestLimits(max_line, max_unpacked, max_events)
        self._handshake = handshake
        self._max_request_bytes = min(MAX_REQUEST_BYTES, max_unpacked)
        self._reader: RequestReader | None = None
        self.has_work = False
        # Limit: the scanner only skips objects; its buffer holds a request and one read.
        self._scanner = msgpack.Unpacker(max_buffer_size=2 * self._max_request_bytes + (4 << 20))
        self._pending = bytearray()
        self._begin = 0
        self._has_left = False
        self.dropped = 0
        """Requests that were not read because their sender has left."""
        self.replies = [handshake.greeting] if handshake else []
        self.acknowledgements: list[bytes] = []
        self.closed = ""

    @property
    def unfinished(self) -> int:
        """Bytes of requests whose end has not arrived."""
        return len(self._pending) + (self._reader.size if self._reader else 0)

    def feed(self, data: bytes | memoryview) -> Lines:
        """Return the events of the requests that ``data`` completes, as far as one turn reads them."""
        if self.closed:
            return Lines(NO_LINES)
        lines = self._feed(data)
        self._memory.hold(self, self.held_bytes)
        return lines

    @property
    def held_bytes(self) -> int:
        """Bytes of memory of the request being read, unpacked and as rows."""
        return self._reader.held_bytes if self._reader else 0

    @property
    def waits_for_memory(self) -> bool:
        """Whether ``feed`` would read nothing until requests of other connections are read."""
        reader = self._reader
        if not self.has_work or reader is None or reader.is_read or self._is_droppable(reader):
            return False
        return reader.work_done >= FREE_WORK and not self._memory.has_room_for(self)

    def leave(self) -> None:
        """Note that the sender reads no more replies.

        Requests that ask for an acknowledgement and are not read yet are dropped: their sender will repeat them.
        """
        self._has_left = True

    def end(self) -> None:
        """Note that the connection has ended: what remains of it no longer waits for others."""
        self.leave()
        self.abandon()
        self._memory = RequestMemory(self._limits.max_unpacked)

    def _is_droppable(self, reader: RequestReader) -> bool:
        return self._has_left and reader.chunk is not None and not reader.is_read

    def abandon(self) -> None:
        """Release the memory of a request that is not read to its end."""
        self._memory.hold(self, 0)

    def _feed(self, data: bytes | memoryview) -> Lines:
        self._pending += data
        rows: list[bytes] = []
        refused: Counter[str] = Counter()
        try:
            self._scanner.feed(data)
            self._read_turn(rows, refused)
            # Limit: bytes of a request whose end has not arrived.
            if len(self._pending) > self._max_request_bytes and not self.has_work:
                raise NotForward("a request is larger than allowed", OVERSIZE)
        except NotForward as error:
            self._close(PROTOCOL)
            refused[error.reason] += 1
        return Lines(pa.array(rows, pa.binary()) if rows else NO_LINES, refused=refused)

    def _read_turn(self, rows: list[bytes], refused: Counter[str]) -> None:
        """Read complete requests until none remains or the turn is over."""
        room, self.has_work = WORK_PER_TURN, False
        while not self.closed:
            if room <= 0:
                self.has_work = True
                return
            if self._reader is None:
                if (request := self._next_request()) is None:
                    return
                self._begin_request(request)
                room -= 1
                if self._reader is not None and len(request) > DEFERRED_BYTES:
                    # Others are read first: one event of 1 MiB may take 100 ms, and many connections may send one.
                    self.has_work = True
                    return
                continue
            if self._is_droppable(self._reader):
                self._reader = None
                self.dropped += 1
                continue
            if not self._reader.is_read:
                work = self._allowed_work(self._reader, room)
                self.has_work = not work
                if not work:
                    return
                room -= self._reader.read(work)
            # Order: no row leaves before the request is read to its end, because a later event may refuse it.
            if self._reader.is_read:
                rows += self._reader.take_rows(WORK_PER_TURN - len(rows))
                self._end_turn(self._reader, refused)
                if self._reader is not None:
                    room = 0

    def _allowed_work(self, reader: RequestReader, room: int) -> int:
        """Return how many units of work may be done now."""
        free = FREE_WORK - reader.work_done if self._memory.has_room_for_small else 0
        return min(room, free) if free > 0 else room if self._memory.may_grow(self) else 0

    def _end_turn(self, reader: RequestReader, refused: Counter[str]) -> None:
        """Forget a request whose rows are all taken; its acknowledgement covers the rows of all turns."""
        if not reader.has_rows:
            refused.update(reader.refused)
            self._reader = None
        if reader.chunk is not None:
            self.acknowledgements.append(b"" if reader.has_rows else acknowledgement(reader.chunk))

    def settle(self) -> Lines:
        """Return the remaining rows of a request that is read; a pause completes no request."""
        reader, refused = self._reader, Counter[str]()
        if reader is None or not reader.is_read:
            return Lines(NO_LINES)
        rows = reader.take_rows()
        self._end_turn(reader, refused)
        self.abandon()
        return Lines(pa.array(rows, pa.binary()), refused=refused)

    def finish(self) -> Lines:
        """Return the events of complete requests at the end of the connection.

        An incomplete request is dropped, and one that ``leave`` drops: their senders have no acknowledgement.
        """
        parts: list[pa.Array[Any]] = [NO_LINES]
        refused: Counter[str] = Counter()
        self.end()
        while self.has_work and not self.closed:
            lines = self.feed(b"")
            parts.append(lines.lines)
            refused.update(lines.refused)
        cut, self._pending = len(self._pending), bytearray()
        refused.update({DAMAGED: 1} if cut and not self._handshake else {})
        return Lines(pa.concat_arrays(parts), refused=refused)

    def _next_request(self) -> bytes | None:
        """Return the next request, None while it is incomplete. Raises NotForward."""
        try:
            self._scanner.skip()
        except msgpack.OutOfData:
            return None
        except (ValueError, msgpack.UnpackException) as error:
            raise NotForward(str(error)) from None
        size = self._scanner.tell() - self._begin
        self._begin += size
        request = bytes(memoryview(self._pending)[:size])
        del self._pending[:size]
        return request

    def _begin_request(self, data: bytes) -> None:
        if self._handshake is not None:
            is_valid, reply = self._handshake.answer(data)
            self.replies.append(reply)
            self._handshake = None
            if not is_valid:
                self._close(KEY)
        elif data != b"\xc0":  # not a heartbeat
            self._reader = RequestReader(data, self._limits)

    def _close(self, reason: str) -> None:
        self.closed = reason
        self._pending, self._reader, self.has_work = bytearray(), None, False
