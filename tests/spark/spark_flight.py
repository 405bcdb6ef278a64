"""A log with its Flight server for real, on loopback, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.log import Log
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.flight.server import FlightServer
from penstock.server.permitted_topics import PermittedTopics


class Served:
    """The topics of a folder behind a Flight server, which can be closed and opened again at its address."""

    def __init__(
        self, topics: Path, guard: TokenAuthenticator | None = None, tls: dict[str, Any] | None = None
    ) -> None:
        self.log = Log(topics)
        self._tls = tls or {}
        self._guard = guard or TokenAuthenticator()
        self._server: FlightServer | None = None
        self._port = 0
        self.open()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def open(self) -> None:
        scheme = "grpc+tls" if self._tls else "grpc"
        self._server = FlightServer(f"{scheme}://{self.address}", PermittedTopics(self.log), self._guard, **self._tls)
        self._port = self._server.port

    def close(self) -> None:
        if self._server:
            self._server.close()
        self._server = None


@contextmanager
def served(
    topics: Path, guard: TokenAuthenticator | None = None, tls: dict[str, Any] | None = None
) -> Iterator[Served]:
    """The topics of a folder, served; ``tls`` are Flight's options."""
    found = Served(topics, guard, tls)
    try:
        yield found
    finally:
        found.close()
        found.log.close()
