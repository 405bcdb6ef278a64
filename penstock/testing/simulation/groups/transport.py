"""The daemon's end of a connection without sockets, for the real ``Frames`` and ``Connection``."""

from __future__ import annotations

import asyncio

from penstock.server.kafka.connection.frames import Frames
from penstock.testing.simulation.machine import SimulatedFiles


class SimulatedTransport(asyncio.Transport):
    """The daemon's end of a connection. ``arriving`` is on its way to the daemon, ``sent`` to the client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, files: SimulatedFiles) -> None:
        super().__init__({"peername": ("host", 1)})
        self._loop, self._files = loop, files
        self._frames: Frames | None = None
        self._is_paused = self._has_client_ended = self._is_closed = False
        self.arriving, self.sent = bytearray(), bytearray()

    def accept(self, frames: Frames) -> None:
        """Begin to serve the connection; called on the loop."""
        self._frames = frames
        frames.connection_made(self)

    def deliver(self, most: int) -> None:
        """Let up to ``most`` bytes arrive, or the client's end behind the last ones."""
        self._loop.call_soon(self._receive, most)

    def _receive(self, most: int) -> None:
        if self._frames is None or self._is_paused or self._is_closed:
            return
        if self.arriving:
            buffer = self._frames.get_buffer(-1)
            count = min(len(buffer), len(self.arriving), most)
            buffer[:count] = self.arriving[:count]
            del self.arriving[:count]
            try:
                self._frames.buffer_updated(count)
            except OSError:
                self.abort()  # as asyncio does
        elif self._has_client_ended and not self._frames.eof_received():
            self.close()

    def end_client(self, *, is_reset: bool) -> None:
        """End the client's side; with ``is_reset`` nothing more of it arrives."""
        self._has_client_ended = True
        if is_reset:
            self.arriving.clear()
            self.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        # Kafka's clients get nothing of a dead process that its kernel has not.
        if not (self._is_closed or self._files.is_dead):
            self.sent += data

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closed and self._frames is not None:
            self._loop.call_soon(self._frames.connection_lost, None)
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
