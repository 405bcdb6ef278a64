"""gRPC and HTTP of one daemon in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc.aio
import uvicorn
from fastapi import FastAPI

from penstock.config import split_address
from penstock.server.api import Api
from penstock.server.rpc import create_server

GRACE = 5
"""Seconds that requests under way have to finish once the server stops."""
BACKLOG = 2048

_log = logging.getLogger(__name__)


class AddressUnavailable(OSError):
    """An address cannot be listened on; the text names it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The addresses listened on, ports filled in, as ``host:port``."""

    grpc: str
    http: str


async def serve(
    api: Api,
    app: FastAPI,
    *,
    grpc_address: str,
    http_address: str,
    stop: asyncio.Event,
    ready: Callable[[Bound], None] | None = None,
) -> None:
    """Serve until ``stop`` is set. Port 0 takes a free port; ``ready`` is told what was taken.

    No signal is captured here: the caller's handlers set ``stop``. Raises AddressUnavailable before
    anything is served.
    """
    with _listening(http_address, "HTTP") as listener:
        rpc = create_server(api)
        bound = Bound(_bind(rpc, grpc_address), _name(http_address, listener.getsockname()[1]))
        await rpc.start()
        web = _Uvicorn(_config(app))
        served = asyncio.create_task(web.serve(sockets=[listener]))
        _log.info("gRPC on %s, HTTP on %s", bound.grpc, bound.http)
        if ready is not None:
            ready(bound)
        try:
            await _first(served, asyncio.create_task(stop.wait()))
        finally:
            await _stop(api, rpc, web, served)


async def _first(served: asyncio.Task[None], stopped: asyncio.Task[bool]) -> None:
    """Wait for the order to stop; raise what the HTTP server died of, if it does."""
    try:
        await asyncio.wait((served, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    if served.done():
        served.result()


async def _stop(api: Api, rpc: grpc.aio.Server, web: uvicorn.Server, served: asyncio.Task[None]) -> None:
    api.close()
    web.should_exit = True
    await asyncio.gather(rpc.stop(GRACE), served, return_exceptions=True)
    api.release()


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after it has stopped, and nothing after serve() would run.
        yield


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )


def _bind(server: grpc.aio.Server, address: str) -> str:
    # Tried with a plain socket first: gRPC says why it failed only in its own log.
    with _listening(address, "gRPC"):
        pass
    try:
        return _name(address, server.add_insecure_port(address))
    except RuntimeError as error:
        raise AddressUnavailable(f"gRPC: cannot listen on {address}: {error}") from None


def _listening(address: str, what: str) -> socket.socket:
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP named, not left to the default: only then does asyncio set TCP_NODELAY, without which each answer
    # to a kept connection waits 40 ms for the caller's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressUnavailable(f"{what}: cannot listen on {address}: {error.strerror or error}") from None
    return listener


def _name(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"
