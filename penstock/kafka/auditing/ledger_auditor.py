"""The auditor that reports to the ledger: its counts appear in the balance as a tier of their own.

A report is a post of the ledger's protocol (``POST /ledger``): tier, source, incarnation, version, and absolute counts
by topic and minute. Invariant: counts only grow within an incarnation, so a lost or repeated post changes nothing; the
next post carries the same counts.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from penstock.counts import AUDIT_TIER, BUCKET_SECONDS, TIERS, Counts
from penstock.kafka.auditing.auditor import AuditType
from penstock.kafka.auditing.interval_auditor import AbstractAuditor, BadAuditorSetting, read_milliseconds
from penstock.kafka.auditing.stats import AuditKey, AuditStats, CountingAuditStats
from penstock.process.ledger_posts import LedgerPosts, ReportFailed

URL = "auditor.ledger.url"
TOKEN = "auditor.ledger.token"  # noqa: S105 - the name of a property
TOPIC = "auditor.ledger.topic"
TIER = "auditor.ledger.tier"
SOURCE = "auditor.ledger.source"
TIMEOUT = "auditor.ledger.timeout.ms"
CURRENT_PRODUCER = "current.producer"
DEFAULT_TIER = "kafka"
DEFAULT_TIMEOUT_MS = 5_000
EVENT_TYPE = "penstock.audit"
MAX_ENTRIES_PER_POST = 1_000
"""Limit: keeps a post below the request and message limits of servers and topics."""
MAX_AGE_S = 24 * 3600
MAX_AHEAD_S = 3600
"""Limit: times outside this range around now are clamped to it, which bounds the minutes in memory."""
_LOG = logging.getLogger("penstock.kafka.auditing.LedgerAuditor")
Minute = tuple[str, int]
"""Topic, and start of the minute in seconds since the epoch."""


class Sender(Protocol):
    """Transports posts to the ledger."""

    def send(self, post: dict[str, Any], retry: Callable[[], object], timeout: float) -> None:
        """Send one post. Calls ``retry`` if it turns out later that the post was lost. Raises ReportFailed."""

    def flush(self, timeout: float) -> None:
        """Wait for posts in flight."""


class LedgerAuditor(AbstractAuditor):
    """An auditor that counts by topic, minute and fate, and reports to the ledger at the end of every interval.

    ``auditor.ledger.url`` is the daemon's HTTP address (with ``auditor.ledger.token`` if it requires one).
    ``auditor.ledger.topic`` instead names a Kafka topic that the pipeline reads: each post is an event of type
    ``penstock.audit``, sent by the same producer (``current.producer``). The tier is ``auditor.ledger.tier`` (default
    ``kafka``), the source ``auditor.ledger.source`` (default ``client.id``).
    """

    properties = AbstractAuditor.properties | {URL, TOKEN, TOPIC, TIER, SOURCE, TIMEOUT}
    _tier, _source = DEFAULT_TIER, DEFAULT_TIER
    _timeout_s = DEFAULT_TIMEOUT_MS / 1000
    _sender: Sender

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply the settings. Raises BadAuditorSetting."""
        self._tier = str(config.get(TIER, DEFAULT_TIER))
        if not re.fullmatch(AUDIT_TIER, self._tier) or self._tier in TIERS:
            raise BadAuditorSetting(f"{TIER}: {self._tier!r} must match {AUDIT_TIER} and be none of {', '.join(TIERS)}")
        self._source = str(config.get(SOURCE) or config.get("client.id") or DEFAULT_TIER)
        self._timeout_s = read_milliseconds(config, TIMEOUT, DEFAULT_TIMEOUT_MS, minimum=1) / 1000
        self._sender = _sender(config)
        self._incarnation, self._version = uuid.uuid4().hex, 0
        self._totals: dict[Minute, Counts] = {}
        self._unreported: set[Minute] = set()
        self._lock = threading.Lock()  # guards _unreported and failures: delivery reports arrive on other threads
        self.failures = 0
        """Posts that did not arrive; their counts are sent again."""
        super().configure(config)

    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable:
        """Return topic, minute of the message (now without a timestamp) and fate."""
        seconds = (self.now() if timestamp is None or timestamp < 0 else timestamp) // 1000
        return AuditKey(topic, self._clamped_minute(seconds), audit_type)

    def lost(self, topic: str, reason: str, messages: int) -> None:
        """Count lost messages in the minute in which the loss was noticed."""
        now = self.now()
        self.count(AuditKey(topic, self._clamped_minute(now // 1000), reason), now, messages, 0)

    def _clamped_minute(self, seconds: int) -> int:
        now = self.now() // 1000
        seconds = min(max(seconds, now - MAX_AGE_S), now + MAX_AHEAD_S)
        return seconds - seconds % BUCKET_SECONDS

    def create_stats(self) -> AuditStats:
        """Return empty counts of messages and bytes."""
        return CountingAuditStats()

    def on_tick(self, stats: AuditStats) -> None:
        """Report an interval, and counts whose post failed before."""
        self._absorb(stats)
        self._post_unreported(self._timeout_s)

    def on_closed(self, current: AuditStats, following: AuditStats, timeout: float) -> None:
        """Report the remaining counts."""
        self._absorb(current)
        self._absorb(following)
        self._post_unreported(min(self._timeout_s, timeout))
        self._sender.flush(min(self._timeout_s, timeout))

    def close(self, timeout: float | None = None) -> None:
        """Report the remaining counts, also without a thread (``enable.auto.tick=false``)."""
        was_open = not self._closing
        super().close(timeout)
        if was_open and not self._auto and self._current is not None:
            self._report_remaining()

    def _absorb(self, stats: AuditStats) -> None:
        if not isinstance(stats, CountingAuditStats):
            return
        for key, count in stats.stats().items():
            if isinstance(key, AuditKey):
                minute = (key.topic, self._clamped_minute(key.bucket))
                name = key.audit_type.lower()
                sized = {f"{name}_bytes": count.size} if isinstance(key.audit_type, AuditType) else {}
                counts = {name: count.messages, **sized}
                self._totals.setdefault(minute, Counts()).absorb(counts)
                with self._lock:
                    self._unreported.add(minute)

    def _post_unreported(self, timeout: float) -> None:
        for minutes in _split_minutes(self._unreported_minutes()):
            with self._lock:
                # Order: removed before sending; counts that arrive during the send mark their minute again.
                self._unreported.difference_update(minutes)
            try:
                self._sender.send(self._build_post(minutes), partial(self._mark_unreported, minutes), timeout)
            except ReportFailed as error:
                self._mark_unreported(minutes)
                _LOG.warning("ledger auditor: counts not delivered, sending them again at the next interval: %s", error)
                break
        self._forget_old_minutes()

    def _unreported_minutes(self) -> list[Minute]:
        with self._lock:
            return sorted(self._unreported)

    def _mark_unreported(self, minutes: list[Minute]) -> None:
        with self._lock:
            self.failures += 1
            self._unreported.update(minutes)

    def _build_post(self, minutes: list[Minute]) -> dict[str, Any]:
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

    def _forget_old_minutes(self) -> None:
        # Times are clamped to MAX_AGE_S, so a count can no longer reach an older minute.
        oldest = self._clamped_minute(0)
        expired = [minute for minute in self._totals if minute[1] < oldest and minute not in self._unreported]
        for minute in expired:
            del self._totals[minute]


def _split_minutes(minutes: list[Minute]) -> Iterator[list[Minute]]:
    for index in range(0, len(minutes), MAX_ENTRIES_PER_POST):
        yield minutes[index : index + MAX_ENTRIES_PER_POST]


def _sender(config: Mapping[str, Any]) -> Sender:
    url, topic = config.get(URL), config.get(TOPIC)
    if bool(url) == bool(topic):
        raise BadAuditorSetting(f"the ledger auditor needs either {URL} or {TOPIC}")
    if url:
        return _HttpSender(str(url), config.get(TOKEN))
    producer = config.get(CURRENT_PRODUCER)
    if producer is None:
        raise BadAuditorSetting(f"{TOPIC}: only the auditor of a producer can send to a topic; use {URL}")
    return _TopicSender(str(topic), producer)


class _HttpSender:
    """Posts to the daemon's HTTP API."""

    def __init__(self, address: str, token: Any) -> None:
        self._posts = LedgerPosts(address, token=token)

    def send(self, post: dict[str, Any], retry: Callable[[], object], timeout: float) -> None:
        """Post and wait until the ledger stored it."""
        self._posts.post(post, max(timeout, 0.1))

    def flush(self, timeout: float) -> None:
        """Do nothing: ``send`` waits."""


class _TopicSender:
    """Sends each post to a Kafka topic, as an event with an id of its own."""

    def __init__(self, topic: str, producer: Any) -> None:
        self._topic, self._producer = topic, producer

    def send(self, post: dict[str, Any], retry: Callable[[], object], timeout: float) -> None:
        """Enqueue a post at the producer."""
        event = {
            "type": EVENT_TYPE,
            "uuid": f"{post['incarnation']}-{post['version']}",
            "timestamp": 1000 * max(entry["bucket"] for entry in post["counts"]),
            "data": post,
        }

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                retry()

        try:
            self._producer.produce(self._topic, value=json.dumps(event).encode(), on_delivery=on_delivery)
        except Exception as error:  # noqa: BLE001 - a full queue, or whatever the caller's producer raises
            raise ReportFailed(f"topic {self._topic!r} did not accept the counts: {error}") from None

    def flush(self, timeout: float) -> None:
        """Wait for deliveries."""
        self._producer.flush(timeout)
