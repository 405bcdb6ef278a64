"""The event loop of servers, which survives a shortage of file descriptors.

Workaround: when ``accept`` finds no free descriptor, asyncio (up to 3.14) continues with the backlog, and asks to be
called again a second later 2,048 times: as many log lines when the socket is closed until then.
"""

from __future__ import annotations

import asyncio
from typing import Any

ACCEPTED_AT_ONCE = 1
"""Connections accepted per event: the loop ends after the first failure then. More of them are further events."""


class ServerLoop(asyncio.SelectorEventLoop):
    """A selector event loop that retries a failed ``accept`` once a second."""

    def _accept_connection(self, factory: Any, sock: Any, context: Any, server: Any, backlog: int, *times: Any) -> None:
        super()._accept_connection(factory, sock, context, server, ACCEPTED_AT_ONCE, *times)  # type: ignore[misc]

    def _start_serving(self, factory: Any, sock: Any, *more: Any, **named: Any) -> None:
        # The retry of a socket that was closed in between.
        if sock.fileno() >= 0:
            super()._start_serving(factory, sock, *more, **named)  # type: ignore[misc]
