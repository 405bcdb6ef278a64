"""The book: every tier's counts by source and bucket, in memory.

``received`` and ``logged`` are entered from the batches of the log themselves (their documents carry the
receivers' counts), ``landed``, ``client`` and auditors' tiers from posts. So the book is a cache: it can be computed
again from segments, gaps and posts at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.counts import Counts, Name, Origin, by_bucket, summed
from penstock.ledger.posts import AuditPost, ClientPost, Key, LandedPost, Post, is_partition
from penstock.log.gaps import Gap


@dataclass(slots=True)
class Landed:
    """What became of a topic's offsets before ``through``."""

    through: int = 0
    version: int = -1
    counts: dict[Key, Counts] = field(default_factory=dict)


Life = tuple[str, str, str]
"""Tier, source and incarnation of an auditor."""


@dataclass(slots=True)
class Pages:
    """The counts of all tiers; ``ends`` are the ends of the topics' offsets that ``logged`` covers."""

    received: dict[Key, Counts] = field(default_factory=dict)
    logged: dict[str, dict[Key, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    landed: dict[str, Landed] = field(default_factory=dict)
    clients: dict[tuple[str, str], ClientPost] = field(default_factory=dict)
    audits: dict[Life, dict[Key, tuple[int, Counts]]] = field(default_factory=dict)
    """By topic and bucket, with the version that told them."""

    def copy(self) -> Pages:
        """A copy that shares nothing that changes."""
        return Pages(
            _copied(self.received),
            {topic: dict(rows) for topic, rows in self.logged.items()},
            dict(self.ends),
            {topic: Landed(x.through, x.version, _copied(x.counts)) for topic, x in self.landed.items()},
            dict(self.clients),
            {life: dict(told) for life, told in self.audits.items()},
        )

    def sent(self, listener: str) -> Counts | None:
        """What the senders of ``listener`` that count have sent; None where none does."""
        posts = [post.counts for (name, _), post in self.clients.items() if name == listener]
        return summed(posts) if posts else None


class Book:
    """The pages, for several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages = Pages()

    def snapshot(self) -> Pages:
        """All counts as of one moment."""
        with self._lock:
            return self._pages.copy()

    def enter(self, topic: str, origin: Origin, base: int, rows: int) -> None:
        """A batch of ``topic`` (offsets from ``base`` on) with its counts; in an internal topic only these matter."""
        with self._lock:
            for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
                self._pages.received.setdefault((origin.source, bucket), Counts()).absorb(counts)
            if not topic.startswith("_"):
                self._add_rows(topic, (origin.source, origin.bucket), base, rows)

    def enter_lost(self, topic: str, key: Key, base: int, rows: int) -> None:
        """``rows`` rows that the log once took and whose counts can no longer be read."""
        with self._lock:
            lost: dict[str, int] = {Name.SEEN: rows, Name.ACCEPTED: rows}
            self._pages.received.setdefault(key, Counts()).absorb(lost)
            self._add_rows(topic, key, base, rows)

    def enter_gone(self, topic: str, gap: Gap, rows: Mapping[Key, int]) -> None:
        """Batches that retention dropped, with the counts they had; in an internal topic only these matter."""
        with self._lock:
            for source, buckets in (gap.received or {}).items():
                for bucket, counts in buckets.items():
                    self._pages.received.setdefault((source, bucket), Counts()).absorb(counts)
            if not topic.startswith("_"):
                for key, count in rows.items():
                    self._add_rows(topic, key, gap.begin, count)
                self._pages.ends[topic] = max(self._pages.ends.get(topic, 0), gap.end)

    def _add_rows(self, topic: str, key: Key, base: int, rows: int) -> None:
        logged = self._pages.logged.setdefault(topic, {})
        logged[key] = logged.get(key, 0) + rows
        self._pages.ends[topic] = max(self._pages.ends.get(topic, 0), base + rows)

    def post(self, post: Post) -> bool:
        """Enter a post; False when it tells nothing new."""
        with self._lock:
            if isinstance(post, AuditPost):
                return self._post_audit(post)
            return self._post_client(post) if isinstance(post, ClientPost) else self._post_landed(post)

    def _post_audit(self, post: AuditPost) -> bool:
        told = self._pages.audits.setdefault((post.tier, post.source, post.incarnation), {})
        new = {key: (post.version, counts) for key, counts in post.counts.items() if _version(told, key) < post.version}
        told.update(new)
        return bool(new)

    def _post_client(self, post: ClientPost) -> bool:
        before = self._pages.clients.get((post.listener, post.sender))
        if before and before.version >= post.version:
            return False
        self._pages.clients[post.listener, post.sender] = post
        return True

    def _post_landed(self, post: LandedPost) -> bool:
        landed = self._pages.landed.setdefault(post.topic, Landed())
        if post.through <= landed.through and landed.version >= 0:
            return False
        if is_partition(post.topic):
            self._add_records(post)
        for key, counts in post.counts.items():
            landed.counts.setdefault(key, Counts()).absorb(counts)
        landed.through, landed.version = post.through, post.version
        return True

    def _add_records(self, post: LandedPost) -> None:
        """What came by Kafka was accepted and logged there: as many records as have a fate."""
        for key, counts in post.counts.items():
            rows = counts.total()
            self._pages.received.setdefault(key, Counts()).absorb({Name.SEEN: rows, Name.ACCEPTED: rows})
            self._add_rows(post.topic, key, post.through - rows, rows)
        self._pages.ends[post.topic] = max(self._pages.ends.get(post.topic, 0), post.end, post.through)


def _version(told: Mapping[Key, tuple[int, Counts]], key: Key) -> int:
    before = told.get(key)
    return -1 if before is None else before[0]


def _copied(counts: dict[Key, Counts]) -> dict[Key, Counts]:
    return {key: Counts(of_key) for key, of_key in counts.items()}
