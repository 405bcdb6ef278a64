"""Close of a connection whose client still sends, without the loss of the last answer."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

LINGER_S = 5.0
"""Limit: time that a client has to read the last answer and end its side; as nginx (lingering_timeout)."""


class Connection(Protocol):
    """User of a transport."""

    @property
    def is_client_sending(self) -> bool:
        """Whether more bytes may come."""

    def ignore_input(self) -> None:
        """Use no bytes from now on, although they are received."""


class LingeringTransport:
    """Transport whose ``close`` ends only its own side if the client still sends, whose bytes are discarded.

    The kernel answers bytes that come behind a close with a reset. A client that gets it before it has read the answer
    loses that, and a proxy answers 502 in its place. A second ``close`` is final. TLS has no half-closed connections.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport, self._connection = transport, connection
        self.is_lingering, self.linger_s = False, LINGER_S
        # Fast path: called several times for each request; these methods are as fast as those of the transport.
        self.write, self.is_closing = transport.write, transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """End the connection, at the latest ``linger_s`` later."""
        transport = self._transport
        if self.is_closing() or not transport.can_write_eof() or not self._connection.is_client_sending:
            transport.close()
            return
        self.is_lingering, self.is_closing = True, lambda: True
        self._connection.ignore_input()
        try:
            transport.write_eof()
        except OSError:  # the client has reset the connection, and the event loop has not seen that
            transport.close()
            return
        transport.resume_reading()
        asyncio.get_running_loop().call_later(self.linger_s, transport.close)
