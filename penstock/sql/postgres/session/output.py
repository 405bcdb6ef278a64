"""Messages on their way to a client, sent in large pieces."""

from __future__ import annotations

from typing import Protocol

BUFFERED_BYTES = 1 << 16


class Wire(Protocol):
    """The bytes of one connection."""

    def receive(self, count: int, timeout_s: float | None) -> bytes:
        """Return the next bytes, empty at the end. Raises TimeoutError, OSError."""

    def send(self, content: bytes | memoryview) -> None:
        """Send all bytes. Raises OSError."""

    def is_closed(self) -> bool:
        """Report whether the client has closed the connection."""


class Output:
    """Messages that are not sent yet. Owned by one session."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._messages = bytearray()

    def send(self, content: bytes | memoryview) -> None:
        """Add a message."""
        self._messages += content

    def flush(self) -> None:
        """Send all messages. Raises OSError."""
        if self._messages:
            out, self._messages = self._messages, bytearray()
            self._wire.send(memoryview(out))

    def flush_full(self) -> None:
        """Send all messages if they are many. Raises OSError."""
        if len(self._messages) > BUFFERED_BYTES:
            self.flush()
