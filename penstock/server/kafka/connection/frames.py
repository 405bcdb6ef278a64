"""Length-prefixed frames of one connection, received and sent.

Invariant: memory follows the bytes that arrived, never the length that a client announces. All methods run on the
event loop of the connection, so nothing is locked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from penstock.process.servers.in_flight_bytes import RequestBytes
from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.limits import IDLE_TIMEOUT_S, MAX_REQUEST_BYTES, KafkaLimits

LENGTH_BYTES = 4
FIRST_BUFFER_BYTES = 1 << 20
"""Limit: initial memory of a large frame; it doubles each time it is full."""
Frame = tuple[memoryview, RequestBytes]
"""A frame without its length, and its bytes in flight, which the receiver of the frame releases."""


class _ReceiveBuffer(threading.local):
    """Receive buffer of one thread, shared by all connections of its event loop.

    The loop copies the bytes out in ``buffer_updated`` before it reads from another connection.
    """

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(64 << 10))


_RECEIVE_BUFFER = _ReceiveBuffer()


class Frames(asyncio.BufferedProtocol):
    """Frames of up to MAX_REQUEST_BYTES on one connection, as an asyncio protocol.

    ``serve`` runs as a task while the connection exists. ``on_over_limit`` is called before the connection is aborted
    because requests in flight exceed the byte limit. ``read_ahead_bytes``: small frames that are read while earlier
    ones are handled. A large frame is read into memory of its own; at most one of them is read ahead.
    """

    def __init__(
        self,
        limits: KafkaLimits,
        serve: Callable[[Frames], Coroutine[Any, Any, None]],
        on_over_limit: Callable[[], None] = lambda: None,
        read_ahead_bytes: int = 0,
    ) -> None:
        self._limits, self._serve, self._on_over_limit, self._read_ahead_bytes = (
            limits,
            serve,
            on_over_limit,
            read_ahead_bytes,
        )
        self._loop = asyncio.get_running_loop()
        self.offer: Callable[[memoryview, RequestBytes], bool] = lambda *_: False
        """Called with each complete frame that ``next`` waits for; False leaves the frame to ``next``."""
        self._unread = memoryview(b"")
        self._large: _PartialFrame | None = None
        self._declined: Frame | None = None
        self._eof = self._aborted = self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._small = b""
        self._idle_since = self.last_request_s = self._loop.time()
        self.has_requested = False
        """Whether a complete request has come; ``last_request_s``: the loop's time of the last one, or of the start."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.task = self._loop.create_task(self._serve(self))
        self._watch = self._loop.call_later(IDLE_TIMEOUT_S, self._end_if_idle)

    def connection_lost(self, _: Exception | None) -> None:
        self._end()
        self._watch.cancel()
        self.resume_writing()

    def eof_received(self) -> bool:
        self._end()
        return False

    def _end(self) -> None:
        """Mark the connection as ended; complete frames can still be read."""
        self._eof = True
        if self._large is not None and not self._large.is_complete:
            self._drop_large()
        self._wake()

    def _drop_declined(self) -> None:
        frame, self._declined = self._declined, None
        if frame is not None:
            self._limits.release(frame[1])

    def _drop_large(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            large.stop_timer()
            self._limits.release(large.request_bytes)

    def abort(self) -> None:
        """End the connection at once and discard unread frames."""
        self._aborted = True
        self.transport.abort()
        self._drop_declined()
        self._drop_large()
        self._unread = memoryview(b"")
        self._end()

    def _end_if_idle(self) -> None:
        remaining = self._idle_since + IDLE_TIMEOUT_S - self._loop.time()
        # A connection whose request is being handled is not idle, however long that takes.
        if remaining <= 0 and self._waiter is not None:
            self.abort()
        else:
            self._watch = self._loop.call_later(max(remaining, 1.0), self._end_if_idle)

    def get_buffer(self, _: int) -> memoryview:
        large = self._large
        return _RECEIVE_BUFFER.memory if large is None or large.is_complete else large.free_space()

    def buffer_updated(self, count: int) -> None:
        self._idle_since = self._loop.time()
        large = self._large
        if large is not None and not large.is_complete:
            self._limits.grow(large.request_bytes, count)
            if self._large is large:  # still there: the byte limit did not abort this connection
                large.add_received(count)
        else:
            self._unread = memoryview(b"".join((self._unread, _RECEIVE_BUFFER.memory[:count])))
            self._begin_large()
        self._offer_frames()
        # Limit: stop reading from a client that sends faster than its requests are handled.
        if (
            self._has_complete_frame()
            and not self._wake()
            and not self._paused
            and len(self._unread) >= self._read_ahead_bytes
        ):
            self._paused = True
            self.transport.pause_reading()

    def _offer_frames(self) -> None:
        while (
            self._is_next_waiting() and self._has_complete_frame() and (self._large is not None or self._next_length())
        ):
            frame = self._take_frame()
            if self._aborted:
                return
            self._begin_large()
            if not self.offer(*frame):
                self._declined = frame

    def _is_next_waiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done() and self._declined is None

    def _wake(self) -> bool:
        """Wake the caller of ``next``; return whether there was one."""
        if self._waiter is None or self._waiter.done():
            return False
        self._waiter.set_result(None)
        return True

    def _next_length(self) -> int:
        """Return the length of the next frame; 0 if it is invalid."""
        size = int.from_bytes(self._unread[:LENGTH_BYTES], "big", signed=True)
        return size if 0 < size <= MAX_REQUEST_BYTES else 0

    def _begin_large(self) -> None:
        """Move an incomplete first frame into memory of its own."""
        if (
            self._large is None
            and len(self._unread) >= LENGTH_BYTES
            and (size := self._next_length()) > len(self._unread) - LENGTH_BYTES
        ):
            self._large = _PartialFrame(
                size, self._unread[LENGTH_BYTES:], RequestBytes(self._abort_over_limit), self._loop.time()
            )
            self._limits.grow(self._large.request_bytes, len(self._unread) - LENGTH_BYTES)
            self._unread = memoryview(b"")
            self._abort_if_late(self._large)

    def _abort_if_late(self, large: _PartialFrame) -> None:
        """End the connection once a frame comes too slowly.

        Invariant: the deadline follows the bytes that have come, never the length that was announced.
        """
        remaining = large.began + self._limits.time_for(large.count) - self._loop.time()
        if remaining <= 0:
            self.abort()
        else:
            large.timer = self._loop.call_later(remaining, self._abort_if_late, large)

    def _abort_over_limit(self) -> None:
        self._on_over_limit()
        self.abort()

    def _has_complete_frame(self) -> bool:
        if self._declined is not None:
            return True
        if self._large is not None:
            return self._large.is_complete
        return len(self._unread) >= LENGTH_BYTES

    async def next(self) -> Frame | None:
        """Return the next frame; None if the client is gone or too slow. Raises BadFrame for an invalid length."""
        while not self._has_complete_frame():
            if self._eof:
                return None
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = self._declined or self._take_frame()
        self._declined = None
        if self._aborted:  # by the byte limit, when the frame was counted
            return None
        self._begin_large()
        if self._paused and not self._has_complete_frame():
            self._paused = False
            self.transport.resume_reading()
        return frame

    @property
    def is_idle(self) -> bool:
        """Whether the next request is awaited and nothing of it has come."""
        return self._waiter is not None and self._large is None

    def _take_frame(self) -> Frame:
        self.has_requested, self.last_request_s = True, self._loop.time()
        if (large := self._large) is not None:
            self._large = None
            return large.octets(), large.request_bytes
        if not (size := self._next_length()):
            raise BadFrame("a request has no bytes, or too many")
        request_bytes = RequestBytes(self._abort_over_limit)
        frame, self._unread = self._unread[LENGTH_BYTES : LENGTH_BYTES + size], self._unread[LENGTH_BYTES + size :]
        self._limits.grow(request_bytes, size)
        request_bytes.complete = True
        return frame, request_bytes

    def send(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send the parts of a frame."""
        # Fast path: small answers of one turn of the loop share one system call.
        if len(parts) == 1:
            if not self._small:
                self._loop.call_soon(self._flush)
            self._small += parts[0]
            return
        self._flush()
        # Record batches are parts of their own and are not joined, which would copy them.
        for part in parts:
            self.transport.write(part)

    def _flush(self) -> None:
        if self._small and not self.transport.is_closing():
            self.transport.write(self._small)
        self._small = b""

    def pause_writing(self) -> None:
        self._drained = self._drained or self._loop.create_future()

    def resume_writing(self) -> None:
        full, self._drained = self._drained, None
        if full is not None and not full.done():
            full.set_result(None)

    @property
    def full(self) -> bool:
        """Whether the client has not received most of what was sent."""
        return self._drained is not None

    async def wait_until_drained(self, size: int) -> None:
        """Wait until the client has received most of what was sent. Raises TimeoutError if it is too slow."""
        if self._drained is not None:
            async with asyncio.timeout(self._limits.time_for(size)):
                await self._drained


class TlsFrames(asyncio.Protocol):
    """Decrypted bytes of a TLS connection, passed on to ``frames``.

    Workaround: asyncio's TLS transport loses bytes of a BufferedProtocol that arrive just before the end of the
    connection, and bytes that it holds while reading is paused. So this is a plain Protocol, which reads
    READ_AHEAD_BYTES before it pauses.
    """

    READ_AHEAD_BYTES = 512 << 10

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
        remaining = memoryview(data)
        while remaining:
            space = self._frames.get_buffer(len(remaining))
            count = min(len(space), len(remaining))
            space[:count] = remaining[:count]
            remaining = remaining[count:]
            self._frames.buffer_updated(count)


class _PartialFrame:
    """A large frame of which only a part has arrived."""

    def __init__(self, size: int, beginning: memoryview, request_bytes: RequestBytes, began: float) -> None:
        self.size, self.request_bytes, self.began, self.count = size, request_bytes, began, len(beginning)
        self.timer: asyncio.TimerHandle | None = None
        self._memory = _allocate(min(size, max(FIRST_BUFFER_BYTES, len(beginning))))
        self._memory[: len(beginning)] = beginning

    @property
    def is_complete(self) -> bool:
        return self.count == self.size

    def free_space(self) -> memoryview:
        if self.count == len(self._memory):
            # Limit: at most twice the bytes that arrived are reserved, whatever length was announced.
            previous, self._memory = self._memory, _allocate(min(self.size, 2 * self.count))
            self._memory[: self.count] = previous
        return self._memory[self.count :]

    def add_received(self, count: int) -> None:
        self.count += count
        if self.is_complete:
            self.request_bytes.complete = True
            self.stop_timer()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def octets(self) -> memoryview:
        return self._memory.toreadonly()


def _allocate(size: int) -> memoryview:
    """Return memory that is not set: pages take no memory before they are written."""
    return np.empty(size, np.uint8).data
