"""What watches over the daemon: statistics, metrics, the balance, and posts to the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from penstock.config import Settings
from penstock.config.explain import keys_of
from penstock.handover.paths import state_file
from penstock.handover.state_page import STATISTICS, StatePage
from penstock.ledger.balance import LAST, Within, minutes
from penstock.ledger.event_words import merged
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import BadPost
from penstock.log import InvalidTopicName, Log, LogError, UnknownTopic
from penstock.server.auth.rights import ANONYMOUS, Principal
from penstock.server.http.described_routes import DescribedRoute
from penstock.server.http.request_bodies import json_object
from penstock.server.metrics.prometheus import Family, statistics_families
from penstock.server.metrics.topic_metrics import topic_families
from penstock.server.reading.query import LAST_OFFSET
from penstock.slogd.errors import BadRequest, Exhausted, NoSuchTopic

MAX_DIGITS = 15
"""Of a number in a query."""
MOST_EVENTS = 100
"""In an answer, where nothing else is asked for."""
NOT_SUMMED = ("version", "uptime", "handlers", "pid", "incarnation", "receive_buffer")


ROUTE_FATES = ("delivered", "policy_drop", "handler_failed", "corrupt")


class MonitoringApi:
    """Answers for one daemon. Blocking: to be called on threads."""

    def __init__(self, settings: Settings, log: Log, ledger: Ledger, *further: Callable[[], Family]) -> None:
        """``further``: metrics of others."""
        self.settings, self._log, self._ledger, self._further = settings, log, ledger, further

    def stat(self) -> dict[str, Any]:
        """plog's statistics by listener, and in sum."""
        listeners: dict[str, Any] = {}
        for listener in self.settings.listener:
            path = state_file(self.settings.buffers, listener.name)
            if path.exists():
                page = StatePage(path)
                listeners[listener.name] = page.read(STATISTICS) or {}
                page.close()
        return {"listeners": listeners, "sum": add_up(list(listeners.values()))}

    def balance(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The balance; ``?bucket=SECONDS`` for one minute alone, ``?since=`` and ``?until=`` for those between.

        Raises BadRequest.
        """
        within = _within(query)
        audits = [asdict(one) for one in self._ledger.audits(within)]
        return self._ledger.balance(within).document() | {"audits": audits, "clock": self._log.clock.state().text()}

    def metrics(self) -> list[Family]:
        """Counts by listener, topic and fate."""
        balance = self._ledger.balance()
        counts = [
            ({"listener": listener.name, "name": name}, count)
            for listener in balance.listeners
            for name, count in listener.counts.items()
        ]
        fates = [
            ({"topic": topic.topic, "fate": fate}, count)
            for topic in balance.topics
            for fate, count in topic.fates.items()
        ]
        ends = [({"topic": topic.topic}, topic.end) for topic in balance.topics]
        routes = [
            ({"listener": route.source, "handler": route.handler, "fate": fate}, getattr(route, fate))
            for route in balance.routes
            for fate in ROUTE_FATES
        ]
        waits = [({"listener": route.source, "handler": route.handler}, route.in_buffer) for route in balance.routes]
        marks = [({"table": mark.table, "topic": mark.topic}, mark.until) for mark in self._ledger.watermarks()]
        return [
            *statistics_families(self.stat()["listeners"]),
            Family("penstock_listener_count_total", "counter", "What a listener counted, by name", counts),
            Family("penstock_route_fate_total", "counter", "What became of a listener's messages, by handler", routes),
            Family("penstock_route_in_buffer", "gauge", "Messages that wait for a handler", waits),
            Family("penstock_topic_fate_total", "counter", "What became of a topic's messages", fates),
            Family("penstock_topic_end_offset", "gauge", "End of a topic's offsets", ends),
            *topic_families(self._log),
            Family("penstock_watermark_timestamp_seconds", "gauge", "Time up to which a table is complete", marks),
            Family("penstock_pending", "gauge", "Messages on their way", [({}, balance.pending)]),
            Family("penstock_unaccounted", "gauge", "Messages unaccounted for", [({}, balance.unaccounted)]),
            *(family() for family in self._further),
        ]

    def series(self, since: int = 0, step: int = 60) -> dict[str, Any]:
        """The balance over time."""
        return self._ledger.series(since, step)

    def watermarks(self, caller: Principal = ANONYMOUS) -> dict[str, Any]:
        """How far the tables are complete, of the topics that the caller may read."""

        def seen(topic: str) -> bool:
            return caller.monitor or caller.reads(topic, self._log.settings(topic))

        return {"tables": [asdict(mark) for mark in self._ledger.watermarks() if seen(mark.topic)]}

    def config(self) -> dict[str, Any]:
        """The configuration in force, secrets masked."""
        return {"keys": [asdict(key) for key in keys_of(self.settings)]}

    def clock(self) -> dict[str, Any]:
        """Whether the clock is believed."""
        return self._log.clock.state().document()

    def _clock(self, request: Request) -> dict[str, Any]:
        """Since a jump it is not: then ``text`` says what waits, and for how long. For those who may ``monitor``."""
        request.state.caller.check_monitor()
        return self.clock()

    def _accept(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_admin()
        self._log.clock.accept()
        return self.clock()

    def routes(self) -> list[DescribedRoute]:
        """The ledger's routes, and the one that has a range of a topic checked."""
        route, verify = partial(DescribedRoute, tag="ledger"), "/topic/{topic}/verify"
        return [
            route("/config", "GET", self._config, "The configuration in force"),
            route("/balance/series", "GET", self._series, "The balance over time", query="SeriesQuery"),
            route("/clock", "GET", self._clock, "Whether the clock is believed"),
            route("/clock", "POST", self._accept, "Believe the clock as it is"),
            route("/watermarks", "GET", self._watermarks, "How far tables are complete"),
            route("/events", "GET", self._events, "What happened, newest first", query="EventsQuery"),
            route("/ledger", "GET", self._landed, "What has landed, by topic", query="TierQuery"),
            route("/ledger", "POST", self._post, "Post absolute counts", body="LedgerPost"),
            route(verify, "POST", self._verify, "Check a range's checksums", query="VerifyQuery"),
        ]

    def _config(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        return self.config()

    def _series(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        query = request.query_params
        return self.series(_number(query, "since", 0), max(_number(query, "step", 60), 1))

    def _watermarks(self, request: Request) -> dict[str, Any]:
        return self.watermarks(request.state.caller)

    def _events(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        query = request.query_params
        return self.events(_number(query, "since", 0), _number(query, "limit", MOST_EVENTS))

    def events(self, since: int = 0, limit: int = MOST_EVENTS) -> dict[str, Any]:
        """The timeline from ``since`` (seconds since the epoch) on, newest first, ``limit`` at most; in words, too."""
        found = merged([event.document() for event in self._ledger.events()])
        return {"events": [event for event in found if max(event["at"], event["until"]) >= since * 1000][:limit]}

    def _landed(self, request: Request) -> dict[str, Any]:
        if not request.state.caller.ledger:
            request.state.caller.check_monitor()
        return self._get(request.query_params.get("tier", "landed"))

    def _get(self, tier: str) -> dict[str, Any]:
        if tier != "landed":
            return self._audits(tier)
        landed = self._ledger.landed()
        return {
            "topics": {
                name: {"version": x.version, "through": x.through, "deletion": x.deletion} for name, x in landed.items()
            }
        }

    def _audits(self, tier: str) -> dict[str, Any]:
        audits = self._ledger.audits()
        if tier not in (tiers := sorted({one.tier for one in audits})):
            named = f", or what an auditor told of: {', '.join(tiers)}" if tiers else ""
            raise BadRequest(f"tier must be landed{named}")
        return {"tier": tier, "audits": [asdict(one) for one in audits if one.tier == tier]}

    async def _post(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_ledger()
        document = await json_object(request)
        return await run_in_threadpool(self.post, document)

    def post(self, document: Any) -> dict[str, Any]:
        """Enter a post; whether it was new. Raises BadRequest, Exhausted."""
        try:
            return {"new": self._ledger.post(document)}
        except BadPost as error:
            raise BadRequest(str(error)) from None
        except LogError as error:
            raise Exhausted(str(error)) from None

    def _verify(self, topic: str, request: Request) -> dict[str, Any]:
        begin, end = (_number(request.query_params, name, 0, LAST_OFFSET) for name in ("begin", "end"))
        request.state.caller.check_read(topic, self._log.settings(topic))
        try:
            gaps = self._log.topic(topic, internal=True).verify(begin, end or None)
        except (UnknownTopic, InvalidTopicName):
            raise NoSuchTopic(f"Topic does not exist: {topic}") from None
        except LogError as error:
            raise Exhausted(str(error)) from None
        return {"gaps": [{"begin": gap.begin, "end": gap.end, "reason": gap.reason} for gap in gaps]}


def _within(query: Mapping[str, str]) -> Within:
    """The minutes that a query asks for. Raises BadRequest."""
    given = {name: query[name] for name in ("bucket", "since", "until") if name in query}
    for name, text in given.items():
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            meaning = "the start of a minute" if name == "bucket" else "a time"
            raise BadRequest(f"{name} is {meaning} in seconds since the epoch")
    if "bucket" in given:
        if len(given) > 1:
            raise BadRequest("bucket is one minute alone: it goes with neither since nor until")
        return int(given["bucket"])
    return minutes(int(given.get("since", 0)), int(given.get("until", LAST))) if given else None


def _number(query: Mapping[str, str], name: str, default: int, largest: int = 10**MAX_DIGITS) -> int:
    """A whole number of a query. Raises BadRequest."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and int(text) <= largest):
        raise BadRequest(f"{name} is a whole number from 0 to {largest}")
    return int(text)


def add_up(statistics: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of several listeners' statistics, arrays place by place."""
    total: dict[str, Any] = {}
    for one in statistics:
        for key, value in one.items():
            if key not in NOT_SUMMED:
                total[key] = _add(total.get(key), value)
    return total


def _add(left: Any, right: Any) -> Any:
    if left is None:
        return right
    if isinstance(right, dict):
        return {key: _add(left.get(key), right.get(key, 0)) for key in {**left, **right}}
    if isinstance(right, list):
        return [_add(a, b) for a, b in zip(left, right, strict=True)]
    return left + right
