"""A connection that speaks the forward protocol: bytes in as they come, rows out, and what its sender is to be told."""

from __future__ import annotations

from collections import Counter

import msgpack
import pyarrow as pa

from penstock.wire.forward.handshake import Handshake
from penstock.wire.forward.requests import DAMAGED, OVERSIZE, NotForward, Request, acknowledgement, read_request
from penstock.wire.lines import NO_LINES, Lines

MOST_REQUEST = 16 << 20
"""Bytes of a request; Fluentd's chunks have 8 MiB, Fluent Bit's 2."""
PROTOCOL, KEY = "protocol", "key"
"""Why a connection has to be closed."""


class ForwardSplitter:
    """Finds the requests of one connection, and their events.

    ``replies`` are to be sent at once, ``acknowledgements`` once the log has the rows before them; whoever sends them
    takes them out. ``closed``: why the connection cannot go on, "" while it can.
    """

    waits = False

    def __init__(self, max_line: int, most_unpacked: int, handshake: Handshake | None = None) -> None:
        self._max_line, self._most_unpacked = max_line, most_unpacked
        self._handshake = handshake
        self._most = min(MOST_REQUEST, most_unpacked)
        self._scanner = msgpack.Unpacker(max_buffer_size=2 * self._most + (4 << 20))
        self._pending = bytearray()
        self._begin = 0
        self.replies = [handshake.greeting] if handshake else []
        self.acknowledgements: list[bytes] = []
        self.closed = ""

    @property
    def unfinished(self) -> int:
        """Bytes of a request whose end has not come."""
        return len(self._pending)

    def feed(self, data: bytes | memoryview) -> Lines:
        """The events of the requests that ``data`` ends."""
        if self.closed:
            return Lines(NO_LINES)
        self._pending += data
        rows: list[bytes] = []
        refused: Counter[str] = Counter()
        try:
            self._scanner.feed(data)
            while not self.closed and (request := self._next()) is not None:
                self._take(request, rows, refused)
            if len(self._pending) > self._most:
                raise NotForward("a request larger than may be", OVERSIZE)
        except NotForward as error:
            self._close(PROTOCOL)
            refused[error.reason] += 1
        return Lines(pa.array(rows, pa.binary()) if rows else NO_LINES, refused=refused)

    def settle(self) -> Lines:
        """Nothing becomes whole by silence."""
        return Lines(NO_LINES)

    def finish(self) -> Lines:
        """What ended with the connection is no request: its sender has not been told that it is safe."""
        cut, self._pending = len(self._pending), bytearray()
        return Lines(NO_LINES, refused=Counter({DAMAGED: 1} if cut and not self._handshake else {}))

    def _next(self) -> bytes | None:
        """The next request; None while it is not whole. Raises NotForward."""
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

    def _take(self, data: bytes, rows: list[bytes], refused: Counter[str]) -> None:
        if self._handshake is not None:
            is_known, reply = self._handshake.answer(data)
            self.replies.append(reply)
            self._handshake = None
            if not is_known:
                self._close(KEY)
            return
        if data == b"\xc0":  # a heartbeat
            return
        request: Request = read_request(data, self._max_line, self._most_unpacked)
        rows += request.rows
        refused.update(request.refused)
        if request.chunk is not None:
            self.acknowledgements.append(acknowledgement(request.chunk))

    def _close(self, reason: str) -> None:
        self.closed = reason
        self._pending = bytearray()
