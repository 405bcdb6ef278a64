"""The ledger: the book kept up to date with the log, its posts kept in the topic ``_ledger``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.counts import Counts, Name, Origin, bucket_of
from penstock.ingest.files import listeners_in
from penstock.ledger.audits import Audited, audited
from penstock.ledger.balance import Balance, Beyond, Within, balance
from penstock.ledger.book import Book, Landed, Pages
from penstock.ledger.forwarded import routes, standings
from penstock.ledger.posts import AuditPost, BadPost, ClientPost, Key, LandedPost, Post, dump, is_partition, parse
from penstock.ledger.series import document, series, whole_step
from penstock.ledger.waiting import Waiting
from penstock.ledger.watermarks import Watermark, watermarks
from penstock.log import CorruptBatch, Gap, InvalidTopicName, Log, Stored, TopicReader, UnknownFormat, UnknownTopic
from penstock.records import body

TOPIC = "_ledger"
Verify = Callable[[str, int, int], object]
"""Has the offsets [begin, end) of a topic checked: what is corrupt becomes a gap."""
CURSOR = "pipeline"
"""The cursor of each topic that says up to where the pipeline has landed and proved it."""


class Ledger:
    """The books of one log and its listeners. ``buffers`` is the folder of their log buffers."""

    def __init__(self, log: Log, buffers: Path, listeners: Iterable[str]) -> None:
        self._log, self._buffers, self.listeners = log, buffers, list(listeners)
        self._waiting = Waiting(buffers)
        for name in log.names(internal=True):
            with contextlib.suppress(UnknownFormat):  # it stays as it is, and out of the balance
                log.topic(name, internal=True)  # recovered before it is read
        self._book = load(log.directory, verify=self._verify)
        log.observe(self._stored)

    def _stored(self, topic: str, stored: Stored) -> None:
        if topic != TOPIC:
            self._book.enter(topic, stored.origin, stored.base, stored.rows)

    def _verify(self, topic: str, begin: int, end: int) -> None:
        self._log.topic(topic, internal=True).verify(begin, end)

    def post(self, told: Any) -> bool:
        """Keep a post; whether it told something new, once it is synced. Raises BadPost, and LogFull."""
        post = parse(told)
        self._check(post)
        now = time.time()
        origin = Origin("ledger", bucket_of(now), int(now * 1e6), int(now * 1e6))
        topic = self._log.topic(TOPIC, create=True, internal=True)
        topic.append(body([dump(post)]), origin).result()
        new = self._book.post(post)
        if isinstance(post, LandedPost) and not is_partition(post.topic):  # the proof is kept: its evidence may go now
            with contextlib.suppress(UnknownTopic):  # deleted: what was left of it is proved to be a gap
                self._log.topic(post.topic).cursors.commit(CURSOR, post.through)
        return new

    def _check(self, post: Post) -> None:
        """Refuse what cannot be true: a post is kept for ever."""
        if isinstance(post, AuditPost):
            return
        if isinstance(post, ClientPost):
            if post.listener not in self.listeners:
                raise BadPost(f"there is no listener {post.listener!r}")
            return
        end = max(post.end, post.through) if is_partition(post.topic) else self._end(post.topic)
        known = self.landed().get(post.topic, Landed())
        told = sum(sum(counts.values()) for counts in post.counts.values())
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

    def landed(self) -> dict[str, Landed]:
        """By topic, what has landed and up to where."""
        return self._book.snapshot().landed

    def audits(self, within: Within = None) -> list[Audited]:
        """What the auditors of Kafka clients told, of the buckets ``within`` alone where given."""
        return audited(self._book.snapshot(), within)

    def balance(self, within: Within = None) -> Balance:
        """The balance now, of the buckets ``within`` alone where given."""
        pages = self._book.snapshot()  # downstream first: what lands meanwhile only looks pending
        return balance_of(pages, self._log.directory, self._in_buffer(), within, self._buffers)

    def _in_buffer(self) -> dict[Key, Counts]:
        return self._waiting.counts(all_listeners(self._buffers, self.listeners))

    def watermarks(self) -> list[Watermark]:
        """How far the tables are complete."""
        in_buffer = self._in_buffer()  # upstream first: what moves meanwhile holds it back twice
        return watermarks(*self._now(), in_buffer, time.time())

    def _now(self) -> tuple[Pages, dict[str, Beyond]]:
        pages = self._book.snapshot()
        return pages, {name: _beyond(self._log.directory, pages, name) for name in pages.logged}

    def series(self, since: int, step: int) -> dict[str, Any]:
        """The balance over time from ``since`` (seconds since the epoch) on, in stretches of ``step`` seconds."""
        pages, beyond = self._now()
        step = whole_step(step)
        return document(series(pages, beyond, self._in_buffer(), since, step), step)


TIERS: tuple[type[Post], ...] = (LandedPost, ClientPost, AuditPost)


def load(topics: Path, tiers: tuple[type[Post], ...] = TIERS, verify: Verify | None = None) -> Book:
    """The book as the topics' own files tell it, with the posts of ``tiers``.

    A corrupt range is handed to ``verify``, which makes it a gap; without it, its rows are of source ``unknown``.
    """
    book = Book()
    for path in sorted(path for path in topics.iterdir() if path.is_dir()):
        reader = TopicReader(path)
        if path.name != TOPIC:
            with contextlib.suppress(UnknownFormat):
                enter_topic(book, path.name, reader, verify)
            continue
        for post in _posts(reader, verify):
            if isinstance(post, tiers):
                book.post(post)
    return book


def enter_topic(book: Book, name: str, reader: TopicReader, verify: Verify | None = None) -> None:
    """Enter all batches of a topic, and its gaps for those that can no longer be read."""

    def lost(begin: int, end: int) -> None:
        book.enter_lost(name, ("unknown", 0), begin, end - begin)

    for stored in _readable(reader, partial(verify, name) if verify else lost):
        book.enter(name, stored.origin, stored.base, stored.rows)
    for gap in reader.gaps():
        if gap.received is not None:
            book.enter_gone(name, gap, gap_rows(gap, gap.begin))
        elif not name.startswith("_"):
            for key, rows in gap_rows(gap, gap.begin).items():
                book.enter_lost(name, key, gap.begin, rows)


def gap_rows(gap: Gap, begin: int) -> dict[Key, int]:
    """The rows of a gap from ``begin`` on by source and bucket; those it cannot name are of source ``unknown``."""
    return {(source or "unknown", bucket): n for (source, bucket), n in gap.places(begin, gap.end).items()}


def _readable(reader: TopicReader, corrupt: Callable[[int, int], object]) -> Iterator[Stored]:
    """All batches that can be read; the ranges of others are told to ``corrupt``."""
    offset, stop = 0, False
    while not stop:
        stop = True
        try:
            for stored in reader.documents(offset):
                yield stored
                offset = stored.end
        except CorruptBatch as error:
            corrupt(error.begin, error.end)
            offset, stop = error.end, False


def _posts(reader: TopicReader, verify: Verify | None) -> Iterator[Post]:
    corrupt = partial(verify, TOPIC) if verify else lambda begin, end: None
    for stored in _readable(reader, corrupt):
        for payload in stored.batch.column("payload").to_pylist():
            yield parse(json.loads(payload))


def all_listeners(buffers: Path, configured: Iterable[str]) -> list[str]:
    """The listeners that are configured, and those that have left a log buffer."""
    return sorted({*configured, *listeners_in(buffers)})


def balance_of(
    pages: Pages, topics: Path, in_buffer: Mapping[Key, Counts], within: Within = None, buffers: Path | None = None
) -> Balance:
    """The balance of ``pages``, with what the topics' folders say of the offsets beyond the landed ones.

    With ``buffers``, the folder of the log buffers, also of the routes to handlers that are processes of their own.
    """
    beyond = {name: _beyond(topics, pages, name) for name in pages.logged}
    result = balance(pages, beyond, in_buffer, within)
    if buffers is None:
        return result
    accepted = summed_accepted(pages.received, in_buffer)
    others = routes(buffers, standings(buffers, listeners_in(buffers)), accepted, within)
    return replace(result, routes=sorted([*result.routes, *others], key=lambda route: (route.source, route.handler)))


def summed_accepted(*tiers: Mapping[Key, Counts]) -> dict[Key, int]:
    """Messages accepted, by source and bucket."""
    total: dict[Key, int] = {}
    for tier in tiers:
        for key, counts in tier.items():
            total[key] = total.get(key, 0) + counts[Name.ACCEPTED]
    return total


def _beyond(topics: Path, pages: Pages, name: str) -> Beyond:
    landed = pages.landed.get(name)
    through = landed.through if landed else 0
    if is_partition(name):
        return Beyond({("kafka", 0): pages.ends[name] - through})
    reader = TopicReader(topics / name)
    pending = reader.rows_by_origin(through, pages.ends[name]) if landed else {}
    gaps: dict[Key, Counts] = {}
    for gap in reader.gaps():
        if gap.end > through:
            for key, rows in gap_rows(gap, through).items():
                gaps.setdefault(key, Counts())[f"{Name.GAP}{gap.reason}"] += rows
    return Beyond(pending, gaps)
