"""The hosts that forward to Kafka: what each says it sent, and which of it has landed for certain.

A post is settled once the ends of all partitions were read after it, and the landing has reached them.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.counts import BUCKET_SECONDS
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.ledger.hosts.host_files import (
    MAX_FORMER_DISKS,
    HostFiles,
    how_to_forget,
    refuse_former_disk,
    with_new_disk,
)
from penstock.ledger.hosts.host_posts import checked_count, checked_text, post_fields
from penstock.ledger.hosts.hosts import MAX_CLOSED
from penstock.ledger.posts import LAST_SECOND, BadPost

KAFKA_HOST_TIER, ENDS_TIER = "kafka_host", "kafka_ends"
"""Tiers of a host's counts of its handlers, and of the ends of the partitions that the pipeline lands."""
FOLDER = "kafka-hosts"
"""Folder in the data directory, with one file for each host."""
MAX_PARTITIONS = 100_000
"""Limit: partitions in one post of ends."""
MAX_DELAY_S = 10.0
"""Limit: time that a post of ends takes, which waits 5 s for its answer; its age does not have it."""
MAX_PIPELINES = 100
"""Limit: pipelines that post the ends of their partitions."""
PIPELINE_SILENCE_S = 86_400.0
"""Time after which a pipeline that posts no ends counts as removed, and others settle without it."""
MINUTE_OVER_S = 2 * BUCKET_SECONDS
"""Time after the start of a minute at which a host with an empty buffer has sent all of it."""
_COUNTS = ("accepted", "forwarded", "failed", "dropped", "pending")
_BUCKET = re.compile(r"[0-9]{1,12}")
Minutes = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KafkaReport:
    """Counts of one listener's handler: ``accepted = forwarded + failed + dropped + pending``.

    ``minutes`` are the newest ones with their forwarded and failed messages; the rest of both sums is older.
    """

    accepted: int = 0
    forwarded: int = 0
    failed: int = 0
    dropped: int = 0
    pending: int = 0
    minutes: Minutes = field(default_factory=dict)

    @property
    def has_older(self) -> bool:
        """Report whether the sums have messages that are in none of the minutes."""
        separate = [sum(counts[place] for counts in self.minutes.values()) for place in (0, 1)]
        return separate != [self.forwarded, self.failed]

    def plus(self, addend: KafkaReport) -> KafkaReport:
        """Return the sum of both, with the newest minutes that both have separately."""
        # A minute before the oldest one of a report with older messages may hold messages of both, so it is left out.
        complete_from = max(
            (min(report.minutes, default=0) for report in (self, addend) if report.has_older), default=0
        )
        minutes = dict(self.minutes)
        for minute, (forwarded, failed) in addend.minutes.items():
            before = minutes.get(minute, (0, 0))
            minutes[minute] = (before[0] + forwarded, before[1] + failed)
        separate = sorted(minute for minute in minutes if minute >= complete_from)
        newest = {minute: minutes[minute] for minute in separate[-MAX_BUCKETS:]}
        sums = {name: getattr(self, name) + getattr(addend, name) for name in _COUNTS}
        return KafkaReport(**sums, minutes=newest)


@dataclass(frozen=True, slots=True)
class KafkaPost:
    """The newest post of a host: ``disk`` identifies its data directory, ``process`` and ``version`` order posts."""

    host: str
    disk: str
    process: str
    version: int
    time_ms: int
    software: str
    listeners: Mapping[str, KafkaReport]

    def document(self) -> dict[str, Any]:
        """Return the post as a JSON-ready mapping."""
        return {"tier": KAFKA_HOST_TIER, **asdict(self)}


def parse_kafka_post(document: Any) -> KafkaPost:
    """Parse the document of a host's post. Raises BadPost."""
    return KafkaPost(**post_fields(document, ("disk", "process", "software"), ("version", "time_ms"), _parse_report))


def _parse_report(document: object) -> KafkaReport:
    if not isinstance(document, dict):
        raise ValueError("the counts of a listener are not an object")
    minutes = document.get("minutes", {})
    if not isinstance(minutes, dict) or len(minutes) > MAX_BUCKETS:
        raise ValueError(f"minutes is not an object with at most {MAX_BUCKETS} names")
    parsed: dict[int, tuple[int, int]] = {}
    for minute, counts in minutes.items():
        if not _BUCKET.fullmatch(str(minute)) or not isinstance(counts, list | tuple) or len(counts) != 2:
            raise ValueError("a minute has its start in seconds and two counts")
        parsed[int(minute)] = (checked_count(counts[0]), checked_count(counts[1]))
    sums = {name: checked_count(document.get(name, 0)) for name in _COUNTS}
    if any(minute > LAST_SECOND or minute % BUCKET_SECONDS for minute in parsed) or any(
        sum(counts[place] for counts in parsed.values()) > sums[name]
        for place, name in enumerate(("forwarded", "failed"))
    ):
        raise ValueError("the minutes have more than their sum, or are not minutes")
    return KafkaReport(**sums, minutes=parsed)


@dataclass(frozen=True, slots=True)
class Closed:
    """The counts of a listener's former disks, and the minutes in which their last messages may have landed."""

    report: KafkaReport
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class KafkaHost:
    """The state of a host: its newest post, its former disks, and, in memory only, the posts that may be settled.

    ``received_ms`` is the time of the newest post, ``received_at`` the same by the monotonic clock (s), which orders
    posts and ends when the time is set. ``new_disks_ms`` are the times of the new disks of the last hour.
    """

    post: KafkaPost
    received_ms: int
    received_at: float
    closed: Mapping[str, Closed] = field(default_factory=dict)
    former_disks: tuple[str, ...] = ()
    new_disks_ms: tuple[int, ...] = ()
    waiting: tuple[float, KafkaPost] | None = None
    """The post whose messages the landing has not reached for certain, and when it was received."""
    settled: KafkaPost | None = None
    """The newest post whose messages have landed, if they were in Kafka."""

    def settle(self, until: float) -> KafkaHost:
        """Return the state after all messages of posts that were received before ``until`` have landed."""
        if self.received_at < until:
            return replace(self, settled=self.post, waiting=None)
        if self.waiting and self.waiting[0] < until:
            return replace(self, settled=self.waiting[1], waiting=None)
        return self

    def document(self) -> dict[str, Any]:
        """Return the durable state as a JSON-ready mapping."""
        return {
            "post": self.post.document(),
            "received_ms": self.received_ms,
            "closed": {name: asdict(entry) for name, entry in self.closed.items()},
            "former_disks": self.former_disks,
            "new_disks_ms": self.new_disks_ms,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], read_at: float) -> KafkaHost:
        """Return the state in a document. Raises BadPost, AttributeError, KeyError, TypeError and ValueError."""
        closed = {
            checked_text(name): Closed(_parse_report(entry["report"]), int(entry["since"]), int(entry["until"]))
            for name, entry in document["closed"].items()
        }
        return cls(
            parse_kafka_post(document["post"]),
            int(document["received_ms"]),
            read_at,
            closed,
            tuple(checked_text(disk) for disk in document.get("former_disks", ())),
            tuple(int(time_ms) for time_ms in document.get("new_disks_ms", ())),
        )


@dataclass(slots=True)
class _PipelineEnds:
    """The ends of a pipeline's partitions that it has not reached, with the time of their reading; times are monotonic.

    ``settled_at`` is the time of the reading of the newest ends that it has reached.
    """

    posted_at: float
    waiting: tuple[float, Mapping[str, int]] | None = None
    settled_at: float = -math.inf


class KafkaHostRegister:
    """The hosts that forward to Kafka. Threads: a lock for each method. Owned by the log daemon.

    ``through`` returns the offset up to which each partition has landed; ``now`` gives seconds since the epoch.
    Crash: a post is stored before it is answered.
    """

    def __init__(
        self,
        folder: Path,
        through: Callable[[], Mapping[str, int]],
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._through, self._now, self._monotonic = through, now, monotonic
        self._lock = threading.Lock()
        self._files = HostFiles(folder, lambda document: KafkaHost.from_document(document, monotonic()))
        self._pipelines: dict[str, _PipelineEnds] = {}
        self._settled_at = -math.inf

    def post(self, document: Any) -> bool:
        """Store a host's post; report whether it was new. Raises BadPost and OSError."""
        post = parse_kafka_post(document)
        with self._lock:
            self._settle()
            host = self._files.state_for_post(post.host)
            if host and host.post.process == post.process and host.post.version >= post.version:
                return False
            if host:
                refuse_former_disk(post.host, post.disk, host.former_disks, FOLDER)
            self._files.store(post.host, _enter(host, post, int(self._now() * 1000), self._monotonic()))
            return True

    def post_ends(self, document: Mapping[str, Any]) -> bool:
        """Enter the ends of a pipeline's partitions, read at most ``age_ms`` ago; report whether any host is
        registered. Raises BadPost.
        """
        ends = document.get("ends")
        if not isinstance(ends, dict) or len(ends) > MAX_PARTITIONS:
            raise BadPost(f"ends is not an object with at most {MAX_PARTITIONS} names")
        posted_at = self._monotonic()
        try:
            read_at = posted_at - checked_count(document.get("age_ms")) / 1000 - MAX_DELAY_S
            numbers = {checked_text(name[-100:]) and name: checked_count(end) for name, end in ends.items()}
            pipeline = checked_text(document.get("pipeline", ""))
        except ValueError as error:
            raise BadPost(f"not the ends of partitions: {error}") from None
        with self._lock:
            if pipeline not in self._pipelines and len(self._pipelines) >= MAX_PIPELINES:
                raise BadPost(f"{MAX_PIPELINES} pipelines post their ends already")
            self._settle()
            entry = self._pipelines.setdefault(pipeline, _PipelineEnds(posted_at))
            entry.posted_at = posted_at
            if entry.waiting is None:
                entry.waiting = read_at, numbers
            else:
                # Ends that wait are not replaced: with steady traffic newer ones would never be reached. Those of a
                # topic that was deleted or is no longer landed never will, nor those of one that begins again.
                began_at, waiting = entry.waiting
                entry.waiting = began_at, {n: min(end, numbers[n]) for n, end in waiting.items() if n in numbers}
            return self._files.has_hosts

    def settled_states(self) -> dict[str, KafkaHost]:
        """Settle posts, and return the states by host. A book that is read later has all messages of settled posts."""
        with self._lock:
            self._settle()
            return dict(self._files.states)

    def _settle(self) -> None:
        now = self._monotonic()
        through = self._through() if any(pipeline.waiting for pipeline in self._pipelines.values()) else {}
        for name, pipeline in list(self._pipelines.items()):
            if now - pipeline.posted_at > PIPELINE_SILENCE_S:
                del self._pipelines[name]
            elif pipeline.waiting is not None:
                read_at, ends = pipeline.waiting
                if all(through.get(partition, 0) >= end for partition, end in ends.items()):
                    pipeline.settled_at, pipeline.waiting = read_at, None
        # A host may forward to the topics of several pipelines, so each of them must have reached its ends.
        until = min((pipeline.settled_at for pipeline in self._pipelines.values()), default=-math.inf)
        # Fast path: posts since are newer than ends that were reached before.
        if until > self._settled_at:
            self._settled_at = until
            self._files.states = {name: host.settle(until) for name, host in self._files.states.items()}


def _enter(host: KafkaHost | None, post: KafkaPost, time_ms: int, received_at: float) -> KafkaHost:
    waiting = received_at, post
    if host is None:
        return KafkaHost(post, time_ms, received_at, waiting=waiting)
    if host.post.disk == post.disk:
        return replace(host, post=post, received_ms=time_ms, received_at=received_at, waiting=host.waiting or waiting)
    # A new disk: what was pending on the former one can never arrive, except what was sent after its last post.
    new_disks = with_new_disk(post.host, host.new_disks_ms, time_ms)
    since = host.received_ms // 1000 // BUCKET_SECONDS * BUCKET_SECONDS - MINUTE_OVER_S
    closed = dict(host.closed)
    for name, report in host.post.listeners.items():
        earlier = closed.get(name)
        if earlier or report != KafkaReport():
            total = earlier.report.plus(report) if earlier else report
            closed[name] = Closed(total, min(since, earlier.since) if earlier else since, time_ms // 1000)
    if len(closed) > MAX_CLOSED:
        raise BadPost(f"{post.host} has {MAX_CLOSED} listeners of former disks: {how_to_forget(post.host, FOLDER)}")
    former_disks = (*host.former_disks, host.post.disk)[-MAX_FORMER_DISKS:]
    return KafkaHost(post, time_ms, received_at, closed, former_disks, new_disks, waiting)
