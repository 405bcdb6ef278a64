"""The daemon as the console sees it: asked once a second by one task for all open pages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from penstock.console.history import History
from penstock.errors import PenstockError

EVERY = 1.0
TIMEOUT = 5.0
Document = dict[str, Any]


class Away(PenstockError):
    """The daemon does not answer, or not as it should; the text says how."""


@dataclass(slots=True)
class Daemon:
    """``url``: of the daemon's HTTP API; ``headers`` carry its token, ``verify`` is httpx's.

    ``balance`` and ``stat`` are the last answers, ``error`` says why there are no newer ones.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    verify: Any = True
    balance: Document = field(default_factory=dict)
    stat: Document = field(default_factory=dict)
    error: str = "not asked yet"
    at: float = 0.0
    history: History = field(default_factory=History)
    _http: httpx.AsyncClient | None = None

    @property
    def age(self) -> float:
        """Seconds since the last good answer."""
        return time.monotonic() - self.at

    async def watch(self) -> None:
        """Ask for ever."""
        while True:
            with contextlib.suppress(Away):
                await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Ask once. Raises Away."""
        try:
            self.balance, self.stat = await self.get("/balance"), await self.get("/stat")
        except Away as error:
            self.error = str(error)
            raise
        self.error, self.at = "", time.monotonic()
        self.history.add(self.at, counters(self.balance))

    async def get(self, path: str, **parameters: object) -> Any:
        """The JSON answer of ``path``. Raises Away."""
        return await self.ask("GET", path, params={k: str(v) for k, v in parameters.items()})

    async def ask(self, method: str, path: str, **request: Any) -> Any:
        """The JSON answer of a request. Raises Away."""
        try:
            answer = await self._client().request(method, path, **request)
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            raise Away(f"{path}: {error.response.status_code} {error.response.text[:200]}") from None
        except (httpx.HTTPError, ValueError) as error:
            raise Away(f"no answer from {self.url} ({error or type(error).__name__})") from None

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = httpx.AsyncClient(
                base_url=self.url, timeout=TIMEOUT, headers=dict(self.headers), verify=self.verify, trust_env=False
            )
        return self._http


def counters(balance: Document) -> dict[str, float]:
    """The numbers of a balance that only grow, by name (``listener/NAME/COUNT``, ``route/…``, ``topic/…``)."""
    found: dict[str, float] = {}
    for listener in balance.get("listeners", ()):
        for name, count in listener["counts"].items():
            found[f"listener/{listener['name']}/{name}"] = count
    for route in balance.get("routes", ()):
        for name in ("accepted", "delivered", "policy_drop", "handler_failed", "corrupt"):
            found[f"route/{route['source']}/{route['handler']}/{name}"] = route.get(name, 0)
    for topic in balance.get("topics", ()):
        found[f"topic/{topic['topic']}/logged"] = topic["logged"]
        for fate, count in topic["fates"].items():
            found[f"topic/{topic['topic']}/{fate}"] = count
            found[f"fate/{fate}"] = found.get(f"fate/{fate}", 0) + count
    return found
