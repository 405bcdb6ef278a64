"""The book: every tier's counts by source and bucket, in memory.

``received`` and ``logged`` are entered from the batches of the log themselves (their documents carry the
receivers' counts), ``landed``, ``client`` and auditors' tiers from posts. So the book is a cache: it can be computed
again from segments, gaps and posts at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.counts import Counts, Name, Origin, SourceBucket, by_bucket, summed
from penstock.ledger.daily_rollup import CLOSED, LEAST, day_of, plus, roll_counts, roll_rows, roll_told, rolled_key
from penstock.ledger.posts import (
    LARGEST,
    SUM,
    AuditPost,
    ClientPost,
    EventPost,
    LandedPost,
    Post,
    is_partition,
)
from penstock.log.store.gaps import Gap


@dataclass(slots=True)
class TopicFates:
    """What became of a topic's offsets before ``through``, and of those in ``ahead``.

    ``refills``: request and version of what was told out of turn; ``deletion``: the last one that was told.
    """

    through: int = 0
    version: int = -1
    counts: dict[SourceBucket, Counts] = field(default_factory=dict)
    uuids: dict[SourceBucket, Counts] = field(default_factory=dict)
    ahead: tuple[tuple[int, int], ...] = ()
    refills: frozenset[tuple[int, int]] = frozenset()
    deletion: int = 0

    def copy(self) -> TopicFates:
        """A copy that shares nothing that changes."""
        return replace(self, counts=dict(self.counts), uuids=dict(self.uuids))

    def beyond(self, end: int) -> list[tuple[int, int]]:
        """The offsets before ``end`` of which nothing was told, as runs."""
        left, at = [], self.through
        for begin, stop in [*sorted(self.ahead), (end, end)]:
            if begin > at:
                left.append((at, min(begin, end)))
            at = max(at, stop)
        return [(begin, stop) for begin, stop in left if begin < stop]


MOST_EVENTS = 10_000
"""That are kept."""
Life = tuple[str, str, str]
"""Tier, source and incarnation of an auditor."""


@dataclass(frozen=True, slots=True)
class Covered:
    """How far a topic is entered: its offsets before ``end``, of which the last has the timestamp ``time``.

    ``time`` is in microseconds; 0 where the last offset is in a gap.
    """

    end: int = 0
    time: int = 0


@dataclass(slots=True)
class TierCounts:
    """The counts of all tiers; ``ends`` are the ends of the topics' offsets that ``logged`` covers.

    ``covered``: how far each topic, the internal ones too, is entered; ``lost``: its gaps before there of whose batches
    no counts are known. What is older than ``rolled`` (seconds since the epoch) is kept by day. Counts in here are
    never changed, only replaced.
    """

    received: dict[SourceBucket, Counts] = field(default_factory=dict)
    logged: dict[str, dict[SourceBucket, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    landed: dict[str, TopicFates] = field(default_factory=dict)
    clients: dict[tuple[str, str], ClientPost] = field(default_factory=dict)
    audits: dict[Life, dict[SourceBucket, tuple[int, Counts]]] = field(default_factory=dict)
    """By topic and bucket, with the version that told them."""
    covered: dict[str, Covered] = field(default_factory=dict)
    lost: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    rolled: int = 0
    heard: dict[Life, int] = field(default_factory=dict)
    """The bucket in which each auditor posted last."""
    events: dict[str, EventPost] = field(default_factory=dict)
    """The newest of them, by id."""
    told: dict[str, Counts] = field(default_factory=dict)
    """By place, the losses that all events told of, also those that are not kept any more."""

    def copy(self) -> TierCounts:
        """A copy that shares nothing that changes."""
        return TierCounts(
            dict(self.received),
            {topic: dict(rows) for topic, rows in self.logged.items()},
            dict(self.ends),
            {topic: landed.copy() for topic, landed in self.landed.items()},
            dict(self.clients),
            {life: dict(told) for life, told in self.audits.items()},
            dict(self.covered),
            {topic: list(ranges) for topic, ranges in self.lost.items()},
            self.rolled,
            dict(self.heard),
            dict(self.events),
            dict(self.told),
        )

    def sent(self, listener: str) -> Counts | None:
        """What the senders of ``listener`` that count have sent; None where none does."""
        posts = [post.counts for (name, _), post in self.clients.items() if name == listener]
        return summed(posts) if posts else None


class Book:
    """The pages, for several threads at once."""

    def __init__(self, pages: TierCounts | None = None) -> None:
        self._lock = threading.Lock()
        self._pages = pages or TierCounts()
        self.skipped: set[str] = set()
        """Topics of which offsets were passed over: not all that their files tell is entered."""

    def snapshot(self) -> TierCounts:
        """All counts as of one moment."""
        with self._lock:
            return self._pages.copy()

    def events(self) -> dict[str, EventPost]:
        """What happened, by id, the oldest entered first."""
        with self._lock:
            return dict(self._pages.events)

    def told(self) -> dict[str, Counts]:
        """By place, the losses that events have told of."""
        with self._lock:
            return dict(self._pages.told)

    def covered(self, topic: str) -> int:
        """Up to which offset a topic is entered."""
        return self._pages.covered.get(topic, Covered()).end

    def cover(self, topic: str, end: int, time: int = 0) -> None:
        """A topic is entered up to ``end`` (exclusive), whose last row has the timestamp ``time``."""
        if end > self.covered(topic):
            self._pages.covered[topic] = Covered(end, time)

    def roll_up(self, before: int) -> None:
        """Keep what is older than ``before`` (seconds since the epoch, the start of a day) by day."""
        with self._lock:
            pages = self._pages
            if before > pages.rolled:
                pages.rolled = before
                pages.received = roll_counts(pages.received, before)
                pages.logged = {topic: roll_rows(rows, before) for topic, rows in pages.logged.items()}
                for landed in pages.landed.values():
                    landed.counts = roll_counts(landed.counts, before)
                    landed.uuids = roll_counts(landed.uuids, before)
                silent = (life for life in pages.audits if pages.heard.get(life, 0) < before)
                # The rest of the day in which it was heard last may come yet.
                ends = {life: day_of(pages.heard.get(life, 0)) for life in silent}
                pages.audits |= {life: roll_told(pages.audits[life], end) for life, end in ends.items()}

    def enter(self, topic: str, origin: Origin, base: int, rows: int, last: int = 0) -> None:
        """A batch of ``topic`` (offsets from ``base`` on) with its counts; in an internal topic only these matter.

        ``last`` is its last timestamp in microseconds.
        """
        with self._lock:
            for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
                self._receive((origin.source, bucket), counts)
            if not topic.startswith("_"):
                self._add_rows(topic, (origin.source, origin.bucket), base, rows)
            if base != self.covered(topic):
                self.skipped.add(topic)
            self.cover(topic, base + rows, last)

    def enter_lost(self, topic: str, key: SourceBucket, base: int, rows: int) -> None:
        """``rows`` rows that the log once took and whose counts can no longer be read."""
        with self._lock:
            self._receive(key, {Name.SEEN: rows, Name.ACCEPTED: rows})
            self._add_rows(topic, key, base, rows)

    def enter_gap(self, topic: str, gap: Gap) -> None:
        """A gap whose counts nobody knows, after its rows were entered as lost."""
        with self._lock:
            self._pages.lost.setdefault(topic, []).append((gap.begin, gap.end))
            self.cover(topic, gap.end)

    def enter_gone(self, topic: str, gap: Gap, rows: Mapping[SourceBucket, int]) -> None:
        """Batches that retention dropped, with the counts they had; in an internal topic only these matter."""
        with self._lock:
            for source, buckets in (gap.received or {}).items():
                for bucket, counts in buckets.items():
                    self._receive((source, bucket), counts)
            if not topic.startswith("_"):
                for key, count in rows.items():
                    self._add_rows(topic, key, gap.begin, count)
                self._pages.ends[topic] = max(self._pages.ends.get(topic, 0), gap.end)
            self.cover(topic, gap.end)

    def _receive(self, key: SourceBucket, counts: Mapping[str, int]) -> None:
        if any(counts.values()):  # the files do not tell of nothing
            at = rolled_key(key, self._pages.rolled)
            self._pages.received[at] = plus(self._pages.received.get(at), counts)

    def _add_rows(self, topic: str, key: SourceBucket, base: int, rows: int) -> None:
        logged = self._pages.logged.setdefault(topic, {})
        at = rolled_key(key, self._pages.rolled)
        logged[at] = logged.get(at, 0) + rows
        self._pages.ends[topic] = max(self._pages.ends.get(topic, 0), base + rows)

    def post(self, post: Post, at: int = 0) -> bool:
        """Enter a post that came in bucket ``at``; False when it tells nothing new."""
        with self._lock:
            if isinstance(post, AuditPost):
                return self._post_audit(post, at)
            if isinstance(post, EventPost):
                return self._post_event(post)
            return self._post_client(post) if isinstance(post, ClientPost) else self._post_landed(post)

    def _post_audit(self, post: AuditPost, at: int) -> bool:
        pages, life = self._pages, (post.tier, post.source, post.incarnation)
        told, heard = pages.audits.setdefault(life, {}), pages.heard.get(life, at)
        if at - heard >= LEAST:  # its days so far may be rolled up, or not yet: they are closed all the same
            told = pages.audits[life] = roll_told(told, day_of(heard))  # the rest of its last day may come yet
        pages.heard[life] = max(heard, at)
        new = {key: (post.version, counts) for key, counts in post.counts.items() if _version(told, key) < post.version}
        told.update(new)
        return bool(new)

    def _post_client(self, post: ClientPost) -> bool:
        before = self._pages.clients.get((post.listener, post.sender))
        if before and before.version >= post.version:
            return False
        self._pages.clients[post.listener, post.sender] = post
        return True

    def _post_event(self, post: EventPost) -> bool:
        events, told = self._pages.events, self._pages.told
        before = events.get(post.id)
        if before and before.version >= post.version:
            return False
        if post.lost:
            grown = Counts(post.lost)
            grown.subtract(before.lost if before else {})
            told[post.place] = plus(told.get(post.place), grown)
        events[post.id] = post
        if len(events) > MOST_EVENTS:
            del events[next(iter(events))]
        return True

    def _post_landed(self, post: LandedPost) -> bool:
        landed = self._pages.landed.setdefault(post.topic, TopicFates())
        if post.refill:
            return self._post_refill(landed, post)
        if post.deletion:
            return self._post_deletion(landed, post)
        if post.through <= landed.through and landed.version >= 0:
            return False
        if is_partition(post.topic):
            self._add_records(post)
        self._add_fates(landed, post)
        landed.through, landed.version = post.through, post.version
        return True

    def _post_refill(self, landed: TopicFates, post: LandedPost) -> bool:
        told = (post.refill, post.version)
        if told in landed.refills:
            return False
        landed.refills |= {told}
        landed.ahead += post.ahead
        self._add_fates(landed, post)
        return True

    def _post_deletion(self, landed: TopicFates, post: LandedPost) -> bool:
        if post.deletion <= landed.deletion:
            return False
        landed.deletion = post.deletion
        if is_partition(post.topic) and not post.taken:  # computed anew: no other post tells of these records
            self._add_records(post)
        self._add_fates(landed, post)
        less = {key: _negative(counts) for key, counts in post.taken.items()}
        sums = {key: _negative(counts) for key, counts in post.taken_uuids.items()}
        self._add_fates(landed, replace(post, counts=less, uuids=sums))
        return True

    def _add_fates(self, landed: TopicFates, post: LandedPost) -> None:
        for told, kept in ((post.counts, landed.counts), (post.uuids, landed.uuids)):
            for key, counts in told.items():
                at = rolled_key(key, self._pages.rolled)
                kept[at] = plus(kept.get(at), counts)

    def _add_records(self, post: LandedPost) -> None:
        """What came by Kafka was accepted and logged there: as many records as have a fate."""
        for key, counts in post.counts.items():
            rows = counts.rows()
            self._receive(key, {Name.SEEN: rows, Name.ACCEPTED: rows})
            self._add_rows(post.topic, key, post.through - rows, rows)
        self._pages.ends[post.topic] = max(self._pages.ends.get(post.topic, 0), post.end, post.through)


def _negative(counts: Counts) -> Counts:
    """What is to be added to take these away; sums are of numbers modulo 2^64."""
    return Counts({name: LARGEST - n if name.startswith(SUM) else -n for name, n in counts.items()})


def _version(told: Mapping[SourceBucket, tuple[int, Counts]], key: SourceBucket) -> int:
    day = told.get((key[0], day_of(key[1])), (-1, None))[0]
    return day if day == CLOSED else told.get(key, (-1, None))[0]
