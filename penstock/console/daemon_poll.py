"""Poll the log daemon for all open pages: one task sends each request once a second.

Invariant: the load on the daemon does not depend on the number of open pages. Pages read ``Daemon.latest`` and send
requests of their own only for what a user opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from penstock.console.history import LAGS_INTERVAL_POLLS, History, Lags
from penstock.console.people import NOBODY, Person, ReadOnly
from penstock.errors import PenstockError
from penstock.files.change_log import ChangeLog
from penstock.handover.heartbeat import STOPPED_AFTER_S
from penstock.handover.paths import PIPELINE
from penstock.ledger.receipt import Receipt, not_started_in, receipt
from penstock.qualified_names import is_partition

POLL_INTERVAL_S = 1.0
REQUEST_TIMEOUT_S = 5.0
UNKNOWN_AFTER_S = 2.2
"""Two polls and a margin: with the page's own check every 0.5 s, a dead daemon shows within three seconds."""
MAX_EVENTS = 200
TABLE_FACTS_INTERVAL_POLLS = 10
HOUR_S, HOUR_INTERVAL_POLLS = 3600, 3
"""Length of the recent balance, and polls between two of them: it reads the balance over time, which costs more."""
ALARMS_INTERVAL_POLLS = 30
"""Polls between two readings of the metrics, which cost the most with many topics."""
LOGIN_ENDED = "your login has ended or changed: load the page again"
Document = dict[str, Any]


class DaemonUnavailable(PenstockError):
    """The daemon did not respond, or with an error; the text says which."""


@dataclass(slots=True)
class Latest:
    """The latest answers of the daemon, shared by all pages."""

    balance: Document = field(default_factory=dict)
    stat: Document = field(default_factory=dict)
    hour: Document = field(default_factory=dict)
    """The balance of the last hour only."""
    events: list[Document] = field(default_factory=list)
    """Newest first."""
    names: frozenset[str] | None = None
    """Existing topics; None until they are first listed."""
    error: str = "no response yet"
    """Why there is no newer answer; empty after a complete one."""
    answered_s: float = 0.0
    """Time of the last complete answer, by the monotonic clock."""
    answered_unix_s: float = 0.0
    """Time of the last complete answer, in seconds since the epoch."""
    history: History = field(default_factory=History)
    lags: Lags = field(default_factory=Lags)
    alarms: dict[str, int] = field(default_factory=dict)
    """Alarms since the daemon's start, by the result of their delivery."""
    pipeline_runs: bool = False
    table_facts: Document = field(default_factory=dict)
    """Facts of the tables that belong to the balance: ``sent_back`` and ``unreadable`` (see ``receipt``)."""


def _of_latest(name: str) -> Any:
    # Daemons with different tokens share one ``Latest``; pages read it through any of them.
    return property(lambda self: getattr(self.latest, name), lambda self, value: setattr(self.latest, name, value))


@dataclass(slots=True)
class Daemon:
    """The log daemon at ``url``, its latest answers, and the credentials of requests.

    ``verify`` is httpx's TLS setting. ``person`` looks at the page. All methods run on the console's event loop.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    verify: Any = True
    latest: Latest = field(default_factory=Latest)
    person: Person = NOBODY
    changes: ChangeLog | None = None
    """The log that records changes of the person."""
    is_current: Callable[[], bool] = field(default=lambda: True)
    """Reports whether the login that opened the page still names the person."""
    read_table_facts: Callable[[], Document] = dict
    """Reads what the tables add to the balance; may block, and raise PenstockError and OSError."""
    _http: httpx.AsyncClient | None = None

    def for_person(self, person: Person, is_current: Callable[[], bool] = lambda: True) -> Daemon:
        """Return a daemon that sends its own requests for a person and shares the latest answers.

        A person with a token has the rights of the token; others have the rights of the console, limited by their role.
        """
        headers = {"authorization": f"Bearer {person.token}"} if person.token else self.headers
        shared = self.url, headers, self.verify, self.latest
        return Daemon(*shared, person, self.changes, is_current, _http=self._client())

    def check_operator(self) -> None:
        """Raise ReadOnly for a viewer, and for a page whose login has ended or changed."""
        # A page outlives its websocket: the browser connects again, with the login that it has then.
        if not self.is_current():
            raise ReadOnly(LOGIN_ENDED)
        self.person.check_operator()

    async def record(self, change: str, **details: str) -> None:
        """Record a change that the person made through a page."""
        if self.changes:
            name = self.person.name or "somebody"
            origin = f"console, {self.person.origin}" if self.person.origin else "console"
            await asyncio.to_thread(self.changes.record, name, change, origin, **details)

    @property
    def token(self) -> str:
        """Return the token that the person logged in with; "" without one."""
        return self.person.token

    balance = _of_latest("balance")
    stat = _of_latest("stat")
    hour = _of_latest("hour")
    events = _of_latest("events")
    error = _of_latest("error")
    answered_s = _of_latest("answered_s")
    history = _of_latest("history")

    @property
    def age(self) -> float:
        """Return the seconds since the last complete answer."""
        return time.monotonic() - self.latest.answered_s

    @property
    def unknown(self) -> bool:
        """Report whether the last complete answer is too old to describe the present."""
        return self.age > UNKNOWN_AFTER_S

    def unknown_since(self) -> str:
        """Return since when the state is unknown, and what to do."""
        received = self.latest.answered_unix_s
        since = f"Unknown since {time.strftime('%H:%M:%S', time.localtime(received))}" if received else "Not known yet"
        return f"{since}: the log daemon does not answer (penstock serve, or penstock up)"

    def existing_topics(self) -> list[Document]:
        """Return the topics of the balance without deleted ones, whose counts stay in the balance for its sums."""
        return [topic for topic in self.balance.get("topics", ()) if self.topic_exists(topic["topic"])]

    @property
    def is_empty(self) -> bool:
        """Report whether the daemon has answered and nothing was ever received."""
        if not self.balance:
            return False
        counts = [listener["counts"] for listener in self.balance.get("listeners", ())]
        return not any(map(any, map(dict.values, counts))) and not any(
            topic["logged"] for topic in self.balance.get("topics", ())
        )

    def topic_exists(self, topic: str) -> bool:
        """Report whether a topic exists. True while the names are unknown, and for partitions of Kafka."""
        return self.latest.names is None or topic in self.latest.names or is_partition(topic)

    def stopped_s(self, listener: str) -> float:
        """Return how long the listener's receiver has been stopped or hung (seconds).

        0 while it runs, and if it cannot start: the last heartbeat is that of a process that has ended.
        """
        if f"receiver {listener}" in {entry["process"] for entry in not_started_in(self.balance)}:
            return 0.0
        silent_s = float(self.stat.get("listeners", {}).get(listener, {}).get("silent_s", 0))
        return silent_s if silent_s > STOPPED_AFTER_S else 0.0

    @property
    def stopped_receivers(self) -> dict[str, float]:
        """Return the listeners whose receiver is stopped or hung, and for how long (seconds)."""
        return {name: stopped_s for name in self.stat.get("listeners", {}) if (stopped_s := self.stopped_s(name))}

    @property
    def pipeline_stopped_s(self) -> float:
        """Return how long a pipeline has been stopped (seconds); 0 while all run, and if there is none."""
        silent: dict[str, float] = self.balance.get("silent", {})
        return max((float(silent_s) for name, silent_s in silent.items() if name.split()[0] == PIPELINE), default=0.0)

    def silent_forwarders(self, listener: str) -> dict[str, float]:
        """Return the handlers of a listener whose forwarder is stopped or hangs in a delivery, and for how long
        (seconds).
        """
        handlers = self.stat.get("listeners", {}).get(listener, {}).get("handlers", ())
        silences = {handler["name"]: float(handler.get("silent_s", 0)) for handler in handlers}
        return {name: silent_s for name, silent_s in silences.items() if silent_s > STOPPED_AFTER_S}

    def not_started(self, listener: str) -> list[str]:
        """Return why processes of a listener cannot start, in words."""
        processes = f"receiver {listener} ", f"forwarder {listener} "
        return [entry["text"] for entry in not_started_in(self.balance) if f"{entry['process']} ".startswith(processes)]

    @property
    def silent_processes(self) -> dict[str, float]:
        """Return the pipeline, receivers and forwarders that are stopped or hang, and for how long (seconds)."""
        silent = {"pipeline": self.pipeline_stopped_s} if self.pipeline_stopped_s else {}
        silent |= {f"receiver {name}": stopped_s for name, stopped_s in self.stopped_receivers.items()}
        for name in self.stat.get("listeners", {}):
            silent |= {f"forwarder {name} {label}": s for label, s in self.silent_forwarders(name).items()}
        return silent

    def rate(self, *names: str) -> float | None:
        """Return the summed growth of some counters per second; None while the state is unknown."""
        return None if self.unknown else sum(map(self.history.rate, names))

    @property
    def receipt(self) -> Receipt | None:
        """Return the receipt of the latest balance; None before the first one."""
        return receipt(self.local_balance()) if self.balance else None

    def local_balance(self) -> Document:
        """Return the latest balance with the facts that only this machine knows (see ``receipt``)."""
        starts = self.latest.pipeline_runs and not any(t["read_by_pipeline"] for t in self.balance.get("topics", ()))
        balance: Document = self.balance
        return balance | {"pipeline_starts": starts} | self.latest.table_facts

    async def poll_forever(self) -> None:
        """Poll until the task is cancelled; an unreachable daemon is polled again."""
        # Order: before the balance, so that the first one a page shows has it.
        await (counting := asyncio.create_task(self._update_table_facts()))
        for number in itertools.count():
            # A million rows take seconds, so the polls do not wait for them.
            if number and number % TABLE_FACTS_INTERVAL_POLLS == 0 and counting.done():
                counting = asyncio.create_task(self._update_table_facts())
            with contextlib.suppress(DaemonUnavailable):
                await self.poll()
                # Order: after ``poll``, which raises if the daemon is unreachable and so skips these requests.
                if number % HOUR_INTERVAL_POLLS == 0:
                    self.latest.names = frozenset(
                        topic["name"] for topic in (await self.get("/topics")).get("topic", ())
                    )
                    await self.poll_hour()
                if number % ALARMS_INTERVAL_POLLS == 0:
                    await self.poll_alarms()
                if number % LAGS_INTERVAL_POLLS == 0:
                    self.latest.lags.add(self.answered_s, (await self.get("/cursors")).get("cursor", ()))
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _update_table_facts(self) -> None:
        with contextlib.suppress(PenstockError, OSError):
            self.latest.table_facts = await asyncio.to_thread(self.read_table_facts)

    async def poll(self) -> None:
        """Replace the latest answers with new ones. Raises DaemonUnavailable."""
        try:
            responses = await asyncio.gather(
                self.get("/balance"), self.get("/stat"), self.get("/events", limit=MAX_EVENTS)
            )
        except DaemonUnavailable as error:
            self.error = str(error)
            raise
        # Order: all three answers first, so that a page never combines a new balance with old statistics.
        self.balance, self.stat, self.events = responses[0], responses[1], responses[2]["events"]
        self.error, self.answered_s, self.latest.answered_unix_s = "", time.monotonic(), time.time()
        self.history.add(self.answered_s, counters(self.balance))

    async def poll_hour(self) -> None:
        """Replace the balance of the last hour. Raises DaemonUnavailable."""
        self.hour = await self.get("/balance", since=int(time.time()) - HOUR_S)

    async def poll_alarms(self) -> None:
        """Replace the results of alarms. Raises DaemonUnavailable."""
        self.latest.alarms = alarms_by_result((await self._send("GET", "/metrics")).text)

    async def readable_topics(self) -> frozenset[str] | None:
        """Return the topics that this token may read; None (all) without a login. Raises DaemonUnavailable."""
        if not self.token:
            return None
        return frozenset(topic["name"] for topic in (await self.get("/topics")).get("topic", ()))

    async def token_error(self) -> str:
        """Return why the token may not watch this daemon; "" if it may. Raises DaemonUnavailable."""
        try:
            response = await self._client().get("/stat", headers=dict(self.headers))
        except httpx.HTTPError as error:
            raise DaemonUnavailable(f"no response from {self.url} ({error or type(error).__name__})") from None
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            return "This token is unknown."
        if response.status_code == HTTPStatus.FORBIDDEN:
            return "This token lacks the right to watch: monitor = true."
        return ""

    async def get(self, path: str, **parameters: object) -> Any:
        """Return the JSON response of a GET request. Raises DaemonUnavailable."""
        return await self.request("GET", path, params={k: str(v) for k, v in parameters.items()})

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON response of a request; ``options`` are httpx's. Raises DaemonUnavailable, ReadOnly."""
        # Invariant: every change of a page goes through here or asks ``check_operator`` itself.
        if method != "GET":
            self.check_operator()
        elif not self.is_current():  # the token would read what the present person may not
            raise DaemonUnavailable(LOGIN_ENDED)
        response = await self._send(method, path, **options)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise DaemonUnavailable(f"no response from {self.url} ({error})") from None

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._client().request(method, path, headers=dict(self.headers), **options)
            response.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise DaemonUnavailable(_error_text(path, error.response)) from None
        except httpx.HTTPError as error:
            raise DaemonUnavailable(f"no response from {self.url} ({error or type(error).__name__})") from None
        return response

    def _client(self) -> httpx.AsyncClient:
        # Created on first use: httpx binds a client to the running event loop.
        if self._http is None:
            # Without trust_env=False httpx sends requests for 127.0.0.1 to a proxy named in the environment.
            self._http = httpx.AsyncClient(
                base_url=self.url, timeout=REQUEST_TIMEOUT_S, verify=self.verify, trust_env=False
            )
        return self._http


def _error_text(path: str, response: httpx.Response) -> str:
    """Return the daemon's error message, or the status if the response has none."""
    try:
        return str(response.json()["error"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return f"{path}: {response.status_code} {response.text[:200]}"


def alarms_by_result(metrics: str) -> dict[str, int]:
    """Return the alarms by the result of their delivery, from the text of the metrics."""
    samples = re.findall(r'^penstock_alarms_total\{[^}]*result="(\w+)"[^}]*\} (\d{1,18})', metrics, re.MULTILINE)
    totals = Counter[str]()
    for result, number in samples:
        totals[result] += int(number)
    return dict(totals)


def counters(balance: Document) -> dict[str, float]:
    """Return the monotonic counters of a balance by name: ``listener/NAME/COUNT``, ``route/...``, ``topic/...``,
    ``fate/...``.
    """
    totals: dict[str, float] = {}
    for listener in balance.get("listeners", ()):
        for name, count in listener["counts"].items():
            totals[f"listener/{listener['name']}/{name}"] = count
    for route in balance.get("routes", ()):
        for name in ("accepted", "delivered", "policy_drop", "handler_failed", "corrupt"):
            totals[f"route/{route['source']}/{route['handler']}/{name}"] = route.get(name, 0)
    for topic in balance.get("topics", ()):
        totals[f"topic/{topic['topic']}/logged"] = topic["logged"]
        for fate, count in topic["fates"].items():
            totals[f"topic/{topic['topic']}/{fate}"] = count
            # Sums by fate and by its stem (``quarantined`` of ``quarantined.bad_json``), once if both are the same.
            for name in {fate, fate.partition(".")[0]}:
                totals[f"fate/{name}"] = totals.get(f"fate/{name}", 0) + count
    return totals
