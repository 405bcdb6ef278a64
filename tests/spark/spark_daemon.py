"""The log daemon's HTTP interface with its ledger, for real, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.config import Settings
from penstock.files.change_log import ChangeLog
from penstock.ledger.ledger import Ledger
from penstock.log import Log
from penstock.server.alarms.register import AlarmRegister
from penstock.server.api.entries import EntriesApi
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.http.application import create_app
from penstock.server.http.monitoring_routes import monitoring_routes
from penstock.server.http.operator_routes import operator_routes
from penstock.server.http.routes import daemon_routes
from penstock.server.servers import Bound, serve

NOW = 1_700_000_100.0
"""Seconds since the epoch: shortly after the minutes of the tests' messages, so that nothing is rolled up yet."""


class Daemon:
    """A log, its ledger, and their HTTP interface on a free port (or on ``http``)."""

    def __init__(self, data: Path, http: str = "127.0.0.1:0", now: Callable[[], float] = lambda: NOW) -> None:
        self.log = Log(data / "topics")
        settings = Settings(data_dir=data)
        self.ledger = Ledger(self.log, settings.buffers, [], now=now)
        reports = MonitoringApi(settings, self.log, self.ledger)
        api = EntriesApi(self.log)
        routes = daemon_routes(api, stat=reports.stat, metrics=reports.metrics, balance=reports.balance)
        register = AlarmRegister(data / "alarms.state", None, self.log.clock.expected)
        operators = operator_routes(register, ChangeLog(data))
        app = create_app([*routes, *monitoring_routes(reports), *operators], api.guard)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(api, app, http)))
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self, api: EntriesApi, app: object, http: str) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def bound(where: Bound) -> None:
            self.http, self.grpc = where.http, where.grpc
            self._ready.set()

        await serve(api, app, grpc_address="127.0.0.1:0", http_address=http, stop=self._stop, ready=bound)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.log.close()


@contextmanager
def daemon(data: Path, http: str = "127.0.0.1:0", now: Callable[[], float] = lambda: NOW) -> Iterator[Daemon]:
    """A running Daemon."""
    running = Daemon(data, http, now)
    try:
        yield running
    finally:
        running.close()
