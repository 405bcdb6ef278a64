"""Limits of HTTP servers, and the middleware that limits bytes in flight and time of request bodies."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.process.servers.in_flight_bytes import InFlightBytes, RequestBytes

if TYPE_CHECKING:
    from penstock.process.servers.http_connection import LimitedProtocol

REQUEST_TIMEOUT_S = 30.0
CONNECTION, BODY, SLOW, CHUNKS = "connection", "body", "slow", "chunks"
"""Reasons of refusals."""
FREE_CHUNKS, MIN_AVERAGE_CHUNK_BYTES = 4096, 32
"""Limit: a body may have more chunks than FREE_CHUNKS only if they have this size on average.

A chunk of one byte costs as much to parse as one of 16 KiB.
"""
TINY_CHUNKS_TEXT = f"Send the body in larger chunks: {FREE_CHUNKS} may be smaller than {MIN_AVERAGE_CHUNK_BYTES} bytes"
CONNECTION_KEY = "penstock.connection"
"""Key of a connection's LimitedProtocol in the state of its requests' scopes."""
_LOGGER = logging.getLogger(__name__)


class BodyTooSlow(PenstockError, TimeoutError):
    """The body of a request did not arrive in time."""


class TinyChunks(PenstockError, ValueError):
    """The body of a request comes in very many very small chunks."""


class TooManyBodies(PenstockError, RuntimeError):
    """The bodies in flight exceed the limit."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one server: ``max_bytes`` of bodies in flight, ``timeout`` in seconds for a head or a small body.

    ``refused`` counts refusals by reason: ``connection``, ``body``, ``slow``, ``chunks``. ``keys`` are the
    configuration keys that a log line names for bodies, connections and times. ``rpc_connections`` are the limits of
    servers of gRPC in the same process, by protocol, which have the same number of connections each.
    """

    max_bytes: int = 256 << 20
    timeout: float = REQUEST_TIMEOUT_S
    connections: int = 1000
    keys: tuple[str, str, str] = ("log.max_bodies", "log.max_connections", "log.request_timeout")
    refused: Counter[str] = field(default_factory=Counter)
    rpc_connections: dict[str, ConnectionLimit] = field(default_factory=dict)


class LimitedBodies:
    """Middleware that limits the request bodies which the application reads.

    Over the limit the largest incomplete body is refused (503); a body that arrives too slowly is refused, too (408).
    ``translate`` maps BodyTooSlow and TooManyBodies to the application's own errors.
    """

    def __init__(
        self, app: ASGIApp, limits: HttpLimits, translate: Callable[[Exception], Exception] = lambda error: error
    ) -> None:
        self._app, self.limits, self.translate = app, limits, translate
        self.in_flight = InFlightBytes(limits.max_bytes, limits.timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _LimitedBody(receive, send, self, scope["state"].get(CONNECTION_KEY) if "state" in scope else None)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            self.in_flight.release(body.bytes)


class _LimitedBody:
    """The body of one request; ``bytes.complete`` is set when it ended or was refused."""

    def __init__(self, receive: Receive, send: Send, bodies: LimitedBodies, connection: LimitedProtocol | None) -> None:
        self._receive, self._send, self._bodies, self._connection = receive, send, bodies, connection
        self._started_at = asyncio.get_running_loop().time()
        self._pending_receive: asyncio.Timeout | None = None
        self._refused: Exception | None = None
        self.bytes = RequestBytes(self._give_up)

    async def receive(self) -> Message:
        """Return the next part. Raises BodyTooSlow, TooManyBodies and TinyChunks."""
        if self._refused:
            raise self._refused
        if self.bytes.complete:
            return await self._receive()
        deadline = self._started_at + self._bodies.in_flight.time_for(self.bytes.size)
        try:
            async with asyncio.timeout_at(deadline) as self._pending_receive:
                message = await self._receive()
        except TimeoutError:
            self._pending_receive = None
            if not self._refused:
                self._bodies.limits.refused[SLOW] += 1
                _LOGGER.warning("HTTP request refused: its body arrives too slowly (%s)", self._bodies.limits.keys[2])
                self._refuse(self._bodies.translate(BodyTooSlow("The body of the request did not arrive in time")))
            assert self._refused
            raise self._refused from None
        self._pending_receive = None
        self.bytes.complete = not message.get("more_body", False)
        self._bodies.in_flight.grow(self.bytes, len(message.get("body", b"")))
        if self._connection is not None and self._connection.has_tiny_chunks and not self._refused:
            self._bodies.limits.refused[CHUNKS] += 1
            self._refuse(self._bodies.translate(TinyChunks(TINY_CHUNKS_TEXT)))
        if self._refused:
            raise self._refused
        return message

    def _give_up(self) -> None:
        bodies = self._bodies
        bodies.limits.refused[BODY] += 1
        size, key = bodies.in_flight.size, bodies.limits.keys[0]
        _LOGGER.warning("HTTP request refused: %d bytes of bodies are in flight (%s)", size, key)
        self._refuse(bodies.translate(TooManyBodies("Too many request bodies at once; retry later")))

    def _refuse(self, error: Exception) -> None:
        """Stop reading, also when a read is pending."""
        self._refused, self.bytes.complete = error, True
        if self._pending_receive is not None:
            # The reader is suspended in receive(): an expired timeout wakes it without cancelling its task.
            self._pending_receive.reschedule(0)

    async def send(self, message: Message) -> None:
        """Send a part of the response; that of a refused request closes the connection."""
        if self._refused and message["type"] == "http.response.start":
            # The rest of the body is never read, so the connection cannot carry another request.
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        if self._connection is not None:
            self._connection.frame_for_http_1_0(message)
        await self._send(message)
