"""What watches over the daemon: statistics, metrics, the balance, and the ledger's door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Body

from penstock.config import Settings
from penstock.ingest.files import state_file
from penstock.ingest.statepage import STATISTICS, StatePage
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import BadPost
from penstock.log import InvalidTopicName, Log, LogError, UnknownTopic
from penstock.server.errors import BadRequest, Exhausted, NoSuchTopic
from penstock.server.metrics import Family

NOT_SUMMED = ("version", "uptime", "handlers", "pid", "incarnation", "receive_buffer", "total")


class Reports:
    """Answers for one daemon. Blocking: to be called on threads."""

    def __init__(self, settings: Settings, log: Log, ledger: Ledger) -> None:
        self._settings, self._log, self._ledger = settings, log, ledger

    def stat(self) -> dict[str, Any]:
        """plog's statistics by listener, and in sum."""
        listeners: dict[str, Any] = {}
        for listener in self._settings.listener:
            path = state_file(self._settings.buffers, listener.name)
            if path.exists():
                page = StatePage(path)
                listeners[listener.name] = page.read(STATISTICS) or {}
                page.close()
        return {"listeners": listeners, "sum": add_up(list(listeners.values()))}

    def balance(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The balance; ``?bucket=SECONDS`` for one minute alone. Raises BadRequest."""
        bucket = query.get("bucket")
        if bucket is not None and not (bucket.isascii() and bucket.isdigit()):
            raise BadRequest("bucket is the start of a minute in seconds since the epoch")
        return self._ledger.balance(int(bucket) if bucket is not None else None).document()

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
        return [
            Family("penstock_listener_count_total", "counter", "What a listener counted, by name", counts),
            Family("penstock_topic_fate_total", "counter", "What became of a topic's messages", fates),
            Family("penstock_topic_end_offset", "gauge", "End of a topic's offsets", ends),
            Family("penstock_pending", "gauge", "Messages on their way", [({}, balance.pending)]),
            Family("penstock_unaccounted", "gauge", "Messages unaccounted for", [({}, balance.unaccounted)]),
        ]

    def router(self) -> APIRouter:
        """The ledger's routes, and the one that has a range of a topic checked."""
        router = APIRouter(tags=["ledger"])
        router.add_api_route("/ledger", self._get, methods=["GET"], summary="What has landed, by topic")
        router.add_api_route("/ledger", self._post, methods=["POST"], summary="Post absolute counts")
        router.add_api_route(
            "/topic/{topic}/verify", self._verify, methods=["POST"], summary="Check a range's checksums"
        )
        return router

    def _get(self, tier: str = "landed") -> dict[str, Any]:
        if tier != "landed":
            raise BadRequest("tier must be landed")
        landed = self._ledger.landed()
        return {"topics": {name: {"version": x.version, "through": x.through} for name, x in landed.items()}}

    def _post(self, document: Any = Body()) -> dict[str, Any]:  # noqa: B008 - how FastAPI is told
        try:
            return {"new": self._ledger.post(document)}
        except BadPost as error:
            raise BadRequest(str(error)) from None
        except LogError as error:
            raise Exhausted(str(error)) from None

    def _verify(self, topic: str, begin: int, end: int) -> dict[str, Any]:
        try:
            gaps = self._log.topic(topic, internal=True).verify(begin, end)
        except (UnknownTopic, InvalidTopicName):
            raise NoSuchTopic(f"Topic does not exist: {topic}") from None
        except LogError as error:
            raise Exhausted(str(error)) from None
        return {"gaps": [{"begin": gap.begin, "end": gap.end, "reason": gap.reason} for gap in gaps]}


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
