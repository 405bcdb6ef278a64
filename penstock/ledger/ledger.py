"""The ledger: the book kept up to date with the log, its posts kept in the topic ``_ledger``."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.counts import Counts, Name, Origin, SourceBucket, bucket_of
from penstock.handover.paths import listeners_in
from penstock.ledger import checkpoint
from penstock.ledger.audit_counts import Audited, audited
from penstock.ledger.balance import Balance, UnlandedTail, Within, balance
from penstock.ledger.book import TierCounts, TopicFates
from penstock.ledger.book_from_topics import TOPIC, enter, gap_rows, resume, unreadable
from penstock.ledger.daily_rollup import horizon, roll_counts
from penstock.ledger.handler_deliveries import routes, standings
from penstock.ledger.in_buffer import BufferedCounts
from penstock.ledger.posts import AuditPost, BadPost, ClientPost, EventPost, LandedPost, Post, dump, is_partition, parse
from penstock.ledger.time_series import document, series, whole_step
from penstock.ledger.watermarks import Watermark, watermarks
from penstock.log import Gap, InvalidTopicName, Log, StoredBatch, TopicReader, UnknownFormat, UnknownTopic
from penstock.log.read.glance import IntactTopic, glance
from penstock.log.store.gaps import FILE_NAME, load
from penstock.records import body

CURSOR = "pipeline"
"""The cursor of each topic that says up to where the pipeline has landed and proved it."""
OPENED = 100
"""Topics that are opened at every start, which checks the batches of their last segments; of more those in disorder."""

_LOGGER = logging.getLogger(__name__)


class Ledger:
    """The books of one log and its listeners. ``buffers`` is the folder of their log buffers.

    ``now`` tells seconds since the epoch.
    """

    def __init__(
        self,
        log: Log,
        buffers: Path,
        listeners: Iterable[str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._buffers, self.listeners = log, buffers, list(listeners)
        self._time = now
        self._waiting = BufferedCounts(buffers)
        self._book = resume(log.directory, self._verify, self._horizon(), dict(_orderly(log)))
        self._posting: list[int] = []
        self._kept: TierCounts | None = None
        self._why = ""
        self._keeping = threading.Lock()
        self.live: dict[str, EventPost] = {}
        """Events as they are now, of which the log has older versions, or none."""
        log.observe(self._stored)
        log.observe_recoveries(self._recovered)
        self.roll_up()

    def _stored(self, topic: str, stored: StoredBatch) -> None:
        if topic != TOPIC:
            self._book.enter(topic, stored.origin, stored.base, stored.rows, stored.last)

    def _recovered(self, topic: str, end: int) -> None:
        """A topic that there was no room to bring in order at the start may have more rows now, and gaps."""
        if end > self._book.covered(topic):
            enter(self._book, TopicReader(self._log.directory / topic))

    def _verify(self, topic: str, begin: int, end: int) -> None:
        self._log.topic(topic, internal=True).verify(begin, end)

    def post(self, told: Any) -> bool:
        """Keep a post; whether it told something new, once it is synced. Raises BadPost, and LogFull."""
        post = parse(told)
        self._check(post)
        now = self._time()
        origin = Origin("ledger", bucket_of(now), int(now * 1e6), int(now * 1e6))
        topic = self._log.topic(TOPIC, create=True, internal=True)
        with self._under_way(topic.end):
            topic.append(body([dump(post)]), origin).result()
            new = self._book.post(post, origin.bucket)
        if isinstance(post, LandedPost) and post.through and not is_partition(post.topic):  # its evidence may go now
            with contextlib.suppress(UnknownTopic):  # deleted: what was left of it is proved to be a gap
                self._log.topic(post.topic).cursors.commit(CURSOR, post.through)
        return new

    @contextlib.contextmanager
    def _under_way(self, offset: int) -> Iterator[None]:
        """What is kept of ``_ledger`` at or behind ``offset`` is perhaps not in the book yet."""
        self._posting.append(offset)
        try:
            yield
        finally:
            self._posting.remove(offset)

    def keep(self) -> None:
        """Write a checkpoint if there is something new. Raises OSError."""
        self.roll_up()
        with self._keeping:
            pages = self._keepable()
            if pages == self._kept:
                return
            why = self._withheld(pages)
            if why and why != self._why:
                _LOGGER.warning("the ledger keeps no checkpoint, so that the next start reads all batches: %s", why)
            if not why:
                checkpoint.write(self._log.directory, pages)
            self._kept, self._why = pages, why

    def _keepable(self) -> TierCounts:
        """The pages, with the posts up to those that may still be under way."""
        end = self._log.topic(TOPIC, internal=True).end if TOPIC in self._log.names(internal=True) else 0
        self._book.cover(TOPIC, min([end, *self._posting]))  # in this order: what began later is behind the end
        return self._book.snapshot()

    def _withheld(self, pages: TierCounts) -> str:
        """Why a book built anew from the topics' files would differ from ``pages``; empty when it would not."""
        for name, mark in sorted(pages.covered.items()):
            gaps = _gaps(self._log.directory / name)
            if name in self._book.skipped or unreadable(gaps, mark.end) != sorted(pages.lost.get(name, [])):
                return f"offsets of topic {name} can no longer be read"
        return ""

    def roll_up(self) -> None:
        """Keep by day what is older than the retention of every topic; not while the clock cannot be right."""
        if (before := self._horizon()) is not None:
            self._book.roll_up(before)

    def _horizon(self) -> int | None:
        """Before this all may be rolled up; None while the clock cannot be right."""
        ages = [self._log.settings(name).stale_after for name in self._log.names()]
        return horizon(self._time(), ages) if self._log.clock.right else None

    def _check(self, post: Post) -> None:
        """Refuse what cannot be true: a post is kept for ever."""
        if isinstance(post, AuditPost | EventPost):
            return
        if isinstance(post, ClientPost):
            if post.listener not in self.listeners:
                raise BadPost(f"there is no listener {post.listener!r}")
            return
        end = max(post.end, post.through) if is_partition(post.topic) else self._end(post.topic)
        known = self.landed().get(post.topic, TopicFates())
        told = sum(counts.rows() for counts in post.counts.values())
        if post.refill:
            if told > end or any(stop > end for _, stop in post.ahead):
                raise BadPost(f"topic {post.topic!r} has no such offsets: it ends at {end}")
            return
        if post.deletion:
            if told > sum(sum(counts.values()) for counts in known.counts.values()):
                raise BadPost(f"so much has not landed of topic {post.topic!r}")
            return
        if post.through > end or told > max(post.through - known.through, 0) > 0:
            raise BadPost(f"topic {post.topic!r} has no {told} offsets from {known.through} to {post.through}")

    def _end(self, topic: str) -> int:
        """The end of a topic, also of one that was deleted. Raises BadPost where there never was one."""
        try:
            return self._log.topic(topic).end
        except InvalidTopicName:
            raise BadPost(f"there is no topic {topic!r}") from None
        except UnknownTopic:
            gone = self._log.directory / topic
            if not gone.is_dir():
                raise BadPost(f"there is no topic {topic!r}") from None
            return TopicReader(gone).end

    def landed(self) -> dict[str, TopicFates]:
        """By topic, what has landed and up to where."""
        return self._book.snapshot().landed

    def audits(self, within: Within = None) -> list[Audited]:
        """What the auditors of Kafka clients told, of the buckets ``within`` alone where given."""
        return audited(self._book.snapshot(), within)

    def events(self) -> list[EventPost]:
        """What happened, the oldest entered first."""
        return list((self._book.events() | self.live).values())

    def event(self, number: str) -> EventPost | None:
        """The event of this id as it is kept in the log."""
        return self._book.events().get(number)

    def told(self) -> dict[str, Counts]:
        """By place, the losses that the events in the log tell of."""
        return self._book.event_losses()

    def balance(self, within: Within = None) -> Balance:
        """The balance now, of the buckets ``within`` alone where given."""
        pages = self._book.snapshot()  # downstream first: what lands meanwhile only looks pending
        return balance_of(pages, self._log.directory, self._in_buffer(), within, self._buffers)

    def _in_buffer(self) -> dict[SourceBucket, Counts]:
        return self._waiting.counts(all_listeners(self._buffers, self.listeners))

    def watermarks(self) -> list[Watermark]:
        """How far the tables are complete."""
        in_buffer = self._in_buffer()  # upstream first: what moves meanwhile holds it back twice
        return watermarks(*self._now(), in_buffer, self._time())

    def _now(self) -> tuple[TierCounts, dict[str, UnlandedTail]]:
        pages = self._book.snapshot()
        return pages, {name: _beyond(self._log.directory, pages, name) for name in pages.logged}

    def series(self, since: int, step: int) -> dict[str, Any]:
        """The balance over time from ``since`` (seconds since the epoch) on, in stretches of ``step`` seconds."""
        pages, beyond = self._now()
        step = whole_step(step)
        return document(series(pages, beyond, self._in_buffer(), since, step), step, pages.rolled)


def _orderly(log: Log) -> Iterator[tuple[str, IntactTopic]]:
    """The topics in order, which can be opened when they are needed; others are opened, and so brought in order.

    The first OPENED are opened in any case.
    """
    for number, name in enumerate(log.names(internal=True)):
        try:
            if number >= OPENED and (found := glance(log.directory / name)) is not None:
                yield name, found
            else:
                log.topic(name, internal=True)  # recovered before it is read
        except UnknownFormat as error:  # it stays as it is, and out of the balance
            _LOGGER.error("%s", error)


def all_listeners(buffers: Path, configured: Iterable[str]) -> list[str]:
    """The listeners that are configured, and those that have left a log buffer."""
    return sorted({*configured, *listeners_in(buffers)})


def balance_of(
    pages: TierCounts,
    topics: Path,
    in_buffer: Mapping[SourceBucket, Counts],
    within: Within = None,
    buffers: Path | None = None,
) -> Balance:
    """The balance of ``pages``, with what the topics' folders say of the offsets beyond the landed ones.

    With ``buffers``, the folder of the log buffers, also of the routes to handlers that are processes of their own.
    """
    beyond = {name: _beyond(topics, pages, name) for name in pages.logged}
    result = balance(pages, beyond, in_buffer, within)
    if buffers is None:
        return result
    accepted = summed_accepted(pages.received, roll_counts(in_buffer, pages.rolled))
    others = routes(buffers, standings(buffers, listeners_in(buffers)), accepted, within, pages.rolled)
    return replace(result, routes=sorted([*result.routes, *others], key=lambda route: (route.source, route.handler)))


def summed_accepted(*tiers: Mapping[SourceBucket, Counts]) -> dict[SourceBucket, int]:
    """Messages accepted, by source and bucket."""
    total: dict[SourceBucket, int] = {}
    for tier in tiers:
        for key, counts in tier.items():
            total[key] = total.get(key, 0) + counts[Name.ACCEPTED]
    return total


def _beyond(topics: Path, pages: TierCounts, name: str) -> UnlandedTail:
    landed = pages.landed.get(name)
    through = landed.through if landed else 0
    if is_partition(name):
        return UnlandedTail({("kafka", 0): pages.ends[name] - through})
    runs = landed.beyond(pages.ends[name]) if landed else []
    if landed and not runs:  # most topics most of the time: their files need not be looked at
        return UnlandedTail()
    pending: Counter[SourceBucket] = Counter()
    for begin, end in runs:
        pending.update(TopicReader(topics / name).rows_by_origin(begin, end))
    gaps: dict[SourceBucket, Counts] = {}
    for gap in _gaps(topics / name):
        for begin, end in runs if landed else [(0, gap.end)]:
            for key, rows in gap_rows(gap, max(begin, gap.begin), min(end, gap.end)).items():
                gaps.setdefault(key, Counts())[f"{Name.GAP}{gap.reason}"] += rows
    return UnlandedTail(pending, gaps)


def _gaps(topic: Path) -> list[Gap]:
    try:
        return load(topic / FILE_NAME)
    except FileNotFoundError:
        return []
