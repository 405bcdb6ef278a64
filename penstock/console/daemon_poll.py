"""The daemon as the console sees it: asked once a second by one task for all open pages."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from penstock.console.history import History
from penstock.console.lags import EVERY as LAGS_EVERY
from penstock.console.lags import Lags
from penstock.errors import PenstockError
from penstock.ledger.receipt import Receipt, receipt

EVERY = 1.0
TIMEOUT = 5.0
STALE = 2.2
"""Seconds without a good answer after which nothing is known of now: a look later, that is within three seconds."""
MOST_EVENTS = 200
HOUR, HOUR_EVERY = 3600, 3
"""Seconds; looks between two at the last hour."""
Document = dict[str, Any]


class Away(PenstockError):
    """The daemon does not answer, or not as it should; the text says how."""


@dataclass(slots=True)
class Latest:
    """The last answers, of ``at``, and why there are no newer ones."""

    balance: Document = field(default_factory=dict)
    stat: Document = field(default_factory=dict)
    hour: Document = field(default_factory=dict)
    """The balance of the last hour alone."""
    events: list[Document] = field(default_factory=list)
    """What happened, newest first."""
    names: frozenset[str] | None = None
    """Of the topics that there are; None while that is not known."""
    error: str = "not asked yet"
    at: float = 0.0
    seen: float = 0.0
    """As ``at``, in seconds since the epoch."""
    history: History = field(default_factory=History)
    lags: Lags = field(default_factory=Lags)


def _of_latest(name: str) -> Any:
    return property(lambda self: getattr(self.latest, name), lambda self, value: setattr(self.latest, name, value))


@dataclass(slots=True)
class Daemon:
    """``url``: of the daemon's HTTP API; ``headers`` carry a token, ``verify`` is httpx's.

    ``token``: of who has logged in; "" where nobody has to.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    verify: Any = True
    latest: Latest = field(default_factory=Latest)
    token: str = ""
    _http: httpx.AsyncClient | None = None

    def seen_by(self, token: str) -> Daemon:
        """As somebody with another token sees it: the last answers are the same, what is asked is asked with it."""
        headers = {"authorization": f"Bearer {token}"}
        return Daemon(self.url, headers, self.verify, self.latest, token=token, _http=self._client())

    balance = _of_latest("balance")
    stat = _of_latest("stat")
    hour = _of_latest("hour")
    events = _of_latest("events")
    error = _of_latest("error")
    at = _of_latest("at")
    history = _of_latest("history")

    @property
    def age(self) -> float:
        """Seconds since the last good answer."""
        return time.monotonic() - self.latest.at

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of now."""
        return self.age > STALE

    def unknown_since(self) -> str:
        """Of when the last things known are, and why there is nothing newer."""
        seen = self.latest.seen
        since = f"Unknown since {time.strftime('%H:%M:%S', time.localtime(seen))}" if seen else "Not known yet"
        return f"{since}: the log daemon does not answer (penstock serve, or penstock up)"

    def topics_there(self) -> list[Document]:
        """The topics of the balance but those that were deleted: their books stay, as parts of the sums."""
        return [one for one in self.balance.get("topics", ()) if self.is_there(one["topic"])]

    def is_there(self, topic: str) -> bool:
        """Whether there is a topic, as far as is known, or it is a partition of Kafka."""
        return self.latest.names is None or topic in self.latest.names or "/" in topic

    def rate(self, *names: str) -> float | None:
        """The growth of some counters a second in sum; None while it is unknown."""
        return None if self.unknown else sum(map(self.history.rate, names))

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the last balance; None where there is none yet."""
        return receipt(self.balance) if self.balance else None

    async def watch(self) -> None:
        """Ask for ever."""
        for number in itertools.count():
            with contextlib.suppress(Away):
                await self.look()
                if number % HOUR_EVERY == 0:
                    self.latest.names = frozenset(one["name"] for one in (await self.get("/topics")).get("topic", ()))
                    self.hour = await self.get("/balance", since=int(time.time()) - HOUR)
                if number % LAGS_EVERY == 0:
                    self.latest.lags.add(self.at, (await self.get("/cursors")).get("cursor", ()))
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Ask once. Raises Away."""
        try:
            told = await asyncio.gather(self.get("/balance"), self.get("/stat"), self.get("/events", limit=MOST_EVENTS))
        except Away as error:
            self.error = str(error)
            raise
        self.balance, self.stat, self.events = told[0], told[1], told[2]["events"]
        self.error, self.at, self.latest.seen = "", time.monotonic(), time.time()
        self.history.add(self.at, counters(self.balance))

    async def refuses(self) -> str:
        """Why the token may not watch this daemon; "" where it may. Raises Away."""
        try:
            answer = await self._client().get("/stat", headers=dict(self.headers))
        except httpx.HTTPError as error:
            raise Away(f"no answer from {self.url} ({error or type(error).__name__})") from None
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            return "This token is not known."
        if answer.status_code == HTTPStatus.FORBIDDEN:
            return "This token lacks the right to watch: monitor = true."
        return ""

    async def get(self, path: str, **parameters: object) -> Any:
        """The JSON answer of ``path``. Raises Away."""
        return await self.ask("GET", path, params={k: str(v) for k, v in parameters.items()})

    async def ask(self, method: str, path: str, **request: Any) -> Any:
        """The JSON answer of a request. Raises Away."""
        try:
            answer = await self._client().request(method, path, headers=dict(self.headers), **request)
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            raise Away(_told(path, error.response)) from None
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise Away(f"no answer from {self.url} ({error or type(error).__name__})") from None

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT, verify=self.verify, trust_env=False)
        return self._http


def _told(path: str, answer: httpx.Response) -> str:
    """What the daemon says is wrong; where it says nothing, its status."""
    try:
        return str(answer.json()["error"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return f"{path}: {answer.status_code} {answer.text[:200]}"


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
            for name in {fate, fate.partition(".")[0]}:
                found[f"fate/{name}"] = found.get(f"fate/{name}", 0) + count
    return found
