"""gRPC, HTTP, Arrow Flight and Kafka's protocol of one daemon, on one event loop and its threads."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import logging
import socket
import termios
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from penstock.config import SecurityConfig, split_address
from penstock.errors import PenstockError
from penstock.process.kernel import raise_file_limit
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.process.servers.http_connection import limited_protocol
from penstock.process.servers.http_limits import HttpLimits
from penstock.process.servers.port_owner import describe_bind_error, resolve_address
from penstock.process.tuning import release_freed_memory
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.server_tls import ServerTls
from penstock.server.grpc.call_server import STREAM_GRACE_S, CallServer
from penstock.server.grpc.call_threads import CallThreads
from penstock.server.grpc.service import Rpc, create_server

if TYPE_CHECKING:
    from penstock.server.flight.server import FlightServer
    from penstock.server.kafka.endpoint import KafkaEndpoint

GRACE_S = 5
"""Limit: of the time that open requests have to finish when the server stops."""
BACKLOG = 2048

_LOGGER = logging.getLogger(__name__)


class AddressUnavailable(PenstockError, OSError):
    """An address cannot be opened for listening; the text names it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Addresses of the open ports, as ``host:port``; ``flight`` and ``kafka`` are empty when off."""

    grpc: str
    http: str
    flight: str = ""
    kafka: str = ""


async def serve(
    api: EntriesApi,
    app: ASGIApp,
    *,
    grpc_address: str,
    http_address: str,
    flight_address: str = "",
    kafka_address: str = "",
    kafka_advertised: str = "",
    stop: asyncio.Event,
    security: SecurityConfig | None = None,
    ready: Callable[[Bound], None] | None = None,
    http_limits: HttpLimits | None = None,
) -> None:
    """Serve until ``stop`` is set. Port 0 chooses a free port; ``ready`` receives the open addresses.

    No signal is handled here: the caller's handlers set ``stop``. Raises AddressUnavailable and ConfigError (of
    certificates) before anything is served.
    """
    security = security or SecurityConfig()
    tls = ServerTls(security)
    http_limits = http_limits or HttpLimits()
    with contextlib.ExitStack() as opened:
        # Order: all addresses are bound before anything is served, so that an error leaves no half-open daemon.
        listener = opened.enter_context(_open_socket(http_address, "HTTP"))
        rpc = create_server(api, security, _rpc_limit("gRPC", http_limits))
        grpc_bound = _bind(rpc.server, grpc_address, tls)
        limit = _rpc_limit("Flight", http_limits)
        flight = _create_flight(api, limit, rpc.server.threads) if flight_address else None
        flight_bound = _bind(flight.calls, flight_address, tls, "Flight") if flight else ""
        kafka = _open_kafka(api, kafka_address, kafka_advertised, http_limits)
        kafka_bound = ""
        if kafka is not None:
            socket_of_kafka = opened.enter_context(_open_socket(kafka_address, "Kafka"))
            kafka_bound = _format_address(kafka_address, socket_of_kafka.getsockname()[1])
            await kafka.start(socket_of_kafka, tls.for_http())
        bound = Bound(grpc_bound, _format_address(http_address, listener.getsockname()[1]), flight_bound, kafka_bound)
        await rpc.start()
        if flight is not None:
            await flight.start()
        web = _Uvicorn(_config(app, tls, http_limits))
        served = asyncio.create_task(web.serve(sockets=[listener]))
        tidying = [asyncio.create_task(work) for work in (api.page_cache.clear_when_idle(), release_freed_memory())]
        _LOGGER.debug("gRPC on %s, HTTP on %s, Flight on %s", bound.grpc, bound.http, bound.flight or "nothing")
        if ready is not None:
            ready(bound)
        try:
            await _wait_for_stop(served, asyncio.create_task(stop.wait()))
        finally:
            for work in tidying:
                work.cancel()
            await _stop(api, rpc, web, served, flight, kafka)


async def _wait_for_stop(served: asyncio.Task[None], stopped: asyncio.Task[bool]) -> None:
    """Wait for the order to stop; raise the HTTP server's error if it ends first."""
    try:
        await asyncio.wait((served, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    if served.done():
        served.result()


async def _stop(
    api: EntriesApi,
    rpc: Rpc,
    web: uvicorn.Server,
    served: asyncio.Task[None],
    flight: FlightServer | None,
    kafka: KafkaEndpoint | None,
) -> None:
    # Order: report unhealthy first, so that load balancers send no new calls; then end the streams, then the servers.
    await rpc.health.enter_graceful_shutdown()
    api.close()
    web.should_exit = True
    closing: list[Awaitable[None]] = [flight.stop(GRACE_S)] if flight else []
    if kafka is not None:
        closing.append(kafka.close(GRACE_S))
    cutting = asyncio.create_task(_cut_off_stalled(web))
    await asyncio.gather(rpc.server.stop(GRACE_S), served, *closing, return_exceptions=True)
    cutting.cancel()
    api.release()


async def _cut_off_stalled(web: uvicorn.Server) -> None:
    """Close HTTP connections whose client has read nothing of an answer for STREAM_GRACE_S; it repeats the request."""
    before: dict[asyncio.Transport, int] = {}
    while True:
        transports = [connection.transport for connection in web.server_state.connections if connection.transport]
        unread = {transport: _unread_bytes(transport) for transport in transports}
        for transport, size in unread.items():
            # A client that reads slowly gets its answer: until the server's grace, as before.
            if size and before.get(transport) == size:
                transport.abort()
        before = unread
        await asyncio.sleep(STREAM_GRACE_S)


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the client has not read; 0 if the kernel has all that was to be sent."""
    if not (waiting := transport.get_write_buffer_size()):
        return 0
    # The kernel takes more only when a third of its buffer, of up to 4 MB, is free: its part shows a slow reader.
    in_kernel = array.array("i", [0])
    fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, in_kernel)
    return waiting + in_kernel[0]


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after it has stopped, and nothing after serve() would run.
        yield


def _config(app: ASGIApp, tls: ServerTls, limits: HttpLimits) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        # Named explicitly, so that installed packages (uvloop) do not change the server.
        loop="asyncio",
        http=limited_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    config.ssl = tls.for_http()
    return config


def _rpc_limit(protocol: str, limits: HttpLimits) -> ConnectionLimit:
    limit = ConnectionLimit(limits.connections, f"{protocol}: {limits.keys[1]}", raise_file_limit() // 4)
    limits.rpc_connections[protocol.lower()] = limit
    return limit


def _create_flight(api: EntriesApi, connections: ConnectionLimit, threads: CallThreads) -> FlightServer:
    # Imported here: a daemon without it is smaller.
    from penstock.server.flight.server import FlightServer

    return FlightServer(api.topics, api.guard, connections, threads)


def _open_kafka(api: EntriesApi, address: str, advertised: str, limits: HttpLimits) -> KafkaEndpoint | None:
    if not address:
        return None
    # Imported here: a daemon without it is smaller.
    from penstock.server.kafka.endpoint import KafkaEndpoint
    from penstock.server.kafka.limits import KafkaLimits

    return KafkaEndpoint(api, KafkaLimits(limits.max_bytes, limits.timeout, limits.connections), advertised)


def _bind(server: CallServer, address: str, tls: ServerTls, protocol: str = "gRPC") -> str:
    # Workaround: a plain socket is tried first, because gRPC reports the reason of a failure only in its own log.
    with _open_socket(address, protocol):
        pass
    try:
        credentials = tls.for_rpc()
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        return _format_address(address, port)
    except RuntimeError as error:
        raise AddressUnavailable(f"{protocol}: cannot listen on {address}: {error}") from None


def _open_socket(address: str, protocol: str) -> socket.socket:
    host, port = split_address(address)
    with contextlib.ExitStack() as opened:
        try:
            family, socket_address = resolve_address(host, port)
            # Workaround: asyncio sets TCP_NODELAY only if the protocol is named. Without it each answer on a reused
            # connection waits 40 ms for the client's acknowledgement.
            listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(socket_address)
            listener.listen(BACKLOG)
        except (OSError, ValueError) as error:  # ValueError: the host is not a valid name
            reason = describe_bind_error(error, "tcp", port)
            raise AddressUnavailable(f"{protocol}: cannot listen on {address}: {reason}") from None
        opened.pop_all()
    return listener


def _format_address(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"
