"""The receiver of OTLP over gRPC: requests as over HTTP, the bytes of each read only once there is room for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import RetryInfo

from penstock.config import ListenerConfig
from penstock.handover.buffer import HandlerPosition
from penstock.handover.writer import FrameWriter
from penstock.ingest.admission import check_token, unpacked
from penstock.ingest.networks import networks_of
from penstock.ingest.sockets import CannotListen
from penstock.ingest.submissions import Sender, Submissions
from penstock.ingest.tls import admitted_name
from penstock.wire.otlp.door import logs_of, response, status_of
from penstock.wire.requests import Answer, Received, Refused

FINISH_TIME = 3.0
"""Seconds that calls under way have when the receiver ends."""
SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
CODEC = "otlp"
GZIP, ZLIB = b"\x1f\x8b", b"\x78"
"""What packed requests begin with; a request as it is begins with the tag of its only field."""
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
        self._room = asyncio.Semaphore(max(listener.max_unfinished // listener.max_body, 1))

    def take_over(self) -> None:
        """Begin to take requests: those under way ended with the predecessor, and their senders come again."""
        self._loop.run_until_complete(self._start())

    def receive(self, timeout: float) -> None:
        """Serve for so long."""
        self._loop.run_until_complete(asyncio.sleep(timeout))

    def tick(self) -> None:
        """Once a second or so."""
        self._submissions.tick()

    def finish(self) -> None:
        """Take no more calls, and answer those under way."""
        if self._server is not None:
            self._loop.run_until_complete(self._server.stop(FINISH_TIME))

    async def _start(self) -> None:
        server = grpc.aio.server(options=_options(self._listener))
        # One request at a time, but read by the handler: nothing is read before there is room for it.
        export: grpc.RpcMethodHandler[Any, Any] = grpc.stream_unary_rpc_method_handler(self._export)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": export}),))
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
            async with self._room:
                data = await anext(aiter(requests), b"")
                logs = logs_of(_plain(data, self._listener.max_body), self._listener.max_line)
            await self._submissions.stored(Received(logs.body, logs.refused, Answer()), CODEC, sender)
            return response(logs.refused).SerializeToString()
        except Refused as why:
            self._submissions.refused(why.reason)
            await _abort(context, why)
            raise AssertionError from None  # abort does not come back

    def _admitted(self, context: grpc.aio.ServicerContext[Any, Any]) -> Sender:
        """Who sends. Raises Refused where it is not let in."""
        address = address_of(context.peer())
        if not self._networks.have(address):
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


def address_of(peer: str) -> str:
    """The address in gRPC's name of a peer, such as ``ipv4:127.0.0.1:40000`` or ``ipv6:%5B::1%5D:40000``."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _plain(data: bytes, most: int) -> bytes:
    """A request as it is: gRPC leaves unpacking to this, as it has no limit for what comes out."""
    if data.startswith(GZIP):
        return unpacked(data, "gzip", most)
    return unpacked(data, "deflate", most) if data.startswith(ZLIB) else data


async def _abort(context: grpc.aio.ServicerContext[Any, Any], why: Refused) -> None:
    """A Status; a sender that may come again is told when."""
    status = status_of(why)
    details: tuple[tuple[str, bytes], ...] = ()
    if why.may_come_again:
        wait = RetryInfo()
        wait.retry_delay.seconds = 1
        status.details.add().Pack(wait)
        details = ((_STATUS_DETAILS, status.SerializeToString()),)
    await context.abort(_CODES[status.code], str(why), details)


def _options(listener: ListenerConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 1),
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
    authorities = listener.client_ca.read_bytes() if listener.client_ca else None
    pair = (listener.tls_key.read_bytes(), listener.tls_cert.read_bytes())
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
