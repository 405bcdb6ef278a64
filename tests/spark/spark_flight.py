"""A log with its Flight server for real, on loopback, for tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from penstock.log import Log
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.server.auth.permitted_topics import PermittedTopics
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.flight.server import FlightServer
from penstock.server.grpc.call_threads import CallThreads


class Served:
    """The topics of a folder behind a Flight server, which can be closed and opened again at its address."""

    def __init__(
        self, topics: Path, guard: TokenAuthenticator | None = None, credentials: grpc.ServerCredentials | None = None
    ) -> None:
        self.log = Log(topics)
        self.topics = PermittedTopics(self.log)
        self._credentials = credentials
        self._guard = guard or TokenAuthenticator()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: FlightServer | None = None
        self._port = 0
        self.open()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def open(self) -> None:
        limit, threads = ConnectionLimit(1000, "max_connections"), CallThreads(self.topics.log.committers)
        self._server = FlightServer(self.topics, self._guard, limit, threads)
        calls = self._server.calls
        if self._credentials is None:
            self._port = calls.add_insecure_port(self.address)
        else:
            self._port = calls.add_secure_port(self.address, self._credentials)
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(20)

    def close(self) -> None:
        if self._server:
            asyncio.run_coroutine_threadsafe(self._server.stop(5), self._loop).result(20)
        self._server = None

    def end(self) -> None:
        """Close the server and the log for good."""
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()
        self.log.close()


@contextmanager
def served(
    topics: Path, guard: TokenAuthenticator | None = None, credentials: grpc.ServerCredentials | None = None
) -> Iterator[Served]:
    """Serve the topics of a folder, with TLS if ``credentials`` are set."""
    found = Served(topics, guard, credentials)
    try:
        yield found
    finally:
        found.end()
