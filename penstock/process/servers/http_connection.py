"""HTTP/1.1 connections of a server: their number, the time and size of heads, and turns of parsing."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import weakref
from typing import Any, cast

from httptools import HttpRequestParser
from starlette.types import Message
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock.process.servers.http_limits import (
    CONNECTION,
    CONNECTION_KEY,
    FREE_CHUNKS,
    MIN_AVERAGE_CHUNK_BYTES,
    SLOW,
    HttpLimits,
)
from penstock.process.servers.lingering_transport import LingeringTransport

EVENTS_PER_TURN = 4096
"""Limit: pieces and chunks parsed before other connections have their turn; each takes about 1 us, so 4 ms."""
MAX_HEAD_BYTES = 64 << 10
"""Limit: of a head, and of the bytes of a chunked body between its data, as of extensions and trailers."""
PIECE_BYTES = 16 << 10
"""Limit: of a chunked body parsed at once; it has up to 2,700 chunks."""
LAST_REQUEST_S = 0.3
"""Silence behind which a connection is closed when the server ends.

A request that is on its way would be lost by a reset, and a proxy does not repeat a POST: it answers 502. It is as
unlikely on a connection that was silent before the end, so idle ones delay no stop.
"""
BLANK_LINE = b"\r\n\r\n"
INVALID_TEXT = "Invalid HTTP request received."
_METHODS = rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE) "
_TARGET = rb"(?:/|\*|(?i:https?://))[!\"$-~]* "
_READ_LINE = re.compile(_METHODS + _TARGET + rb"HTTP/1\.[01]\r\n")
"""Request line that is read; the parser takes more, such as RTSP/1.0 and several spaces."""
_REQUEST_LINE = re.compile(rb"[!#-'*+.^-`|~\w-]+ [!\"$-~]+ HTTP/(\d\.\d)\r\n")
_AUTHORITY = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_SPACE_AT_END = re.compile(rb"(?<=[^ \t\r\n])[ \t]+(?=\r\n)")
"""Space behind a value; a line of space alone stays, as it would become the end of the head."""
_LOGGER = logging.getLogger(__name__)


class _Flow(FlowControl):
    """Flow control that does not resume reading while ``is_held``: received bytes wait to be parsed."""

    is_held = False

    def resume_reading(self) -> None:
        if self.is_held:
            self.read_paused = False
        else:
            super().resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 connection that closes when its client is silent for too long or there are too many connections.

    It times the head of a request and the unread rest of an answered one; ``LimitedBodies`` times bodies that are read.
    It parses in turns, so that one connection does not hold up the others.
    Invariant: the parser gets bytes up to the end of a message at most, and more only when that request is answered.
    Workaround: uvicorn has no limit for heads and no hook, so this subclasses its HttpToolsProtocol (as of 0.54).
    """

    limits = HttpLimits()
    max_half_closed = sys.maxsize
    """Limit: bytes that a client has sent since its last answer, for it to get one although it has ended its side."""
    flow: _Flow

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app_state = {**self.app_state, CONNECTION_KEY: weakref.proxy(self)}
        self._unparsed = bytearray()
        self._in_head, self._body_left = True, 0
        self._is_chunked = self._ends_with_connection = False
        self._chunks = self._body_bytes = self._bytes_without_data = self._events = 0
        self._next_turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_active = self.loop.time()
        self._request_bytes, self._is_half_closed, self._is_refused = 0, False, False
        self._is_ending = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._lingering = LingeringTransport(transport, weakref.proxy(self))
        self.transport = cast(asyncio.Transport, self._lingering)
        self.flow = _Flow(self.transport)
        self._watch_idle()
        if len(self.connections) > self.limits.connections:
            self._close_idlest()

    @property
    def is_client_sending(self) -> bool:
        """More bytes may come behind the parsed ones."""
        return bool(self._unparsed) or not self._in_head or self._is_refused

    def ignore_input(self) -> None:
        """End the request that is being read, and release its body."""
        self._unparsed.clear()
        if self.cycle is not None:
            self.cycle.body.clear()
        self._stop_timer()
        self._unset_keepalive_if_required()
        if not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _close_idlest(self) -> None:
        """Close a lingering connection, or the one that is silent longest without a request, or else this one."""
        open_connections = [connection for connection in self.connections if isinstance(connection, LimitedProtocol)]
        victim = min(
            (connection for connection in open_connections if connection.is_idle or connection._lingering.is_lingering),
            key=lambda connection: (not connection._lingering.is_lingering, connection._last_active),
            default=self,
        )
        if not victim._lingering.is_lingering:  # the refusal of a lingering one is counted already
            self.limits.refused[CONNECTION] += 1
            text = "HTTP connection closed: more than %d are open (%s)"
            _LOGGER.warning(text, self.limits.connections, self.limits.keys[1])
        victim.transport.abort()
        victim.connections.discard(victim)

    @property
    def is_idle(self) -> bool:
        """No request is being read or answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_between_requests(self) -> bool:
        """The last request is answered, and a head comes next."""
        return self._in_head and self.is_idle

    @property
    def _awaits_answer(self) -> bool:
        """A complete request is being answered."""
        return not (self.is_idle or self.cycle.more_body)

    @property
    def has_tiny_chunks(self) -> bool:
        """Whether the current request's chunks are more, and smaller, than allowed."""
        return self._chunks > FREE_CHUNKS and self._body_bytes < self._chunks * MIN_AVERAGE_CHUNK_BYTES

    def data_received(self, data: bytes) -> None:
        if self._lingering.is_lingering:
            return
        self._last_active = self.loop.time()
        self._request_bytes += len(data)
        self._unset_keepalive_if_required()
        is_body = not (self._unparsed or self._in_head or self._is_chunked or self.transport.is_closing())
        if is_body and len(data) <= self._body_left:
            # Fast path: saves two copies of a large body.
            self._body_left -= len(data)
            super().data_received(data)
            self._watch_idle()
        else:
            self._unparsed += data
            self._parse()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open while a complete request waits for its answer, as nginx and Go's server do.

        RFC 9112 (section 9.6) lets a client end its side behind its last request, as ``nc -N`` does. A client that has
        disconnected looks the same, so a response that has begun is ended. TLS has no half-closed connections.
        """
        self._is_half_closed = (
            not self._lingering.is_lingering
            and self.transport.get_extra_info("sslcontext") is None
            and self._request_bytes <= self.max_half_closed
            and self._has_unanswered_request()
            and not (self.cycle is not None and not self.is_idle and self.cycle.response_started)
        )
        return self._is_half_closed

    def _has_unanswered_request(self) -> bool:
        return self._next_turn is not None or self._awaits_answer

    def on_response_complete(self) -> None:
        self._request_bytes, self._last_active = 0, self.loop.time()
        super().on_response_complete()
        self._parse()
        self._close_if_all_is_answered()

    def _close_if_all_is_answered(self) -> None:
        if self._is_half_closed and not self._has_unanswered_request():
            self.transport.close()

    def _parse(self) -> None:
        """Parse received bytes until a request waits for its answer or the turn is over."""
        if self._next_turn is not None:
            return  # Order: what has come now is parsed behind what waits for the next turn.
        self._events = 0
        while self._unparsed and not (self._awaits_answer or self.transport.is_closing()):
            if self._events >= EVENTS_PER_TURN:
                self._next_turn = self.loop.call_soon(self._go_on_parsing)
                break
            if not (piece := self._next_piece()):
                break
            self._events += 1
            super().data_received(piece)
            if self._in_head and self._is_chunked:
                # Workaround: behind a trailer "Connection: close" the parser ignores all requests (httptools 0.9).
                self._is_chunked, self.parser = False, HttpRequestParser(self)
        # Limit: nothing more is read before this is parsed.
        is_held = bool(self._unparsed) and self._has_unanswered_request()
        if is_held:
            self.transport.pause_reading()
        elif self.flow.is_held and not self.flow.read_paused:
            self.transport.resume_reading()
        self.flow.is_held = is_held
        self._watch_idle()  # also where a later turn has stopped the timer between requests

    def _go_on_parsing(self) -> None:
        self._next_turn = None
        self._parse()
        self._close_if_all_is_answered()

    def _next_piece(self) -> bytes:
        """Remove and return the bytes that are parsed next; none if more of them must come before."""
        if self._in_head:
            return self._next_head()
        if not self._is_chunked:
            piece = self._pop_bytes(self._body_left)
            self._body_left -= len(piece)
            return piece
        # A chunked body ends with an empty line, so that no piece has bytes of the next request.
        end = self._unparsed.find(BLANK_LINE, 0, PIECE_BYTES) + len(BLANK_LINE)
        if end < len(BLANK_LINE):
            size = min(len(self._unparsed), PIECE_BYTES)
            last = self._unparsed[max(size - 3, 0) : size]
            end = size - next((length for length in (3, 2, 1) if last.endswith(BLANK_LINE[:length])), 0)
        self._bytes_without_data += end
        if self._bytes_without_data > MAX_HEAD_BYTES:
            self.refuse(400, INVALID_TEXT)
            return b""
        return self._pop_bytes(end)

    def _next_head(self) -> bytes:
        unparsed = self._unparsed
        if unparsed and unparsed[0] in b"\r\n":
            # Empty lines before a request are skipped, as RFC 9112 (section 2.2) advises and nginx does.
            # Limit: the time for a head continues, so empty lines do not keep a connection open.
            del unparsed[: len(unparsed) - len(unparsed.lstrip(b"\r\n"))]
        end = unparsed.find(BLANK_LINE, 0, MAX_HEAD_BYTES)
        if end >= 0:
            head = self._pop_bytes(end + len(BLANK_LINE))
            if status := _refusal_of(head):
                self.refuse(status, INVALID_TEXT)
                return b""
            if b"\t" in head:
                # Workaround: the parser takes a tab behind a value for a part of it (httptools 0.9).
                head = _SPACE_AT_END.sub(b"", head)
            # Workaround: the parser ends a request to upgrade behind its head and loses its body, such as that of
            # the first request of Java's client. RFC 9110 (section 7.8) lets a server ignore Upgrade.
            return _UPGRADE.sub(b"\r\nx-upgrd:", head)
        line = unparsed[: unparsed.find(b"\n", 0, MAX_HEAD_BYTES) + 1]
        if len(unparsed) >= MAX_HEAD_BYTES:
            self.refuse(431 if line else 414, f"The head of the request is larger than {MAX_HEAD_BYTES >> 10} KiB.")
        elif (unparsed and unparsed[0] <= ord(" ")) or (line and not line.endswith(b"\r\n")):
            self.refuse(400, INVALID_TEXT)  # at once, as its end may never come
        return b""

    def _pop_bytes(self, size: int) -> bytes:
        piece = bytes(memoryview(self._unparsed)[:size])
        del self._unparsed[:size]
        return piece

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, text: str) -> None:
        """Answer bytes that are no request which the server reads, and close the connection."""
        if not self.is_between_requests and self.cycle.response_started:
            self.transport.close()  # the client would take it for a part of the answer, or for the next one
            return
        head = f"content-type: text/plain\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self._is_refused = True
        self.transport.write(STATUS_LINE[status] + head.encode() + text.encode())
        self.transport.close()

    def on_message_begin(self) -> None:
        if self._awaits_answer:
            raise ValueError("a second request in one piece")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # and no trailer
            # Workaround: the parser leaves the space behind a value, which is no part of it.
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begin the request. Raises ValueError, which the parser reports, where RFC 9112 demands a refusal."""
        hosts, codings, self._body_left = 0, [], 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                self._body_left = int(value)
            elif name == b"transfer-encoding":
                codings.append(value.lower())
        version = self.parser.get_http_version()
        is_valid = hosts == 1 and codings in ([], [b"chunked"]) if version == "1.1" else hosts < 2 and not codings
        if not is_valid:
            raise ValueError(INVALID_TEXT)
        if version == "1.0":
            self.expect_100_continue = False
        if match := _AUTHORITY.match(self.url):
            # A request that was meant for a proxy (RFC 9112, 3.2.2).
            path = self.url[match.end() :]
            self.url = path if path.startswith(b"/") else b"/" + path
        super().on_headers_complete()
        if self._is_ending:
            self.cycle.keep_alive = False
        self._in_head, self._is_chunked = False, bool(codings)
        self._chunks = self._body_bytes = self._bytes_without_data = 0
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._bytes_without_data = 0
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        self._chunks += 1
        self._events += 1

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def frame_for_http_1_0(self, message: Message) -> None:
        """Let the connection's end be that of a response without a length to HTTP/1.0, which has no chunks.

        Workaround: uvicorn sends chunks (as of 0.54).
        """
        if self.cycle.scope["http_version"] != "1.0":
            return
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            self._ends_with_connection = b"content-length" not in names
        if self._ends_with_connection:
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = len(message.get("body", b""))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Workaround: uvicorn lets it run, with the connection's memory, after a reset (as of 0.54).
        self._unset_keepalive_if_required()
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._stop_timer()

    def shutdown(self) -> None:
        """Close the connection behind its current or next request, or once it has been silent for LAST_REQUEST_S."""
        self._is_ending, self._lingering.linger_s = True, LAST_REQUEST_S
        silent_at = self._last_active + LAST_REQUEST_S
        if self.is_idle and not self.transport.is_closing() and silent_at > self.loop.time():
            self.loop.call_at(silent_at, super().shutdown)
        else:
            super().shutdown()

    def _watch_idle(self) -> None:
        has_timer = self._timer is not None or self.timeout_keep_alive_task is not None
        if self.is_idle and not has_timer and not self.transport.is_closing():
            # One timer from the first to the last byte of a head, so a client cannot extend it by sending single bytes.
            self._timer = self.loop.call_later(self.limits.timeout, self._give_up)

    def _give_up(self) -> None:
        self.limits.refused[SLOW] += 1
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _refusal_of(head: bytes) -> int:
    """Return the status that refuses a request by its first line (RFC 9110, 15.6); 0 if it is read."""
    if _READ_LINE.match(head):
        return 0
    match = _REQUEST_LINE.match(head)
    if match is None:
        return 400
    if match[1] not in (b"1.1", b"1.0"):
        return 505
    return 400 if re.match(_METHODS, head) else 501


def limited_protocol(limits: HttpLimits) -> type[LimitedProtocol]:
    """Return a protocol class with these limits; uvicorn creates the instances itself."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
