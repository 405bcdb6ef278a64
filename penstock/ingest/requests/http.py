"""Receiver of an HTTP listener: one port, protocols by path; each request is answered once the log has its messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import parse_qsl

import uvicorn
from starlette.types import Receive, Scope, Send

from penstock.config import ListenerConfig
from penstock.config.nearest_name import nearest
from penstock.handover.buffer import HandlerPosition
from penstock.handover.writer import FrameWriter
from penstock.ingest.networks import networks_of
from penstock.ingest.requests.body_decompression import decompress, decompress_if_small
from penstock.ingest.requests.large_requests import INLINE_BYTES, LEFT, ClientLeft, LargeRequests
from penstock.ingest.requests.request_writer import INCOMPLETE, Sender
from penstock.ingest.requests.submissions import Submissions
from penstock.ingest.requests.tokens import check_token
from penstock.ingest.sockets import listen
from penstock.ingest.tls import ListenerTls, TlsStreams
from penstock.process.kernel import limit_connections, plain_address, raise_file_limit
from penstock.process.servers.event_loop import ServerLoop
from penstock.process.servers.http_connection import LimitedProtocol
from penstock.process.servers.http_limits import (
    CHUNKS,
    BodyTooSlow,
    HttpLimits,
    LimitedBodies,
    TinyChunks,
    TooManyBodies,
)
from penstock.wire.request_protocols import PATHS, REQUEST_PROTOCOLS
from penstock.wire.requests import (
    JSON,
    OVERSIZE,
    SYNTAX,
    Answer,
    Received,
    Refused,
    Request,
    RequestProtocol,
    decoded_path,
    find_protocol,
    is_open,
    json_answer,
)
from penstock.wire.unpacking import content_encoding

FINISH_TIME_S = 3.0
"""Time that requests in flight have when the receiver ends."""
MAX_NAMED_PATH = 200
"""Limit: of a path that is compared with the existing ones."""
KEEP_ALIVE_S = 75
"""Default silence of a connection between two requests."""
LIMIT_KEYS = ("listener.max_unfinished", "listener.max_connections", "listener.request_timeout")
ENCODING = "content-encoding"
_SLASHES = re.compile("/{2,}")
_LOGGER = logging.getLogger(__name__)


class HttpReceiver:
    """Receiver of one HTTP listener; runs in the receiver's only thread. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._submissions = Submissions(listener, writer, readers, wake)
        self._tls = TlsStreams(listener, self._submissions.count_refusal) if listener.tls_cert else None
        self._loop = ServerLoop()
        self._sock, self._large = sock, LargeRequests()
        # The process has other descriptors too: sockets, mapped files, its log.
        connections = limit_connections(
            listener.max_connections, raise_file_limit() // 2, f"listener.{listener.name}.max_connections"
        )
        limits = HttpLimits(listener.max_unfinished, listener.request_timeout, connections, LIMIT_KEYS)
        app = LimitedBodies(
            RequestApp(listener, self._submissions, [make() for make in REQUEST_PROTOCOLS], self._large), limits
        )
        protocol = admitting_protocol(listener, limits, self._tls, self._submissions.count_refusal)
        self._server = _Uvicorn(_config(app, protocol, listener, self._tls))
        self._served: asyncio.Task[None] | None = None
        # Order: last, as connections are refused if the receiver cannot start.
        listen(sock, listener)

    def take_over(self) -> None:
        """Start to accept requests: the requests of a predecessor ended with it, and their senders retry."""
        self._served = self._loop.create_task(self._server.serve(sockets=[self._sock.dup()]))

    def receive(self, timeout: float) -> None:
        """Serve for ``timeout`` seconds."""
        self._loop.run_until_complete(asyncio.sleep(timeout))
        if self._served is not None and self._served.done():
            self._served.result()
            raise RuntimeError("the server ended by itself")

    def tick(self) -> None:
        """Load renewed certificates and publish pending counts; called about every second."""
        if self._tls:
            self._tls.refresh()
        self._submissions.tick()

    def finish(self) -> None:
        """Stop accepting connections and answer the requests in flight."""
        # Order: the server first; the thread of large requests still has to finish their answers.
        self._server.should_exit = True
        if self._served is not None:
            with contextlib.suppress(TimeoutError):
                self._loop.run_until_complete(asyncio.wait_for(self._served, FINISH_TIME_S + 1))
        self._large.close()


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Workaround: uvicorn would replace the receiver's own signal handlers.
        yield


def _config(
    app: LimitedBodies, protocol: type[LimitedProtocol], listener: ListenerConfig, tls: ListenerTls | None
) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        # Stated explicitly: by default uvicorn uses uvloop if it is installed.
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(listener.idle_timeout) or KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(FINISH_TIME_S),
    )
    config.load()
    config.ssl = tls.context if tls else None
    return config


def admitting_protocol(
    listener: ListenerConfig, limits: HttpLimits, tls: ListenerTls | None, count_refusal: Callable[[str], None]
) -> type[LimitedProtocol]:
    """Return the protocol that closes connections from other networks or with other certificates before it reads
    them.
    """
    networks = networks_of(listener)

    class Admitting(LimitedProtocol):
        # A larger one may wait for its turn: its client has left, and repeats it.
        max_half_closed = INLINE_BYTES

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            address = str((self.client or ("", 0))[0])
            name = tls.name_of(transport.get_extra_info("ssl_object")) if tls else ""
            if name is None or not networks.contain(address):
                count_refusal("network" if name is not None else "name")
                transport.abort()
            # The sender is fixed per connection, so that it is looked up once and not per request.
            self.app_state = {**self.app_state, "sender": Sender(plain_address(address), name or "")}

        def refuse(self, status: int, text: str) -> None:
            # A request whose body is not HTTP ends as one whose client disconnects, and is counted there. The rest
            # of an answered request is no other one.
            if self.is_between_requests:
                count_refusal(OVERSIZE if status in (414, 431) else SYNTAX)
            super().refuse(status, text)

    Admitting.limits = limits
    return Admitting


class RequestApp:
    """ASGI application: finds a request's protocol, reads and decompresses its body, and waits for the log."""

    def __init__(
        self,
        listener: ListenerConfig,
        submissions: Submissions,
        protocols: Sequence[RequestProtocol],
        large: LargeRequests,
    ) -> None:
        self._listener, self._submissions, self._protocols, self._large = listener, submissions, protocols, large

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _headers_of(scope)
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = dict(parameters)
        ambiguous = frozenset(name for name, text in parameters if text != query[name])
        # Workaround: exporters whose base address ends with a slash request //v1/logs.
        path = _SLASHES.sub("/", decoded_path(scope["raw_path"].decode("latin-1"))).rstrip("/") or "/"
        listener = self._listener
        sizes = (listener.max_line, listener.max_body, listener.max_messages)
        request = Request(scope["method"], path, b"", query, headers, *sizes, ambiguous)
        cors_headers = _cors_headers(request, listener.allow_origins)
        if cors_headers and request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            await _send(send, Answer(204, headers=cors_headers | _preflight_headers(request)))
            return
        answer = await self._answer(request, receive, scope["state"]["sender"])
        if answer is not None:
            await _send(send, replace(answer, headers={**answer.headers, **cors_headers}))

    async def _answer(self, request: Request, receive: Receive, sender: Sender) -> Answer | None:
        """Return the answer, or None if the client has disconnected."""
        protocol = find_protocol(self._protocols, request.method, request.path)
        try:
            # Order: the token before the body, so that a stranger cannot make the receiver read or parse.
            if not (protocol is not None and is_open(protocol, request.method, request.path)):
                check_token(self._listener.tokens, request.headers, request.query)
            if protocol is None:
                known = f"messages come by POST{nearest(request.path[:MAX_NAMED_PATH], PATHS)}"
                raise Refused(404, "path", f"there is no endpoint for {request.method} {request.path}: {known}")
            body = await _read_body(receive, request.headers, self._listener.max_body)
            if body is None:
                self._submissions.count_refusal(INCOMPLETE)
                return None
            received = await self._parse(protocol, replace(request, body=body), receive)
            if isinstance(received, Answer):
                return received
            await self._submissions.store(received, protocol.codec, sender)
            return received.answer
        except ClientLeft:
            self._submissions.count_refusal(LEFT)
            return None
        except Refused as refusal:
            self._submissions.count_refusal(refusal.reason)
            return (
                protocol.refusal(refusal, request) if protocol else json_answer({"error": str(refusal)}, refusal.status)
            )

    async def _parse(self, protocol: RequestProtocol, packed: Request, receive: Receive) -> Received | Answer:
        """Decompress and parse a request, on a thread if it is large. Raises Refused and ClientLeft."""
        encoding, max_body = packed.headers.get(ENCODING, ""), self._listener.max_body
        inner_growth = getattr(protocol, "inner_growth", 1)
        if inner_growth > 1 and encoding == "snappy":
            encoding = ""  # the body is snappy in any case, and its protocol decompresses it
        # Fast path: a small request is parsed here; passing it to the thread costs about 0.1 ms.
        inline_bytes = INLINE_BYTES // (getattr(protocol, "json_cost", 1) if packed.content_type == JSON else 1)
        if len(packed.body) * inner_growth <= inline_bytes:
            content = decompress_if_small(packed.body, encoding, max_body, inline_bytes)
            if content is not None:
                return protocol.receive(replace(packed, body=content))
        return await self._large.run(
            lambda: protocol.receive(replace(packed, body=decompress(packed.body, encoding, max_body))),
            _disconnection(receive),
        )


def _headers_of(scope: Scope) -> dict[str, str]:
    """Return the last value of each header; all of Content-Encoding, because each names a compression."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    if ENCODING in headers:
        headers[ENCODING] = content_encoding(scope["headers"])
    return headers


def _cors_headers(request: Request, origins: Sequence[str]) -> dict[str, str]:
    """Return headers that let a page of a permitted origin read the answer; none for other origins."""
    origin = request.headers.get("origin", "")
    if not origin or not ("*" in origins or origin in origins):
        return {}
    return {"access-control-allow-origin": "*" if "*" in origins else origin, "vary": "Origin"}


def _preflight_headers(request: Request) -> dict[str, str]:
    """Return headers that answer a browser's preflight request: any header may be sent."""
    names = request.headers.get("access-control-request-headers", "")
    allowed_headers = {"access-control-allow-headers": names} if names else {}
    return {"access-control-allow-methods": "POST, PUT, GET", "access-control-max-age": "7200", **allowed_headers}


async def _read_body(receive: Receive, headers: Mapping[str, str], max_bytes: int) -> bytes | None:
    """Return the body of a request in its sent encoding, None if its client has disconnected. Raises Refused."""
    # Limit: a body that announces too many bytes is refused before one is read; others are measured below.
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        text = f"a request of {int(announced)} bytes is larger than max_body ({max_bytes} bytes)"
        raise Refused(413, "oversize", text)
    parts, size, more = [], 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > max_bytes:
                text = f"a request of {size} bytes or more is larger than max_body ({max_bytes} bytes)"
                raise Refused(413, "oversize", text)
    except TooManyBodies as error:
        raise Refused(503, "busy", str(error)) from None
    except BodyTooSlow as error:
        raise Refused(408, "late", str(error)) from None
    except TinyChunks as error:
        raise Refused(413, CHUNKS, str(error)) from None
    return b"".join(parts)


async def _disconnection(receive: Receive) -> None:
    """Wait until the client of a request whose body is read has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def _send(send: Send, answer: Answer) -> None:
    headers = {"content-type": answer.content_type, "content-length": str(len(answer.body)), **answer.headers}
    if answer.status == 204:
        headers = dict(answer.headers)
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body})
