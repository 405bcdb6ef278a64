"""A real server on loopback and free ports, for the tests of the API's clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.config import SecurityConfig
from penstock.files.change_log import ChangeLog
from penstock.handover.disk_id import OwnDisk
from penstock.handover.paths import RELAYS_FOLDER
from penstock.log import Log, TopicSettings
from penstock.process.servers.http_limits import HttpLimits
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.application import OPEN_PATHS, create_app
from penstock.server.http.described_routes import DescribedRoute
from penstock.server.http.request_bodies import json_object
from penstock.server.http.routes import daemon_routes
from penstock.server.metrics.prometheus import Family
from penstock.server.servers import Bound, serve
from penstock.slogd.errors import BadRequest

INTERNAL_TOKEN = "of-the-data-directory"


def families() -> list[Family]:
    return [Family("penstock_taken_total", "counter", "Datagrams", [({"source": "events-udp"}, 3)])]


async def with_posts(request: Request) -> dict[str, Any]:
    document = await json_object(request)
    if "refused" in document:
        raise BadRequest("refused")
    if "absent" in document:
        raise HTTPException(404, "no such thing")
    return {"posted": document}


class Running:
    """A daemon's API on a thread of its own."""

    def __init__(
        self,
        folder: Path,
        security: SecurityConfig | None = None,
        limits: HttpLimits | None = None,
        *,
        kafka: bool = False,
        post: Callable[[Any], dict[str, Any]] = lambda document: {"new": bool(document)},
    ) -> None:
        self.folder = folder
        self.limits = limits or HttpLimits()
        self._kafka, self._post = kafka, post
        self._security = security or SecurityConfig()
        self.log = Log(folder, TopicSettings())
        self.changes = ChangeLog(folder.parent)
        self.bound = Bound("", "")
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(20), "the server does not start"

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.api = EntriesApi(
            self.log,
            TokenAuthenticator.from_config(self._security, INTERNAL_TOKEN),
            self._post,
            self.changes,
            disk=OwnDisk(self.folder.parent / RELAYS_FOLDER),
        )

        async def stat() -> dict[str, int]:
            return {"taken": 3}

        routes = daemon_routes(self.api, stat=stat, metrics=families, balance=lambda query: {"asked": query})
        further = DescribedRoute("/ledger", "POST", with_posts, "Post counts")
        self.app = app = create_app(
            [*routes, further],
            self.api.guard,
            open_paths=OPEN_PATHS if self._security.open_reflection else (),
            limits=self.limits,
        )
        await serve(
            self.api,
            app,
            grpc_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            flight_address="127.0.0.1:0",
            kafka_address="127.0.0.1:0" if self._kafka else "",
            security=self._security,
            stop=self._stop,
            ready=self._started,
            http_limits=self.limits,
        )

    def _started(self, bound: Bound) -> None:
        self.bound = bound
        self._ready.set()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
        self.log.close()

    @property
    def has_stopped(self) -> bool:
        """The server has ended."""
        return not self._thread.is_alive()

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Send one request with the path unchanged; return status, headers (names in lower case) and text."""
        with self.connection() as connection:
            data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()

    def request_json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request; return status and document."""
        status, _, text = self.request(method, path, body)
        return status, json.loads(text)

    @contextmanager
    def connection(self, timeout: float = 20) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self.bound.http, timeout=timeout)
        try:
            yield connection
        finally:
            connection.close()
