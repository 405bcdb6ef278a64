"""A log with its Flight server for real, on loopback, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.log import Log
from penstock.server.flight import FlightServer
from penstock.server.guard import Guard
from penstock.server.topics import Topics


class Served:
    """The topics of a folder behind a Flight server, which can be closed and opened again at its address."""

    def __init__(self, topics: Path, guard: Guard | None = None) -> None:
        self.log = Log(topics)
        self._guard = guard or Guard()
        self._server: FlightServer | None = None
        self._port = 0
        self.open()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def open(self) -> None:
        self._server = FlightServer(f"grpc://{self.address}", Topics(self.log), self._guard)
        self._port = self._server.port

    def close(self) -> None:
        if self._server:
            self._server.close()
        self._server = None


@contextmanager
def served(topics: Path, guard: Guard | None = None) -> Iterator[Served]:
    """The topics of a folder, served."""
    found = Served(topics, guard)
    try:
        yield found
    finally:
        found.close()
        found.log.close()
