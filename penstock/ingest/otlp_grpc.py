"""Receiver of OTLP over gRPC: the same requests as over HTTP, with limits for requests that arrive slowly."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import RetryInfo

from penstock.config import ListenerConfig
from penstock.config.keys.renewed_tls import Pem, renewed_server_credentials
from penstock.handover.buffer import HandlerPosition
from penstock.handover.writer import FrameWriter
from penstock.ingest.admission import check_token, decompress, decompress_if_small
from penstock.ingest.large_requests import INLINE_BYTES, LargeRequests
from penstock.ingest.networks import networks_of
from penstock.ingest.sockets import CannotListen
from penstock.ingest.submissions import BUSY, LATE, Sender, Submissions
from penstock.ingest.tls import admitted_name
from penstock.process.bounded_calls import BoundedCalls
from penstock.process.kernel import limit_connections, raise_file_limit
from penstock.wire.otlp.protocol import logs_of, response, status_of
from penstock.wire.otlp.records import Logs
from penstock.wire.requests import SYNTAX, Answer, Received, Refused

FINISH_TIME_S = 3.0
"""Time that calls in flight have when the receiver ends."""
SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
CODEC = "otlp"
GZIP, ZLIB = b"\x1f\x8b", b"\x78"
"""First bytes of compressed requests; an uncompressed one begins with the tag of its only field."""
MAX_READS = 256
"""Limit: requests being read at once, of all connections; about 30 KB each while no byte arrives."""
MAX_STREAMS = 100
"""Limit: calls of one connection. More wait in the client, or are refused by gRPC before any work is done."""
CANCEL_S = 0.1
"""Time in which gRPC cancels a call whose message it has refused."""
INCOMPLETE = "incomplete"
"""Reason of a refusal: the message did not arrive; it is larger than max_body, or its client has disconnected."""
QUICK_S = 2.0
"""Time after which a request being read counts as slow."""
_STATUS_DETAILS = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class OtlpGrpcReceiver:
    """Receiver of one listener; runs in the receiver's only thread. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._listener, self._sock = listener, sock
        self._submissions = Submissions(listener, writer, readers, wake)
        self._networks = networks_of(listener)
        self._loop = asyncio.new_event_loop()
        self._server: grpc.aio.Server | None = None
        self._reads = Reads(max(listener.max_unfinished // listener.max_body, 1), listener.request_timeout)
        self._unfinished_bytes = 0
        self._large = LargeRequests()

    def take_over(self) -> None:
        """Start to accept requests: the requests of a predecessor ended with it, and their senders retry."""
        self._loop.run_until_complete(self._start())

    def receive(self, timeout: float) -> None:
        """Serve for ``timeout`` seconds."""
        self._loop.run_until_complete(asyncio.sleep(timeout))

    def tick(self) -> None:
        """End slow requests and publish pending counts; called about every second."""
        self._loop.call_soon(self._reads.end_slow)  # runs at the next receive
        self._submissions.tick()

    def finish(self) -> None:
        """Stop accepting calls and answer those in flight."""
        if self._server is not None:
            self._loop.run_until_complete(self._server.stop(FINISH_TIME_S))
        self._large.close()

    async def _start(self) -> None:
        server = grpc.aio.server(options=_options(self._listener))
        # Limit: declared as a stream although a call has one request, so that this handler bounds the time to read it.
        export: grpc.RpcMethodHandler[Any, Any] = grpc.stream_unary_rpc_method_handler(self._export)
        unknown: grpc.RpcMethodHandler[Any, Any] = grpc.stream_unary_rpc_method_handler(self._refuse_unknown)
        server.add_generic_rpc_handlers((_Methods({f"/{SERVICE}/Export": export}, unknown),))
        host, port = self._sock.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            credentials = _credentials(self._listener)
            bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        except RuntimeError as error:
            raise CannotListen(f"listener {self._listener.name!r}: cannot listen on {address}: {error}") from None
        assert bound == port, "gRPC binds beside the supervisor's socket"
        await server.start()
        self._server = server

    async def _export(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            # Order: network, certificate and token before the message, so that a stranger's message is not read.
            sender = self._admitted(context)
            data = await self._message(requests, context.peer())
            with self._unfinished(len(data)):
                logs = await self._parse(data)
            await self._submissions.store(Received(logs.body, logs.refused, Answer()), CODEC, sender)
            return response(logs).SerializeToString()
        except Refused as refusal:
            self._submissions.count_refusal(refusal.reason)
            await _abort(context, refusal)
            raise AssertionError from None  # abort does not return

    async def _refuse_unknown(self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        self._submissions.count_refusal("path")
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"only {SERVICE}/Export is served")
        raise AssertionError  # abort does not return

    async def _message(self, requests: AsyncIterator[bytes], peer: str) -> bytes:
        """Return the message of a call. Raises Refused."""
        message = await self._reads.read(anext(aiter(requests), None), peer)
        if message is not None:
            return message
        try:
            # gRPC itself refuses a message over max_body: the stream ends, and then the call is cancelled. A client
            # that leaves looks the same.
            await asyncio.sleep(CANCEL_S)
        except asyncio.CancelledError:
            self._submissions.count_refusal(INCOMPLETE)
            raise
        raise Refused(400, SYNTAX, "the call has no message")

    @contextlib.contextmanager
    def _unfinished(self, size: int) -> Iterator[None]:
        """Count the bytes of a request until its records are parsed. Raises Refused if others use the whole limit."""
        if self._unfinished_bytes and self._unfinished_bytes + size > self._listener.max_unfinished:
            raise Refused(503, BUSY, "the requests being read exceed max_unfinished; retry")
        self._unfinished_bytes += size
        try:
            yield
        finally:
            self._unfinished_bytes -= size

    async def _parse(self, data: bytes) -> Logs:
        """Decompress and parse a request, on a thread if it is large. Raises Refused."""
        listener = self._listener
        max_body, max_line, max_messages = listener.max_body, listener.max_line, listener.max_messages
        if len(data) <= INLINE_BYTES:
            content = decompress_if_small(data, _compression(data), max_body, INLINE_BYTES)
            if content is not None:
                return logs_of(content, max_line, max_messages)
        return await self._large.run(
            lambda: logs_of(decompress(data, _compression(data), max_body), max_line, max_messages)
        )

    def _admitted(self, context: grpc.aio.ServicerContext[Any, Any]) -> Sender:
        """Return the sender. Raises Refused if it is not permitted."""
        address = address_of(context.peer())
        if not self._networks.contain(address):
            raise Refused(403, "network", "this address is not permitted (allow_from)")
        headers = {str(key): value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        check_token(self._listener.tokens, headers, {})
        return Sender(address, self._certificate_name(context.auth_context()))

    def _certificate_name(self, auth_context: Mapping[str, Any]) -> str:
        """Return the name of the sender's certificate. Raises Refused if it is not permitted."""
        if self._listener.client_ca is None:
            return ""
        names = auth_context.get("x509_subject_alternative_name") or auth_context.get("x509_common_name") or ()
        name = admitted_name([_text(name).lower() for name in names], self._listener)
        if name is None:
            raise Refused(403, "name", "this certificate is not permitted (client_names)")
        return name


class _Methods(grpc.GenericRpcHandler):
    """The server's methods, and one for all other names, so that their calls are counted."""

    def __init__(self, methods: Mapping[str, Any], unknown: Any) -> None:
        self._methods, self._unknown = methods, unknown

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method, self._unknown)


class Reads:
    """Requests that are being read, none of which blocks the others.

    Limit: gRPC does not report how many bytes of a request have arrived. Therefore MAX_READS are read at once, and
    only ``slow`` of them may take longer than QUICK_S, because each may hold ``max_body`` bytes.
    """

    def __init__(self, slow: int, timeout_s: float) -> None:
        self._slow, self._timeout_s = slow, timeout_s
        self._open: dict[_Read, float] = {}
        self._bounded = BoundedCalls(MAX_READS, "too many requests are being read; retry")

    async def read(self, message: Awaitable[bytes | None], peer: str) -> bytes | None:
        """Return ``message`` once it has arrived, None if the stream ends without one.

        Raises Refused if it arrives too slowly or others need the room.
        """
        read = _Read(peer.encode(), asyncio.timeout(self._timeout_s))
        try:
            async with read.deadline:
                self._open[read] = time.monotonic()
                self._bounded.progress(read)
                return await message
        except TimeoutError:
            if read.reason:
                raise Refused(503, BUSY, read.reason) from None
            raise Refused(
                408, LATE, f"the request did not arrive within {self._timeout_s:g} s (request_timeout)"
            ) from None
        finally:
            self._bounded.discard(read)
            self._open.pop(read, None)

    def end_slow(self) -> None:
        """End the oldest requests that take longer than QUICK_S, if there are too many."""
        quick_since = time.monotonic() - QUICK_S
        slow = [read for read, began in self._open.items() if began < quick_since]
        for read in slow[: max(len(slow) - self._slow, 0)]:
            del self._open[read]
            read.cancel(0, "too many requests arrive slowly (max_unfinished); retry")


class _Read:
    """A request that is being read, with the interface of a call for BoundedCalls."""

    def __init__(self, peer: bytes, deadline: asyncio.Timeout) -> None:
        self._peer, self.deadline, self.reason = peer, deadline, ""

    def peer(self) -> bytes:
        return self._peer

    def cancel(self, _: int, reason: str) -> None:
        self.reason = reason
        self.deadline.reschedule(0)


def address_of(peer: str) -> str:
    """Return the address in gRPC's name of a peer, such as ``ipv4:127.0.0.1:40000`` or ``ipv6:%5B::1%5D:40000``."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _compression(data: bytes) -> str:
    # Limit: gRPC itself does not bound the decompressed size, so it passes messages as they were sent.
    return "gzip" if data.startswith(GZIP) else "deflate" if data.startswith(ZLIB) else ""


async def _abort(context: grpc.aio.ServicerContext[Any, Any], refusal: Refused) -> None:
    """End a call with a Status, and with the time to retry if the sender may."""
    status = status_of(refusal)
    details: tuple[tuple[str, bytes], ...] = ()
    if refusal.is_retryable:
        retry_info = RetryInfo()
        retry_info.retry_delay.seconds = 1
        status.details.add().Pack(retry_info)
        details = ((_STATUS_DETAILS, status.SerializeToString()),)
    await context.abort(_CODES[status.code], str(refusal), details)


def _options(listener: ListenerConfig) -> list[tuple[str, int]]:
    connections = limit_connections(
        listener.max_connections, raise_file_limit() // 2, f"listener.{listener.name}.max_connections"
    )
    return [
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_receive_message_length", listener.max_body),
        ("grpc.per_message_decompression", 0),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", int(listener.request_timeout * 1000)),
        ("grpc.max_connection_idle_ms", int(listener.idle_timeout * 1000) or (1 << 31) - 1),
    ]


def _credentials(listener: ListenerConfig) -> grpc.ServerCredentials | None:
    if listener.tls_cert is None or listener.tls_key is None:
        return None

    def load() -> Pem:
        assert listener.tls_cert
        assert listener.tls_key
        # Order: checked first; gRPC would accept files that do not match, and fail every handshake.
        listener.tls_context()
        authorities = listener.client_ca.read_bytes() if listener.client_ca else None
        return listener.tls_key.read_bytes(), listener.tls_cert.read_bytes(), authorities

    return renewed_server_credentials(load, (listener.tls_cert, listener.tls_key, listener.client_ca))


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
