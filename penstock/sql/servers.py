"""The process that serves SQL to other programs: ``python -m penstock.sql.servers``, with its settings as JSON on
standard input.

A process of its own, so that queries take no time from the log daemon.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from penstock.config import Settings
from penstock.config.keys.sql import SqlConfig
from penstock.process.kernel import die_with_parent
from penstock.process.reporting import configure, starting
from penstock.sql.postgres.server import Server

BASE_BYTES = 4 << 30
"""Memory in addition to that of the queries: libraries, threads, and answers that are encoded."""
_LOGGER = logging.getLogger(__name__)


def limit_memory(config: SqlConfig) -> None:
    """Limit the memory of this process: an allocation beyond it fails, as an error of the statement that asks for it.

    DuckDB's own limit does not cover the binding of a statement, whose columns may double with each WITH.
    """
    limit = BASE_BYTES + config.max_queries * config.memory
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))


def run(settings: Settings, started: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT; call ``started`` once all ports are open.

    Raises OSError if a port cannot be opened, ConfigError for TLS's files.
    """
    stopped = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with contextlib.ExitStack() as servers:
        server = Server(settings)
        servers.callback(server.close)
        if settings.sql.postgres:
            server.start()
        if settings.sql.flight_sql:
            from penstock.sql.flight_sql.server import FlightSqlServer  # imports gRPC

            flight_sql = FlightSqlServer(settings, server.engine)
            flight_sql.start()
            servers.callback(flight_sql.close)
        started()
        for clients, address in (("PostgreSQL", settings.sql.postgres), ("Flight SQL", settings.sql.flight_sql)):
            if address:
                _LOGGER.info("clients of %s are served at %s", clients, address)
        stopped.wait()


def main() -> None:
    """Read the settings from standard input and serve; called by the parent process only."""
    # Crash: a killed parent must not leave a process behind that holds the port.
    die_with_parent()
    configure("sql")
    settings = Settings.model_validate(json.load(sys.stdin))
    limit_memory(settings.sql)
    with starting("the SQL server cannot start"):
        run(settings)


if __name__ == "__main__":
    main()
