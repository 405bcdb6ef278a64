"""Limits of HTTP servers: connections, bytes of request bodies in flight, and the time of slow clients."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import PenstockError
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.process.servers.in_flight_bytes import InFlightBytes, RequestBytes

REQUEST_TIMEOUT_S = 30.0
CONNECTION, BODY, SLOW, CHUNKS = "connection", "body", "slow", "chunks"
"""Reasons of refusals."""
EVENTS_PER_TURN = 256
"""Limit: parts of a request parsed before other connections have their turn; h11 takes 30 us for each, so 8 ms."""
FREE_CHUNKS, MIN_AVERAGE_CHUNK_BYTES = 4096, 32
"""Limit: a body may have more chunks than FREE_CHUNKS only if they have this size on average.

A chunk of one byte costs as much to parse as one of 16 KiB.
"""
TINY_CHUNKS_TEXT = f"Send the body in larger chunks: {FREE_CHUNKS} may be smaller than {MIN_AVERAGE_CHUNK_BYTES} bytes"
MAX_HEAD_BYTES = 64 << 10
PACED = "penstock.parser"
"""Key of a connection's PacedParser in the state of its requests' scopes."""
_ABSOLUTE = re.compile(r"https?://[^/]*", re.IGNORECASE)
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
        if match := _ABSOLUTE.match(scope["path"]):
            # Workaround: uvicorn passes on the address of a request that was meant for a proxy (RFC 9112, 3.2.2) as
            # its path (as of 0.54, Kludex/uvicorn#3097).
            path = scope["path"][match.end() :] or "/"
            scope = {**scope, "path": path, "raw_path": path.encode("latin-1", "replace")}
        body = _LimitedBody(receive, send, self, scope["state"].get(PACED) if "state" in scope else None)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            self.in_flight.release(body.bytes)


class _LimitedBody:
    """The body of one request; ``bytes.complete`` is set when it ended or was refused."""

    def __init__(self, receive: Receive, send: Send, bodies: LimitedBodies, parser: PacedParser | None) -> None:
        self._receive, self._send, self._bodies, self._parser = receive, send, bodies, parser
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
        if self._parser is not None and self._parser.has_tiny_chunks and not self._refused:
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
        await self._send(message)


class PacedParser(h11.Connection):
    """HTTP/1.1 parser that parses a limited number of parts per turn of the event loop, and counts small chunks."""

    def __init__(self, max_incomplete_bytes: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_bytes)
        self._events_left = EVENTS_PER_TURN
        self._chunks = self._body_bytes = 0

    @property
    def has_tiny_chunks(self) -> bool:
        """Whether the current request's chunks are more, and smaller, than allowed."""
        return self._chunks > FREE_CHUNKS and self._body_bytes < self._chunks * MIN_AVERAGE_CHUNK_BYTES

    @property
    def is_out_of_turn(self) -> bool:
        """Whether parsing stopped only because the turn is over."""
        return self._events_left == 0

    def begin_turn(self) -> None:
        """Allow the next EVENTS_PER_TURN events."""
        self._events_left = EVENTS_PER_TURN

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self._events_left == 0:
            return h11.NEED_DATA
        if self.their_state is h11.IDLE:
            self._skip_empty_lines()
        self._events_left -= 1
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._body_bytes += len(event.data)
        elif isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
        elif event is h11.NEED_DATA or event is h11.PAUSED:
            self._events_left += 1  # nothing was parsed: the turn is not over
        return event

    def _skip_empty_lines(self) -> None:
        """Remove the empty lines before a request, as RFC 9112 (section 2.2) advises and nginx does.

        Workaround: h11 0.16 refuses them, and has no public way to take bytes out of its buffer.
        """
        waiting = bytes(self._receive_buffer)
        # Limit: the time for a head continues, so empty lines do not keep a connection open.
        self._receive_buffer.maybe_extract_at_most(len(waiting) - len(waiting.lstrip(b"\r\n")))


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 connection that closes when its client is silent for too long or there are too many connections.

    It times the head of a request and the unread rest of an answered one; ``LimitedBodies`` times bodies that are read.
    It parses in turns, so that one connection does not hold up the others.
    Workaround: uvicorn has no limit for heads and no hook, so this subclasses its H11Protocol (as of 0.54).
    """

    limits = HttpLimits()
    max_half_closed = sys.maxsize
    """Limit: bytes that a client has sent since its last answer, for it to get one although it has ended its side."""
    conn: PacedParser

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = PacedParser(self.config.h11_max_incomplete_event_size or MAX_HEAD_BYTES)
        self.app_state = {**self.app_state, PACED: self.conn}
        self._next_turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_received = self.loop.time()
        self._request_bytes, self._is_half_closed = 0, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_idle()
        if len(self.connections) > self.limits.connections:
            self._close_idlest()

    def _close_idlest(self) -> None:
        """Close the connection that is silent longest and has no request in progress, or else this one."""
        idle = [
            connection
            for connection in self.connections
            if isinstance(connection, LimitedProtocol) and connection.is_idle
        ]
        victim = min(idle, key=lambda connection: connection._last_received, default=self)
        self.limits.refused[CONNECTION] += 1
        text = "HTTP connection closed: more than %d are open (%s)"
        _LOGGER.warning(text, self.limits.connections, self.limits.keys[1])
        victim.transport.abort()
        victim.connections.discard(victim)

    @property
    def is_idle(self) -> bool:
        """No request is being read or answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        self._last_received = self.loop.time()
        self._request_bytes += len(data)
        super().data_received(data)
        self._watch_idle()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open while a complete request waits for its answer, as nginx and Go's server do.

        RFC 9112 (section 9.6) lets a client end its side behind its last request, as ``nc -N`` does. A client that has
        disconnected looks the same, so a response that has begun is ended. TLS has no half-closed connections.
        """
        self._is_half_closed = (
            self.transport.get_extra_info("sslcontext") is None
            and self._request_bytes <= self.max_half_closed
            and self._has_unanswered_request()
            and not (self.cycle is not None and not self.is_idle and self.cycle.response_started)
        )
        return self._is_half_closed

    def _has_unanswered_request(self) -> bool:
        return self._next_turn is not None or not (self.is_idle or self.cycle.more_body)

    def on_response_complete(self) -> None:
        self._request_bytes = 0
        super().on_response_complete()
        self._close_if_all_is_answered()

    def _close_if_all_is_answered(self) -> None:
        if self._is_half_closed and not self._has_unanswered_request():
            self.transport.close()

    def handle_events(self) -> None:
        if self._next_turn is not None:
            return  # Order: what has come now is parsed behind what waits for the next turn.
        self.conn.begin_turn()
        super().handle_events()
        if self.conn.is_out_of_turn and not self.transport.is_closing():
            # Limit: nothing more is read into h11's buffer before this is parsed.
            self.transport.pause_reading()
            self._next_turn = self.loop.call_soon(self._go_on_parsing)

    def _go_on_parsing(self) -> None:
        self._next_turn = None
        if self.transport.is_closing():
            return
        if not self.flow.read_paused:
            self.transport.resume_reading()
        self.handle_events()
        self._close_if_all_is_answered()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._stop_timer()

    def _watch_idle(self) -> None:
        answered = self.cycle is not None and self.is_idle
        if self.conn.their_state is not h11.IDLE and not answered:
            self._stop_timer()
        elif self._timer is None:
            # One timer from the first to the last byte of a head, so a client cannot extend it by sending single bytes.
            self._timer = self.loop.call_later(self.limits.timeout, self._give_up)

    def _give_up(self) -> None:
        self.limits.refused[SLOW] += 1
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited_protocol(limits: HttpLimits) -> type[LimitedProtocol]:
    """Return a protocol class with these limits; uvicorn creates the instances itself."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
