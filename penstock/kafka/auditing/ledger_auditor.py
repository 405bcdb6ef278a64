"""The auditor that tells the ledger: its counts stand in the balance as a tier of their own.

What is told is a post of the ledger's protocol (``POST /ledger``): tier, source, incarnation, version, and absolute
counts by topic and minute. One that is lost, or comes twice, changes nothing; the next one carries the same counts.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from penstock.counts import AUDIT_TIER, BUCKET_SECONDS, TIERS, Counts
from penstock.errors import PenstockError
from penstock.kafka.auditing.auditor import AuditType
from penstock.kafka.auditing.interval_auditor import AbstractAuditor, BadAuditorSetting, millis
from penstock.kafka.auditing.stats import AuditKey, AuditStats, CountingAuditStats

URL = "auditor.ledger.url"
TOKEN = "auditor.ledger.token"  # noqa: S105 - the name of a property
TOPIC = "auditor.ledger.topic"
TIER = "auditor.ledger.tier"
SOURCE = "auditor.ledger.source"
TIMEOUT = "auditor.ledger.timeout.ms"
CURRENT_PRODUCER = "current.producer"
DEFAULT_TIER = "kafka"
DEFAULT_TIMEOUT = 5_000
EVENT_TYPE = "penstock.audit"
MOST_ENTRIES = 1_000
"""Counts of one post at most, so that it stays below what servers and topics take."""
PAST = 24 * 3600
FUTURE = 3600
"""Seconds around now beyond which a message's time counts as the bound itself, so that minutes kept are few."""
_LOG = logging.getLogger("penstock.kafka.auditing.LedgerAuditor")
Minute = tuple[str, int]
"""Topic, and start of the minute in seconds since the epoch."""


class NotTold(PenstockError, OSError):
    """A post did not reach the ledger; the text says why."""


class Sender(Protocol):
    """Takes one post to the ledger."""

    def send(self, post: dict[str, Any], again: Callable[[], object], timeout: float) -> None:
        """Raises NotTold; calls ``again`` where it turns out later that the post did not arrive."""

    def flush(self, timeout: float) -> None:
        """Wait for what is on its way."""


class LedgerAuditor(AbstractAuditor):
    """Counts by topic, minute and what happened, and tells the ledger at the end of every interval.

    ``auditor.ledger.url`` is the daemon's HTTP address (with ``auditor.ledger.token`` where it asks for one);
    ``auditor.ledger.topic``, in its place, a Kafka topic that the pipeline reads: there each post is an event of type
    ``penstock.audit``, sent by the same producer (``current.producer``). The tier is ``kafka`` unless
    ``auditor.ledger.tier`` names it, the source ``client.id`` unless ``auditor.ledger.source`` does.
    """

    properties = AbstractAuditor.properties | {URL, TOKEN, TOPIC, TIER, SOURCE, TIMEOUT}
    _tier, _source = DEFAULT_TIER, DEFAULT_TIER
    _timeout = DEFAULT_TIMEOUT / 1000
    _sender: Sender

    def configure(self, config: Mapping[str, Any]) -> None:
        """See above. Raises BadAuditorSetting."""
        self._tier = str(config.get(TIER, DEFAULT_TIER))
        if not re.fullmatch(AUDIT_TIER, self._tier) or self._tier in TIERS:
            raise BadAuditorSetting(f"{TIER}: {self._tier!r} must match {AUDIT_TIER} and be none of {', '.join(TIERS)}")
        self._source = str(config.get(SOURCE) or config.get("client.id") or DEFAULT_TIER)
        self._timeout = millis(config, TIMEOUT, DEFAULT_TIMEOUT, least=1) / 1000
        self._sender = _sender(config)
        self._incarnation, self._version = uuid.uuid4().hex, 0
        self._totals: dict[Minute, Counts] = {}
        self._untold: set[Minute] = set()
        self._lock = threading.Lock()  # of what is untold: deliveries are heard of on other threads
        self.failures = 0
        """Posts that did not arrive; what they told is told again."""
        super().configure(config)

    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable:
        """Topic, minute of the message (of now where it has none) and type."""
        seconds = (self.now() if timestamp is None or timestamp < 0 else timestamp) // 1000
        return AuditKey(topic, self._minute(seconds), audit_type)

    def lost(self, topic: str, reason: str, messages: int) -> None:
        """Count what nobody gets too, in the minute in which it turned out."""
        now = self.now()
        self.count(AuditKey(topic, self._minute(now // 1000), reason), now, messages, 0)

    def _minute(self, seconds: int) -> int:
        now = self.now() // 1000
        seconds = min(max(seconds, now - PAST), now + FUTURE)
        return seconds - seconds % BUCKET_SECONDS

    def create_stats(self) -> AuditStats:
        """Counts of messages and bytes."""
        return CountingAuditStats()

    def on_tick(self, stats: AuditStats) -> None:
        """Tell an interval, and what could not be told before."""
        self._absorb(stats)
        self._tell(self._timeout)

    def on_closed(self, current: AuditStats, following: AuditStats, timeout: float) -> None:
        """Tell what is left."""
        self._absorb(current)
        self._absorb(following)
        self._tell(min(self._timeout, timeout))
        self._sender.flush(min(self._timeout, timeout))

    def close(self, timeout: float | None = None) -> None:
        """Also without a thread (``enable.auto.tick=false``) everything is told."""
        was_open = not self._closing
        super().close(timeout)
        if was_open and not self._auto and self._current is not None:
            self._end()

    def _absorb(self, stats: AuditStats) -> None:
        if not isinstance(stats, CountingAuditStats):
            return
        for key, count in stats.stats().items():
            if isinstance(key, AuditKey):
                minute = (key.topic, self._minute(key.bucket))
                name = key.audit_type.lower()
                sized = {f"{name}_bytes": count.size} if isinstance(key.audit_type, AuditType) else {}
                told = {name: count.messages, **sized}
                self._totals.setdefault(minute, Counts()).absorb(told)
                with self._lock:
                    self._untold.add(minute)

    def _tell(self, timeout: float) -> None:
        for minutes in _parts(self._waiting()):
            with self._lock:
                self._untold.difference_update(minutes)
            try:
                self._sender.send(self._post(minutes), partial(self._again, minutes), timeout)
            except NotTold as error:
                self._again(minutes)
                _LOG.warning("counts wait to be told again: %s", error)
                break
        self._forget()

    def _waiting(self) -> list[Minute]:
        with self._lock:
            return sorted(self._untold)

    def _again(self, minutes: list[Minute]) -> None:
        with self._lock:
            self.failures += 1
            self._untold.update(minutes)

    def _post(self, minutes: list[Minute]) -> dict[str, Any]:
        self._version += 1
        counts = [
            {"topic": topic, "bucket": bucket, "counts": self._totals[topic, bucket].pruned()}
            for topic, bucket in minutes
        ]
        return {
            "tier": self._tier,
            "source": self._source,
            "incarnation": self._incarnation,
            "version": self._version,
            "counts": counts,
        }

    def _forget(self) -> None:
        """Minutes that nothing can come to any more."""
        oldest = self._minute(0)
        gone = [minute for minute in self._totals if minute[1] < oldest and minute not in self._untold]
        for minute in gone:
            del self._totals[minute]


def _parts(minutes: list[Minute]) -> Iterator[list[Minute]]:
    for place in range(0, len(minutes), MOST_ENTRIES):
        yield minutes[place : place + MOST_ENTRIES]


def _sender(config: Mapping[str, Any]) -> Sender:
    url, topic = config.get(URL), config.get(TOPIC)
    if bool(url) == bool(topic):
        raise BadAuditorSetting(f"the ledger's auditor needs either {URL} or {TOPIC}")
    if url:
        return _Http(str(url), config.get(TOKEN))
    producer = config.get(CURRENT_PRODUCER)
    if producer is None:
        raise BadAuditorSetting(f"{TOPIC}: only a producer's auditor can send to a topic")
    return _Topic(str(topic), producer)


class _Http:
    """The daemon's own door."""

    def __init__(self, address: str, token: Any) -> None:
        self._url = (address if "://" in address else f"http://{address}").rstrip("/") + "/ledger"
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def send(self, post: dict[str, Any], again: Callable[[], object], timeout: float) -> None:
        """Post it, and have it kept."""
        request = urllib.request.Request(self._url, json.dumps(post).encode(), self._headers)
        try:
            with urllib.request.urlopen(request, timeout=max(timeout, 0.1)) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            raise NotTold(f"{self._url} answers {error.code}: {error.read(300).decode(errors='replace')}") from None
        except (OSError, ValueError) as error:
            raise NotTold(f"nobody answers at {self._url}: {getattr(error, 'reason', error)}") from None

    def flush(self, timeout: float) -> None:
        """Nothing is on its way."""


class _Topic:
    """A Kafka topic, each post an event with an id of its own."""

    def __init__(self, topic: str, producer: Any) -> None:
        self._topic, self._producer = topic, producer

    def send(self, post: dict[str, Any], again: Callable[[], object], timeout: float) -> None:
        """Hand it to the producer, whose queue may be full."""
        event = {
            "type": EVENT_TYPE,
            "uuid": f"{post['incarnation']}-{post['version']}",
            "timestamp": 1000 * max(entry["bucket"] for entry in post["counts"]),
            "data": post,
        }

        def told(error: Any, message: Any) -> None:
            if error is not None:
                again()

        try:
            self._producer.produce(self._topic, value=json.dumps(event).encode(), on_delivery=told)
        except Exception as error:  # noqa: BLE001 - a full queue, or whatever the caller's producer raises
            raise NotTold(f"the topic {self._topic!r} takes no counts: {error}") from None

    def flush(self, timeout: float) -> None:
        """Have it delivered."""
        self._producer.flush(timeout)
