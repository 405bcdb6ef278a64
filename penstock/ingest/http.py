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
from penstock.handover.buffer import HandlerPosition
from penstock.handover.writer import FrameWriter
from penstock.ingest.admission import check_token, unpacked, unpacked_if_small
from penstock.ingest.large_requests import INLINE_BYTES, LargeRequests
from penstock.ingest.networks import networks_of
from penstock.ingest.submissions import Sender, Submissions
from penstock.ingest.tls import ListenerTls
from penstock.process.http_limits import (
    CHUNKS,
    BodyTooSlow,
    HttpLimits,
    LimitedBodies,
    LimitedProtocol,
    TinyChunks,
    TooManyBodies,
)
from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from penstock.wire.requests import (
    Answer,
    Received,
    Refused,
    Request,
    RequestProtocol,
    find_protocol,
    is_open,
    json_answer,
)

FINISH_TIME = 3.0
"""Seconds that requests under way have when the receiver ends."""
KEEP_ALIVE = 75
"""Seconds for which a connection may be silent between two requests."""
LIMIT_KEYS = ("listener.max_unfinished", "listener.max_connections", "listener.request_timeout")
_SLASHES = re.compile("/{2,}")
_LOGGER = logging.getLogger(__name__)


class HttpReceiver:
    """Receives for one HTTP listener. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._submissions = Submissions(listener, writer, readers, wake)
        self._tls = ListenerTls(listener) if listener.tls_cert else None
        self._loop = asyncio.new_event_loop()
        self._sock, self._large = sock, LargeRequests()
        limits = HttpLimits(listener.max_unfinished, listener.request_timeout, listener.max_connections, LIMIT_KEYS)
        app = LimitedBodies(
            RequestApp(listener, self._submissions, [make() for make in REQUEST_PROTOCOLS], self._large), limits
        )
        protocol = admitting(listener, limits, self._tls, self._submissions.count_refusal)
        self._server = _Uvicorn(_config(app, protocol, listener, self._tls))
        self._served: asyncio.Task[None] | None = None

    def take_over(self) -> None:
        """Begin to take requests: those under way ended with the predecessor, and their senders come again."""
        self._served = self._loop.create_task(self._server.serve(sockets=[self._sock.dup()]))

    def receive(self, timeout: float) -> None:
        """Serve for so long."""
        self._loop.run_until_complete(asyncio.sleep(timeout))
        if self._served is not None and self._served.done():
            self._served.result()
            raise RuntimeError("the server ended by itself")

    def tick(self) -> None:
        """Once a second or so."""
        if self._tls:
            self._tls.refresh()
        self._submissions.tick()

    def finish(self) -> None:
        """Take no more connections, and answer what was asked."""
        self._server.should_exit = True
        if self._served is not None:
            with contextlib.suppress(TimeoutError):
                self._loop.run_until_complete(asyncio.wait_for(self._served, FINISH_TIME + 1))
        self._large.close()


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The receiver has handlers of its own.
        yield


def _config(
    app: LimitedBodies, protocol: type[LimitedProtocol], listener: ListenerConfig, tls: ListenerTls | None
) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        # Named, so that what else is installed (uvloop, httptools) changes nothing.
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(listener.idle_timeout) or KEEP_ALIVE,
        timeout_graceful_shutdown=int(FINISH_TIME),
    )
    config.load()
    config.ssl = tls.context if tls else None
    return config


def admitting(
    listener: ListenerConfig, limits: HttpLimits, tls: ListenerTls | None, refused: Callable[[str], None]
) -> type[LimitedProtocol]:
    """The protocol that ends connections from elsewhere, or with another name, before a byte of them is read."""
    networks = networks_of(listener)

    class Admitting(LimitedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            address = str((self.client or ("", 0))[0])
            name = tls.name_of(transport.get_extra_info("ssl_object")) if tls else ""
            if name is None or not networks.contain(address):
                refused("network" if name is not None else "name")
                transport.abort()
            self.app_state = {**self.app_state, "sender": Sender(address, name or "")}

    Admitting.limits = limits
    return Admitting


class RequestApp:
    """The ASGI application: finds a request's protocol, reads and unpacks its body, and waits for the log."""

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
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        # Exporters that are given a base address with a slash at its end ask for //v1/logs.
        path = _SLASHES.sub("/", scope["path"]).rstrip("/") or "/"
        listener = self._listener
        sizes = (listener.max_line, listener.max_body, listener.max_messages)
        asked = Request(scope["method"], path, b"", query, headers, *sizes)
        allowed = _cors_headers(asked, listener.allow_origins)
        if allowed and asked.method == "OPTIONS" and "access-control-request-method" in asked.headers:
            await _send(send, Answer(204, headers=allowed | _preflight_headers(asked)))
            return
        answer = await self._answer(asked, receive, scope["state"]["sender"])
        if answer is not None:
            await _send(send, replace(answer, headers={**answer.headers, **allowed}))

    async def _answer(self, asked: Request, receive: Receive, sender: Sender) -> Answer | None:
        """None where the client has gone."""
        protocol = find_protocol(self._protocols, asked.method, asked.path)
        try:
            if not (protocol is not None and is_open(protocol, asked.method, asked.path)):
                check_token(self._listener.tokens, asked.headers, asked.query)
            if protocol is None:
                raise Refused(404, "path", f"nothing is taken by {asked.method} {asked.path}")
            body = await _body(receive, asked.headers, self._listener.max_body)
            if body is None:
                return None
            received = await self._receive(protocol, replace(asked, body=body))
            if isinstance(received, Answer):
                return received
            await self._submissions.store(received, protocol.codec, sender)
            return received.answer
        except Refused as why:
            self._submissions.count_refusal(why.reason)
            return protocol.refusal(why, asked) if protocol else json_answer({"error": str(why)}, why.status)

    async def _receive(self, protocol: RequestProtocol, packed: Request) -> Received | Answer:
        """Unpack a request and read it: here where it is small, else on a thread. Raises Refused."""
        encoding, most = packed.headers.get("content-encoding", ""), self._listener.max_body
        inner_growth = getattr(protocol, "inner_growth", 1)
        if inner_growth > 1 and encoding.strip().lower() == "snappy":
            encoding = ""  # The body is snappy anyway, and its protocol takes that off.
        if len(packed.body) * inner_growth <= INLINE_BYTES:
            small = unpacked_if_small(packed.body, encoding, most, INLINE_BYTES)
            if small is not None:
                return protocol.receive(replace(packed, body=small))
        return await self._large.run(
            lambda: protocol.receive(replace(packed, body=unpacked(packed.body, encoding, most)))
        )


def _cors_headers(request: Request, origins: Sequence[str]) -> dict[str, str]:
    """Return what lets a page of a permitted origin read the answer; nothing for others, and for no browser."""
    origin = request.headers.get("origin", "")
    if not origin or not ("*" in origins or origin in origins):
        return {}
    return {"access-control-allow-origin": "*" if "*" in origins else origin, "vary": "Origin"}


def _preflight_headers(request: Request) -> dict[str, str]:
    """Return what answers a browser's question before a request: any header may be sent."""
    names = request.headers.get("access-control-request-headers", "")
    allowed = {"access-control-allow-headers": names} if names else {}
    return {"access-control-allow-methods": "POST, PUT, GET", "access-control-max-age": "7200", **allowed}


async def _body(receive: Receive, headers: Mapping[str, str], most: int) -> bytes | None:
    """Return the body of a request as it was sent, None where its client has gone. Raises Refused."""
    if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
        raise Refused(413, "oversize", f"a request may have {most} bytes (max_body)")
    parts, size, more = [], 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > most:
                raise Refused(413, "oversize", f"a request may have {most} bytes (max_body)")
    except TooManyBodies as error:
        raise Refused(503, "busy", str(error)) from None
    except BodyTooSlow as error:
        raise Refused(408, "late", str(error)) from None
    except TinyChunks as error:
        raise Refused(413, CHUNKS, str(error)) from None
    return b"".join(parts)


async def _send(send: Send, answer: Answer) -> None:
    headers = {"content-type": answer.content_type, "content-length": str(len(answer.body)), **answer.headers}
    if answer.status == 204:
        headers = dict(answer.headers)
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body})
