"""The ledger: the book kept up to date with the log, its posts kept in the topic ``_ledger``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from penstock.counts import Counts, Name, Origin, bucket_of
from penstock.ledger.balance import Balance, Beyond, balance
from penstock.ledger.book import Book, Landed, Pages
from penstock.ledger.posts import BadPost, ClientPost, Key, LandedPost, Post, dump, parse
from penstock.ledger.waiting import waiting
from penstock.log import CorruptBatch, Gap, Log, Stored, TopicReader
from penstock.records import body

TOPIC = "_ledger"
Verify = Callable[[str, int, int], object]
"""Has the offsets [begin, end) of a topic checked: what is corrupt becomes a gap."""
CURSOR = "pipeline"
"""The cursor of each topic that says up to where the pipeline has landed and proved it."""


class Ledger:
    """The books of one log and its listeners. ``buffers`` is the folder of their log buffers."""

    def __init__(self, log: Log, buffers: Path, listeners: Iterable[str]) -> None:
        self._log, self._buffers, self._listeners = log, buffers, list(listeners)
        for name in log.names(internal=True):
            log.topic(name, internal=True)  # recovered before it is read
        self._book = load(log.directory, verify=self._verify)
        log.observe(self._stored)

    def _stored(self, topic: str, stored: Stored) -> None:
        if topic != TOPIC:
            self._book.enter(topic, stored.origin, stored.base, stored.rows)

    def _verify(self, topic: str, begin: int, end: int) -> None:
        self._log.topic(topic, internal=True).verify(begin, end)

    def post(self, document: Any) -> bool:
        """Keep a post; whether it told something new, once it is synced. Raises BadPost, and LogFull."""
        post = parse(document)
        self._check(post)
        now = time.time()
        origin = Origin("ledger", bucket_of(now), int(now * 1e6), int(now * 1e6))
        topic = self._log.topic(TOPIC, create=True, internal=True)
        topic.append(body([dump(post)]), origin).result()
        new = self._book.post(post)
        if isinstance(post, LandedPost):  # after the proof is kept: its evidence may go now
            self._log.topic(post.topic).cursors.commit(CURSOR, post.through)
        return new

    def _check(self, post: Post) -> None:
        """Refuse what cannot be true: a post is kept for ever."""
        if isinstance(post, ClientPost):
            if post.listener not in self._listeners:
                raise BadPost(f"there is no listener {post.listener!r}")
            return
        if post.topic not in self._log.names():
            raise BadPost(f"there is no topic {post.topic!r}")
        known = self.landed().get(post.topic, Landed())
        told = sum(sum(counts.values()) for counts in post.counts.values())
        if post.through > self._log.topic(post.topic).end or told > max(post.through - known.through, 0) > 0:
            raise BadPost(f"topic {post.topic!r} has no {told} offsets from {known.through} to {post.through}")

    def landed(self) -> dict[str, Landed]:
        """By topic, what has landed and up to where."""
        return self._book.snapshot().landed

    def balance(self, bucket: int | None = None) -> Balance:
        """The balance now."""
        pages = self._book.snapshot()  # downstream first: what lands meanwhile only looks pending
        return balance_of(pages, self._log.directory, waiting(self._buffers, self._listeners), bucket)


def load(topics: Path, tiers: tuple[type[Post], ...] = (LandedPost, ClientPost), verify: Verify | None = None) -> Book:
    """The book as the topics' own files tell it, with the posts of ``tiers``.

    A corrupt range is handed to ``verify``, which makes it a gap; without it, its rows are of source ``unknown``.
    """
    book = Book()
    for path in sorted(path for path in topics.iterdir() if path.is_dir()):
        reader = TopicReader(path)
        if path.name != TOPIC:
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
    for gap in reader.gaps() if not name.startswith("_") else ():
        for key, rows in gap_rows(gap).items():
            book.enter_lost(name, key, gap.begin, rows)


def gap_rows(gap: Gap) -> dict[Key, int]:
    """The rows of a gap by source and bucket; those it cannot name are of source ``unknown``."""
    rows = {(source, int(b)): n for source, buckets in gap.counts.items() for b, n in buckets.items()}
    unnamed = gap.end - gap.begin - sum(rows.values())
    return rows | ({("unknown", 0): unnamed} if unnamed else {})


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


def balance_of(pages: Pages, topics: Path, in_buffer: Mapping[Key, Counts], bucket: int | None = None) -> Balance:
    """The balance of ``pages``, with what the topics' folders say of the offsets beyond the landed ones."""
    beyond = {name: _beyond(TopicReader(topics / name), pages, name) for name in pages.logged}
    return balance(pages, beyond, in_buffer, bucket)


def _beyond(reader: TopicReader, pages: Pages, name: str) -> Beyond:
    landed = pages.landed.get(name)
    through = landed.through if landed else 0
    pending = reader.rows_by_origin(through, pages.ends[name]) if landed else {}
    gaps: dict[Key, Counts] = {}
    for gap in reader.gaps():
        if gap.begin >= through:
            for key, rows in gap_rows(gap).items():
                gaps.setdefault(key, Counts())[f"{Name.GAP}{gap.reason}"] += rows
    return Beyond(pending, gaps)
