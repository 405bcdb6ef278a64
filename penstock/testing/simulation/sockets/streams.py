"""Simulated TCP: a listening socket, connections with both of their ends, and resets.

A connection's bytes arrive in parts of any size; its answers find little room if the peer does not read them.
"""

from __future__ import annotations

import errno
import os
import random
import socket as system_socket
from collections import deque
from typing import Any

from penstock.testing.simulation.sockets.kernel import Address, Kernel

SEND_BUFFER_BYTES = 200
"""Room for answers that the peer has not read."""


class ListeningSocket:
    """The socket of a TCP listener, which belongs to the supervisor and outlives receivers."""

    family, type = system_socket.AF_INET, system_socket.SOCK_STREAM

    def __init__(self, kernel: Kernel, dice: random.Random, answer_bytes: int = SEND_BUFFER_BYTES) -> None:
        self.kernel, self.dice, self.answer_bytes = kernel, dice, answer_bytes
        self._descriptor = kernel.open(self)
        self._waiting: deque[ServerStream] = deque()
        self.streams: list[ServerStream] = []
        """All connections that a receiver accepted."""
        self.is_listening = False
        self.failing_accepts = 0

    def connect(self, address: Address) -> ServerStream:
        """Return a new connection of a peer. Raises ConnectionRefusedError."""
        if not self.is_listening:
            raise ConnectionRefusedError
        stream = ServerStream(self, address)
        self._waiting.append(stream)
        return stream

    def lose_receiver(self) -> None:
        """Reset all connections, as the kernel does when a receiver ends, and refuse others."""
        self.is_listening = False
        for stream in [*self._waiting, *self.streams]:
            # One that was closed in the same step may have messages and counts that were not published yet.
            if not stream.was_closed or stream.certain < len(stream.consumed):
                stream.died = True
            if not stream.is_closed:
                stream.close()
        self._waiting.clear()

    def lose_power(self) -> int:
        """Forget that messages of any connection were published; return 0, as connections begin at it."""
        self.lose_receiver()
        for stream in self.streams:
            stream.died, stream.certain = True, 0
        return 0

    @property
    def is_readable(self) -> bool:
        return bool(self._waiting)

    def fileno(self) -> int:
        return self._descriptor

    def accept(self) -> tuple[ServerStream, Address]:
        """Return the next connection. Raises OSError."""
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if self.failing_accepts:
            self.failing_accepts -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        stream = self._waiting.popleft()
        self.streams.append(stream)
        return stream, stream.address

    def listen(self, backlog: int) -> None:
        self.is_listening = True

    def setblocking(self, blocks: bool) -> None:
        """Do nothing: no call blocks."""

    def setsockopt(self, *_: Any) -> None:
        """Do nothing."""

    def getsockopt(self, level: int, option: int, size: int = 0) -> int:
        return 1 << 18


class ServerStream:
    """A connection: the receiver calls the methods of a socket, the peer calls ``peer_`` methods."""

    family, type = system_socket.AF_INET, system_socket.SOCK_STREAM

    def __init__(self, listening: ListeningSocket, address: Address) -> None:
        self.address = address
        self._listening = listening
        self._descriptor = listening.kernel.open(self)
        self._unread = bytearray()
        self.consumed = bytearray()
        """All bytes that the receiver has read."""
        self.certain = 0
        """The number of bytes that it had read before its last step."""
        self.was_closed = False
        """Whether it had closed the connection before its last step."""
        self.end_was_read = self.has_ended_in_order = False
        self.is_closed = self.died = self.has_left = self.is_reset = False
        self.closed_unread = False
        self._answers = bytearray()
        self.reads_answers = True

    # The receiver's end

    @property
    def is_readable(self) -> bool:
        return bool(self._unread) or self.has_left or self.is_reset

    def fileno(self) -> int:
        return -1 if self.is_closed else self._descriptor

    def setblocking(self, blocks: bool) -> None:
        """Do nothing: no call blocks."""

    def setsockopt(self, *_: Any) -> None:
        """Do nothing."""

    def recv_into(self, room: memoryview) -> int:
        """Read a part of what has arrived. Raises OSError."""
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self.is_reset:
            self.end_was_read = True
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if not self._unread:
            if not self.has_left:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self.end_was_read = True
            return 0
        dice = self._listening.dice
        size = min(len(room), len(self._unread))
        if dice.random() < 0.5:
            size = dice.randint(1, size)
        room[:size] = self._unread[:size]
        self.consumed += self._unread[:size]
        del self._unread[:size]
        return size

    def send(self, data: bytes) -> int:
        """Send as much of an answer as finds room. Raises OSError."""
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        room = self._listening.answer_bytes - len(self._answers)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._answers += data[:room]
        return min(len(data), room)

    def shutdown(self, how: int) -> None:
        """End both directions, as by SHUT_RDWR: what has arrived can still be read."""
        self.has_left = True

    def close(self) -> None:
        """Close; unread bytes reset the connection."""
        if not self.is_closed:
            self.is_closed = True
            self.closed_unread = bool(self._unread)
            self._listening.kernel.close(self._descriptor)

    # The peer's end

    def peer_send(self, data: bytes) -> None:
        """Send bytes. Raises ConnectionResetError if the receiver has closed."""
        if self.is_closed or self.is_reset:
            raise ConnectionResetError
        self._unread += data

    def peer_read(self) -> bytes:
        """Return the answers that have arrived."""
        answers = bytes(self._answers)
        self._answers.clear()
        return answers

    def peer_close(self) -> None:
        """End the connection in order."""
        self.has_left = self.has_ended_in_order = True

    def peer_reset(self) -> None:
        """Reset: what the receiver has not read is lost."""
        self.is_reset = True
        self._unread.clear()
