"""The book: the counts of every tier by source and bucket, in memory.

``received`` and ``logged`` are entered from the batches of the log, whose documents carry the receivers' counts;
``landed``, ``clients`` and ``audits`` from posts. Invariant: the book is a cache. It can be recomputed from segments,
gaps and posts at any time, and ``penstock balance --rebuild`` does so.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from penstock.counts import Counts, Name, Origin, SourceBucket, advance_positions, by_bucket
from penstock.ledger.book.book_pages import MAX_EVENTS, BookPages, Covered, TopicFates
from penstock.ledger.book.bucket_tables import CountTable, RowTable
from penstock.ledger.book.daily_rollup import (
    CLOSED,
    MIN_DETAIL_S,
    day_of,
    plus,
    roll_audit,
    rolled_key,
)
from penstock.ledger.book.senders import SenderPages
from penstock.ledger.posts import (
    LARGEST,
    SUM,
    AuditPost,
    ClientPost,
    EventPost,
    LandedPost,
    Post,
    SenderPost,
)
from penstock.log.store.gaps import Gap
from penstock.qualified_names import is_partition


class Book:
    """Counts of all tiers, shared by threads. Threads: each method holds the lock for its whole duration."""

    def __init__(self, pages: BookPages | None = None) -> None:
        self._lock = threading.Lock()
        self._pages = pages or BookPages()
        self._totals = self._pages.add_up()
        self.version = 0
        """Number of changes, so that two equal numbers mean the same counts."""
        self.skipped: set[str] = set()
        """Topics with offsets that were not entered, so that their page differs from their files."""

    def snapshot(self) -> BookPages:
        """Return all counts as of one moment."""
        with self._lock:
            return self._pages.copy()

    def summary(self, *, with_landed: bool = False) -> BookPages:
        """Return the totals by source, and what a balance of all time needs in addition, as of one moment.

        Its size does not grow with time: it has no buckets, except for landed fates ``with_landed``.
        """
        with self._lock:
            pages = self._pages
            return BookPages(
                logged={topic: RowTable() for topic in pages.logged},
                ends=dict(pages.ends),
                landed={
                    topic: fates.copy() if with_landed else replace(fates, counts=CountTable(), uuids=CountTable())
                    for topic, fates in pages.landed.items()
                },
                clients=dict(pages.clients),
                rolled=pages.rolled,
                totals=self._totals.copy(),
                positions=pages.copied_positions(),
            )

    def landed_progress(self, topic: str) -> tuple[int, int]:
        """Return the offset up to which a topic has landed, and the number of its rows that have a fate."""
        with self._lock:
            landed = self._pages.landed.get(topic)
            fates = self._totals.fates.get(topic, {})
            return landed.through if landed else 0, sum(sum(counts.values()) for counts in fates.values())

    def senders(self) -> dict[str, SenderPages]:
        """Return the counts that posts report as sent, by listener."""
        with self._lock:
            return {listener: pages.copy() for listener, pages in self._pages.senders.items()}

    def events(self) -> dict[str, EventPost]:
        """Return the events by id, the oldest first."""
        with self._lock:
            return dict(self._pages.events)

    def event_losses(self) -> dict[str, Counts]:
        """Return the losses by place that events have reported."""
        with self._lock:
            return dict(self._pages.event_losses)

    def arrived(self, host: str) -> dict[str, int]:
        """Return the entries that were accepted here from a host that relays, by its listener."""
        with self._lock:
            return self._totals.arrived(host)

    def landed_through(self) -> dict[str, int]:
        """Return the offset up to which each topic has landed."""
        with self._lock:
            return {topic: landed.through for topic, landed in self._pages.landed.items()}

    def covered(self, topic: str) -> int:
        """Return the offset up to which a topic is entered."""
        # Threads: no lock, because `enter` holds it, and it is not reentrant. One dictionary access is atomic.
        return self._pages.covered.get(topic, Covered()).end

    def cover(self, topic: str, end: int, time: int = 0) -> None:
        """Mark a topic as entered up to ``end`` (exclusive), whose last row has the timestamp ``time``."""
        with self._lock:
            self._cover(topic, end, time)

    def _cover(self, topic: str, end: int, time: int = 0) -> None:
        if end > self.covered(topic):
            self._pages.covered[topic] = Covered(end, time)
            self.version += 1

    def roll_up(self, before: int) -> None:
        """Sum buckets older than ``before`` (seconds since the epoch, the start of a day) by day or month."""
        with self._lock:
            pages = self._pages
            # Sums by day cannot be divided into minutes again, so the limit only moves forward.
            if before > pages.rolled:
                pages.rolled = before
                self.version += 1
                pages.roll_tables()
                silent = (life for life in pages.audits if pages.last_posts.get(life, 0) < before)
                # Its last day stays open: posts for the rest of that day may still arrive.
                ends = {life: day_of(pages.last_posts.get(life, 0)) for life in silent}
                pages.audits |= {life: roll_audit(pages.audits[life], end) for life, end in ends.items()}

    def enter(self, topic: str, origin: Origin, base: int, rows: int, last: int = 0) -> None:
        """Enter a batch of ``topic`` at offset ``base`` with its counts; of an internal topic only the counts.

        ``last`` is the batch's last timestamp in microseconds.
        """
        with self._lock:
            for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
                self._receive((origin.source, bucket), counts)
            if origin.buffer:
                advance_positions(self._pages.positions.setdefault(topic, {}), origin)
            if not topic.startswith("_"):
                self._add_rows(topic, (origin.source, origin.bucket), base, rows)
            # Batches arrive in the order of offsets. A jump means that a checkpoint of this book would miss offsets.
            if base != self.covered(topic):
                self.skipped.add(topic)
            self._cover(topic, base + rows, last)

    def enter_lost(self, topic: str, key: SourceBucket, base: int, rows: int) -> None:
        """Enter ``rows`` rows that the log accepted and whose counts can no longer be read."""
        with self._lock:
            # The rows have offsets, so they were seen and accepted. All other counts of their batch are lost.
            self._receive(key, {Name.SEEN: rows, Name.ACCEPTED: rows})
            self._add_rows(topic, key, base, rows)

    def enter_gap(self, topic: str, gap: Gap) -> None:
        """Enter a gap without counts, after its rows were entered as lost."""
        with self._lock:
            self._pages.unreadable_ranges.setdefault(topic, []).append((gap.begin, gap.end))
            self.version += 1
            self._cover(topic, gap.end)

    def enter_gone(self, topic: str, gap: Gap, rows: Mapping[SourceBucket, int]) -> None:
        """Enter batches that retention dropped, with their counts; of an internal topic only the counts."""
        with self._lock:
            for source, buckets in (gap.received or {}).items():
                for bucket, counts in buckets.items():
                    self._receive((source, bucket), counts)
            if not topic.startswith("_"):
                for key, count in rows.items():
                    self._add_rows(topic, key, gap.begin, count)
                self._pages.ends[topic] = max(self._pages.ends.get(topic, 0), gap.end)
            self._cover(topic, gap.end)

    def _receive(self, key: SourceBucket, counts: Mapping[str, int]) -> None:
        # A rebuilt book has no empty entries, and both must be equal.
        if any(counts.values()):
            self.version += 1
            self._totals.receive(key, counts)
            self._pages.received.add(rolled_key(key, self._pages.rolled), counts)

    def _add_rows(self, topic: str, key: SourceBucket, base: int, rows: int) -> None:
        self.version += 1
        self._totals.add_rows(topic, key[0], rows)
        if (logged := self._pages.logged.get(topic)) is None:
            logged = self._pages.logged[topic] = RowTable()
        logged.add(rolled_key(key, self._pages.rolled), rows)
        self._pages.ends[topic] = max(self._pages.ends.get(topic, 0), base + rows)

    def post(self, post: Post, bucket: int = 0) -> bool:
        """Enter a post that arrived in ``bucket``; return False if it reports nothing new."""
        with self._lock:
            self.version += 1
            if isinstance(post, AuditPost):
                return self._post_audit(post, bucket)
            if isinstance(post, EventPost):
                return self._post_event(post)
            if isinstance(post, SenderPost):
                pages = self._pages.senders.setdefault(post.listener, SenderPages())
                return pages.enter(post.table, post.version, post.senders)
            return self._post_client(post) if isinstance(post, ClientPost) else self._post_landed(post)

    def _post_audit(self, post: AuditPost, bucket: int) -> bool:
        pages, life = self._pages, (post.tier, post.source, post.incarnation)
        audit, last_post = pages.audits.setdefault(life, {}), pages.last_posts.get(life, bucket)
        if bucket - last_post >= MIN_DETAIL_S:
            # Earlier days are closed whether or not a roll-up ran by now, so that a rebuilt book agrees. The last day
            # stays open.
            audit = pages.audits[life] = roll_audit(audit, day_of(last_post))
        pages.last_posts[life] = max(last_post, bucket)
        new = {
            key: (post.version, counts)
            for key, counts in post.counts.items()
            if _reported_version(audit, key) < post.version
        }
        audit.update(new)
        return bool(new)

    def _post_client(self, post: ClientPost) -> bool:
        previous = self._pages.clients.get((post.listener, post.sender))
        if previous and previous.version >= post.version:
            return False
        self._pages.clients[post.listener, post.sender] = post
        return True

    def _post_event(self, post: EventPost) -> bool:
        events, losses = self._pages.events, self._pages.event_losses
        previous = events.get(post.id)
        if previous and previous.version >= post.version:
            return False
        if post.losses:
            # A newer version of an event repeats the losses of the older one: only the difference is added.
            growth = Counts(post.losses)
            growth.subtract(previous.losses if previous else {})
            losses[post.place] = plus(losses.get(post.place), growth)
        events[post.id] = post
        if len(events) > MAX_EVENTS:
            # Limit: the oldest event leaves memory. Its losses stay in ``event_losses``, so they are not reported
            # again.
            del events[next(iter(events))]
        return True

    def _post_landed(self, post: LandedPost) -> bool:
        landed = self._pages.landed.setdefault(post.topic, TopicFates())
        if post.backfill:
            return self._post_backfill(landed, post)
        if post.deletion:
            return self._post_deletion(landed, post)
        # Before the first post, ``version`` is -1 and ``through`` 0: a first post through offset 0 is new.
        if post.through <= landed.through and landed.version >= 0:
            return False
        if is_partition(post.topic):
            # Records of Kafka do not pass the log: only their post shows that they were accepted.
            self._add_records(post)
        self._add_fates(landed, post)
        landed.through, landed.version = post.through, post.version
        return True

    def _post_backfill(self, landed: TopicFates, post: LandedPost) -> bool:
        backfill = (post.backfill, post.version)
        if backfill in landed.backfills:
            return False
        landed.backfills |= {backfill}
        landed.ahead += post.ahead
        self._add_fates(landed, post)
        return True

    def _post_deletion(self, landed: TopicFates, post: LandedPost) -> bool:
        if post.deletion <= landed.deletion:
            return False
        landed.deletion = post.deletion
        # A rebuild reports a deletion as a post without ``taken``: then no other post covers these records.
        if is_partition(post.topic) and not post.taken:
            self._add_records(post)
        self._add_fates(landed, post)
        negative_counts = {key: _negative(counts) for key, counts in post.taken.items()}
        negative_sums = {key: _negative(counts) for key, counts in post.taken_uuids.items()}
        self._add_fates(landed, replace(post, counts=negative_counts, uuids=negative_sums))
        return True

    def _add_fates(self, landed: TopicFates, post: LandedPost) -> None:
        for (source, _), counts in post.counts.items():
            self._totals.add_fates(post.topic, source, counts)
        for counts in post.uuids.values():
            self._totals.add_uuids(post.topic, counts)
        for reported, entered in ((post.counts, landed.counts), (post.uuids, landed.uuids)):
            entered.make_room(rolled_key(key, self._pages.rolled) for key in reported)
            for key, counts in reported.items():
                entered.add(rolled_key(key, self._pages.rolled), counts)

    def _add_records(self, post: LandedPost) -> None:
        """Enter records of Kafka as accepted and logged there: as many as have a fate."""
        keys = [rolled_key(key, self._pages.rolled) for key, counts in post.counts.items() if counts.rows()]
        if keys:
            self._pages.received.make_room(keys)
            self._pages.logged.setdefault(post.topic, RowTable()).make_room(keys)
        for key, counts in post.counts.items():
            rows = counts.rows()
            self._receive(key, {Name.SEEN: rows, Name.ACCEPTED: rows})
            self._add_rows(post.topic, key, post.through - rows, rows)
        self._pages.ends[post.topic] = max(self._pages.ends.get(post.topic, 0), post.end, post.through)


def _negative(counts: Counts) -> Counts:
    """Return the counts that undo ``counts`` when they are added; sums of hashes are modulo 2^64."""
    return Counts({name: LARGEST - count if name.startswith(SUM) else -count for name, count in counts.items()})


def _reported_version(audit: Mapping[SourceBucket, tuple[int, Counts]], key: SourceBucket) -> int:
    day_version = audit.get((key[0], day_of(key[1])), (-1, None))[0]
    return day_version if day_version == CLOSED else audit.get(key, (-1, None))[0]
