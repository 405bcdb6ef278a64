"""One connection's frames, each of which begins with its length: those that come, and those that are sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from penstock.process.in_flight_bytes import RequestBytes
from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.limits import IDLE, LARGEST, KafkaLimits

SIZE = 4
"""Bytes of a length."""
FIRST_ROOM = 1 << 20
"""Bytes that a frame gets at first, at most; where more have come, twice as many."""
Whole = tuple[memoryview, RequestBytes]
"""A frame without its length, and its part in what is under way, which is to be released."""


class _Arrived(threading.local):
    """Where what comes is read where no frame has begun yet: taken from there before the loop goes on to another
    connection; one for each thread, and so for each loop.
    """

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(64 << 10))


_ARRIVED = _Arrived()


class Frames(asyncio.BufferedProtocol):
    """Frames of up to LARGEST bytes: large ones are read into their own memory, at most one before it is asked for.

    ``serve`` runs while there is a connection. ``give_up`` is told when the frame that is coming is one too many.
    ``ahead``: bytes of small frames that are read before they are asked for, whoever is busy.
    """

    def __init__(
        self,
        limits: KafkaLimits,
        serve: Callable[[Frames], Coroutine[Any, Any, None]],
        give_up: Callable[[], None] = lambda: None,
        ahead: int = 0,
    ) -> None:
        self._limits, self._serve, self._told, self._ahead = limits, serve, give_up, ahead
        self._loop = asyncio.get_running_loop()
        self.offer: Callable[[memoryview, RequestBytes], bool] = lambda *_: False
        """Gets a frame that is waited for, as soon as it is whole; whether it is not to be had from ``next``, too."""
        self._rest = memoryview(b"")
        self._large: _Large | None = None
        self._first: Whole | None = None
        self._over = self._aborted = self._paused = False
        self._waiting: asyncio.Future[None] | None = None
        self._full: asyncio.Future[None] | None = None
        self._small = b""
        self._idle_since = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.task = self._loop.create_task(self._serve(self))
        self._watch = self._loop.call_later(IDLE, self._end_if_idle)

    def connection_lost(self, _: Exception | None) -> None:
        self._end()
        self._watch.cancel()
        self.resume_writing()

    def eof_received(self) -> bool:
        self._end()
        return False

    def _end(self) -> None:
        """No more bytes come; what is whole is still there to be asked for."""
        self._over = True
        if self._large is not None and not self._large.is_whole:
            self._drop_large()
        self._wake()

    def _drop_first(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._limits.release(first[1])

    def _drop_large(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            large.over()
            self._limits.release(large.held)

    def abort(self) -> None:
        """End the connection at once, whatever was not asked for yet."""
        self._aborted = True
        self.transport.abort()
        self._drop_first()
        self._drop_large()
        self._rest = memoryview(b"")
        self._end()

    def _end_if_idle(self) -> None:
        left = self._idle_since + IDLE - self._loop.time()
        if left <= 0 and self._waiting is not None:
            self.abort()
        else:
            self._watch = self._loop.call_later(max(left, 1.0), self._end_if_idle)

    def get_buffer(self, _: int) -> memoryview:
        large = self._large
        return _ARRIVED.memory if large is None or large.is_whole else large.room()

    def buffer_updated(self, count: int) -> None:
        self._idle_since = self._loop.time()
        large = self._large
        if large is not None and not large.is_whole:
            self._limits.grow(large.held, count)
            if self._large is large:  # there was room for it
                large.filled(count)
        else:
            self._rest = memoryview(b"".join((self._rest, _ARRIVED.memory[:count])))
            self._begin_large()
        self._offer_all()
        if self._has_whole() and not self._wake() and not self._paused and len(self._rest) >= self._ahead:
            self._paused = True
            self.transport.pause_reading()

    def _offer_all(self) -> None:
        while self._is_waited_for() and self._has_whole() and (self._large is not None or self._size()):
            found = self._taken()
            if self._aborted:
                return
            self._begin_large()
            if not self.offer(*found):
                self._first = found

    def _is_waited_for(self) -> bool:
        return self._waiting is not None and not self._waiting.done() and self._first is None

    def _wake(self) -> bool:
        """Whether somebody waited."""
        if self._waiting is None or self._waiting.done():
            return False
        self._waiting.set_result(None)
        return True

    def _size(self) -> int:
        """The length that stands at the beginning of what has come; 0 for one that no frame has."""
        size = int.from_bytes(self._rest[:SIZE], "big", signed=True)
        return size if 0 < size <= LARGEST else 0

    def _begin_large(self) -> None:
        """Where what has come ends within its first frame, that gets memory of its own."""
        if self._large is None and len(self._rest) >= SIZE and (size := self._size()) > len(self._rest) - SIZE:
            self._large = _Large(size, self._rest[SIZE:], RequestBytes(self._give_up), self._loop.time())
            self._limits.grow(self._large.held, len(self._rest) - SIZE)
            self._rest = memoryview(b"")
            self._abort_if_late(self._large)

    def _abort_if_late(self, large: _Large) -> None:
        """End the connection once a frame comes too slowly.

        Invariant: the deadline follows the bytes that have come, never the length that was announced.
        """
        remaining = large.began + self._limits.time_for(large.count) - self._loop.time()
        if remaining <= 0:
            self.abort()
        else:
            large.timer = self._loop.call_later(remaining, self._abort_if_late, large)

    def _give_up(self) -> None:
        self._told()
        self.abort()

    def _has_whole(self) -> bool:
        if self._first is not None:
            return True
        if self._large is not None:
            return self._large.is_whole
        return len(self._rest) >= SIZE

    async def next(self) -> Whole | None:
        """The next frame; None where the client is gone, silent or too slow. Raises BadFrame for one without a size."""
        while not self._has_whole():
            if self._over:
                return None
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        found = self._first or self._taken()
        self._first = None
        if self._aborted:  # there is no room for it
            return None
        self._begin_large()
        if self._paused and not self._has_whole():
            self._paused = False
            self.transport.resume_reading()
        return found

    def _taken(self) -> Whole:
        if (large := self._large) is not None:
            self._large = None
            return large.whole(), large.held
        if not (size := self._size()):
            raise BadFrame("a request has no bytes, or too many")
        held = RequestBytes(self._give_up)
        found, self._rest = self._rest[SIZE : SIZE + size], self._rest[SIZE + size :]
        self._limits.grow(held, size)
        held.complete = True
        return found, held

    def send(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send the parts of a frame. Small ones that are sent in a row go together."""
        if len(parts) == 1:
            if not self._small:
                self._loop.call_soon(self._flush)
            self._small += parts[0]
            return
        self._flush()
        for part in parts:
            self.transport.write(part)

    def _flush(self) -> None:
        if self._small and not self.transport.is_closing():
            self.transport.write(self._small)
        self._small = b""

    def pause_writing(self) -> None:
        self._full = self._full or self._loop.create_future()

    def resume_writing(self) -> None:
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    @property
    def full(self) -> bool:
        """Whether the client has not taken most of what is sent."""
        return self._full is not None

    async def taken(self, size: int) -> None:
        """Wait until the client has taken most of what is sent. Raises TimeoutError where that takes too long."""
        if self._full is not None:
            async with asyncio.timeout(self._limits.time_for(size)):
                await self._full


class TlsFrames(asyncio.Protocol):
    """Gives ``frames`` what TLS has unpacked.

    By a protocol with a buffer of its own asyncio would take a part of what came before the end, and drop the rest;
    it drops, too, what it holds while reading is paused: so some more is read ahead.
    """

    AHEAD = 512 << 10

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._frames.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._frames.connection_lost(exc)

    def eof_received(self) -> bool:
        return self._frames.eof_received()

    def pause_writing(self) -> None:
        self._frames.pause_writing()

    def resume_writing(self) -> None:
        self._frames.resume_writing()

    def data_received(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            room = self._frames.get_buffer(len(left))
            count = min(len(room), len(left))
            room[:count] = left[:count]
            left = left[count:]
            self._frames.buffer_updated(count)


class _Large:
    """A frame of which only a part has come."""

    def __init__(self, size: int, begun: memoryview, held: RequestBytes, began: float) -> None:
        self.size, self.held, self.began, self.count = size, held, began, len(begun)
        self.timer: asyncio.TimerHandle | None = None
        self._memory = _memory(min(size, max(FIRST_ROOM, len(begun))))
        self._memory[: len(begun)] = begun

    @property
    def is_whole(self) -> bool:
        return self.count == self.size

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self.count == len(self._memory):
            before, self._memory = self._memory, _memory(min(self.size, 2 * self.count))
            self._memory[: self.count] = before
        return self._memory[self.count :]

    def filled(self, count: int) -> None:
        self.count += count
        if self.is_whole:
            self.held.complete = True
            self.over()

    def over(self) -> None:
        """Nothing is waited for any more."""
        if self.timer is not None:
            self.timer.cancel()

    def whole(self) -> memoryview:
        return self._memory.toreadonly()


def _memory(size: int) -> memoryview:
    """Bytes that are not set, so that they take no memory before something is written there."""
    return np.empty(size, np.uint8).data
