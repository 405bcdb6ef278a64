"""The receiver of OTLP over gRPC: requests as over HTTP, with limits for those that come slowly."""

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
from penstock.ingest.admission import check_token, unpacked, unpacked_if_small
from penstock.ingest.large_requests import INLINE_BYTES, LargeRequests
from penstock.ingest.networks import networks_of
from penstock.ingest.sockets import CannotListen
from penstock.ingest.submissions import BUSY, LATE, Sender, Submissions
from penstock.ingest.tls import admitted_name
from penstock.process.bounded_calls import BoundedCalls
from penstock.wire.otlp.protocol import logs_of, response, status_of
from penstock.wire.otlp.records import Logs
from penstock.wire.requests import SYNTAX, Answer, Received, Refused

FINISH_TIME = 3.0
"""Seconds that calls under way have when the receiver ends."""
SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
CODEC = "otlp"
GZIP, ZLIB = b"\x1f\x8b", b"\x78"
"""What packed requests begin with; a request as it is begins with the tag of its only field."""
MAX_READS = 256
"""Limit: requests that are being read at once, of all connections; about 30 KB each while nothing of them comes."""
MAX_STREAMS = 100
"""Limit: calls of one connection. More wait in the client, or are refused by gRPC before any work is done for them."""
CANCEL_S = 0.1
"""Time in which gRPC cancels a call whose message it has refused."""
INCOMPLETE = "incomplete"
"""Why a request is refused: its message did not come; it is larger than max_body, or its client has left."""
QUICK_S = 2.0
"""Time after which a request that is being read counts as slow."""
_STATUS_DETAILS = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class OtlpGrpcReceiver:
    """Receives for one listener. ``wake`` is called after each frame."""

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
        """Begin to take requests: those under way ended with the predecessor, and their senders come again."""
        self._loop.run_until_complete(self._start())

    def receive(self, timeout: float) -> None:
        """Serve for so long."""
        self._loop.run_until_complete(asyncio.sleep(timeout))

    def tick(self) -> None:
        """Once a second or so."""
        self._loop.call_soon(self._reads.end_slow)  # it runs at the next receive
        self._submissions.tick()

    def finish(self) -> None:
        """Take no more calls, and answer those under way."""
        if self._server is not None:
            self._loop.run_until_complete(self._server.stop(FINISH_TIME))
        self._large.close()

    async def _start(self) -> None:
        server = grpc.aio.server(options=_options(self._listener))
        # A stream although a call has one request, so that the handler limits how long it is read.
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
            sender = self._admitted(context)
            data = await self._message(requests, context.peer())
            with self._unfinished(len(data)):
                logs = await self._logs(data)
            await self._submissions.store(Received(logs.body, logs.refused, Answer()), CODEC, sender)
            return response(logs).SerializeToString()
        except Refused as why:
            self._submissions.count_refusal(why.reason)
            await _abort(context, why)
            raise AssertionError from None  # abort does not come back

    async def _refuse_unknown(self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        self._submissions.count_refusal("path")
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"only {SERVICE}/Export is taken")
        raise AssertionError  # abort does not come back

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
        """Count the bytes of a request until its records are read. Raises Refused where others have all the room."""
        if self._unfinished_bytes and self._unfinished_bytes + size > self._listener.max_unfinished:
            raise Refused(503, BUSY, "the requests being read exceed max_unfinished; try again")
        self._unfinished_bytes += size
        try:
            yield
        finally:
            self._unfinished_bytes -= size

    async def _logs(self, data: bytes) -> Logs:
        """Return the records of a request: read here where it is small, else on a thread. Raises Refused."""
        max_body, max_line, max_messages = (
            self._listener.max_body,
            self._listener.max_line,
            self._listener.max_messages,
        )
        if len(data) <= INLINE_BYTES:
            small = unpacked_if_small(data, _packing(data), max_body, INLINE_BYTES)
            if small is not None:
                return logs_of(small, max_line, max_messages)
        return await self._large.run(lambda: logs_of(unpacked(data, _packing(data), max_body), max_line, max_messages))

    def _admitted(self, context: grpc.aio.ServicerContext[Any, Any]) -> Sender:
        """Who sends. Raises Refused where it is not let in."""
        address = address_of(context.peer())
        if not self._networks.contain(address):
            raise Refused(403, "network", "this address is not let in")
        headers = {str(key): value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        check_token(self._listener.tokens, headers, {})
        return Sender(address, self._name(context.auth_context()))

    def _name(self, said: Mapping[str, Any]) -> str:
        """The name of the sender's certificate. Raises Refused where it is not let in."""
        if self._listener.client_ca is None:
            return ""
        names = said.get("x509_subject_alternative_name") or said.get("x509_common_name") or ()
        name = admitted_name([_text(name).lower() for name in names], self._listener)
        if name is None:
            raise Refused(403, "name", "this certificate is not let in")
        return name


class _Methods(grpc.GenericRpcHandler):
    """The methods of the server, and one for all other names, so that their calls are counted."""

    def __init__(self, methods: Mapping[str, Any], unknown: Any) -> None:
        self._methods, self._unknown = methods, unknown

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method, self._unknown)


class Reads:
    """The requests that are being read, none of which blocks the others.

    gRPC does not say how many bytes of a request have come. So all are read at once, MAX_READS of them; ``slow`` of
    them may take longer than QUICK_S, because each may hold ``max_body`` bytes.
    """

    def __init__(self, slow: int, timeout_s: float) -> None:
        self._slow, self._timeout_s = slow, timeout_s
        self._open: dict[_Read, float] = {}
        self._bounded = BoundedCalls(MAX_READS, "too many requests are being read; try again")

    async def read(self, message: Awaitable[bytes | None], peer: str) -> bytes | None:
        """Return ``message`` once it has come, None where the stream ends without one.

        Raises Refused where it comes too slowly, or others need the room.
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
            raise Refused(408, LATE, f"the request did not come in {self._timeout_s:g} s (request_timeout)") from None
        finally:
            self._bounded.discard(read)
            self._open.pop(read, None)

    def end_slow(self) -> None:
        """End the oldest of the requests that take longer than QUICK_S, where these are too many."""
        quick_since = time.monotonic() - QUICK_S
        slow = [read for read, began in self._open.items() if began < quick_since]
        for read in slow[: max(len(slow) - self._slow, 0)]:
            del self._open[read]
            read.cancel(0, "too many requests come slowly (max_unfinished); try again")


class _Read:
    """One request that is being read, in the shape of a call for BoundedCalls."""

    def __init__(self, peer: bytes, deadline: asyncio.Timeout) -> None:
        self._peer, self.deadline, self.reason = peer, deadline, ""

    def peer(self) -> bytes:
        return self._peer

    def cancel(self, _: int, reason: str) -> None:
        self.reason = reason
        self.deadline.reschedule(0)


def address_of(peer: str) -> str:
    """The address in gRPC's name of a peer, such as ``ipv4:127.0.0.1:40000`` or ``ipv6:%5B::1%5D:40000``."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _packing(data: bytes) -> str:
    # gRPC leaves unpacking to the handler, because it has no limit for what comes out.
    return "gzip" if data.startswith(GZIP) else "deflate" if data.startswith(ZLIB) else ""


async def _abort(context: grpc.aio.ServicerContext[Any, Any], why: Refused) -> None:
    """A Status; a sender that may come again is told when."""
    status = status_of(why)
    details: tuple[tuple[str, bytes], ...] = ()
    if why.is_retryable:
        wait = RetryInfo()
        wait.retry_delay.seconds = 1
        status.details.add().Pack(wait)
        details = ((_STATUS_DETAILS, status.SerializeToString()),)
    await context.abort(_CODES[status.code], str(why), details)


def _options(listener: ListenerConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_receive_message_length", listener.max_body),
        ("grpc.per_message_decompression", 0),
        ("grpc.max_allowed_incoming_connections", listener.max_connections),
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
        # Tried first: gRPC itself would take files that do not fit each other, and refuse every handshake.
        listener.tls_context()
        authorities = listener.client_ca.read_bytes() if listener.client_ca else None
        return listener.tls_key.read_bytes(), listener.tls_cert.read_bytes(), authorities

    return renewed_server_credentials(load, (listener.tls_cert, listener.tls_key, listener.client_ca))


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
