"""The ledger: the book kept up to date with the log, its posts kept in the topic ``_ledger``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.counts import Counts, Name, Origin, bucket_of
from penstock.ledger.balance import Balance, Beyond, balance
from penstock.ledger.book import Book, Landed, Pages
from penstock.ledger.posts import BadPost, ClientPost, Key, LandedPost, Post, dump, parse
from penstock.ledger.waiting import waiting
from penstock.log import Gap, Log, Stored, TopicReader
from penstock.records import body

TOPIC = "_ledger"
CURSOR = "pipeline"
"""The cursor of each topic that says up to where the pipeline has landed and proved it."""


class Ledger:
    """The books of one log and its listeners. ``buffers`` is the folder of their log buffers."""

    def __init__(self, log: Log, buffers: Path, listeners: Iterable[str]) -> None:
        self._log, self._buffers, self._listeners = log, buffers, list(listeners)
        self._book = load(log.directory)
        log.observe(self._stored)

    def _stored(self, topic: str, stored: Stored) -> None:
        if topic != TOPIC:
            self._book.enter(topic, stored.origin, stored.base, stored.rows)

    def post(self, document: Any) -> bool:
        """Keep a post; whether it told something new, once it is synced. Raises BadPost, and LogFull."""
        post = parse(document)
        if isinstance(post, LandedPost) and post.topic not in self._log.names():
            raise BadPost(f"there is no topic {post.topic!r}")
        now = time.time()
        origin = Origin("ledger", bucket_of(now), int(now * 1e6), int(now * 1e6))
        topic = self._log.topic(TOPIC, create=True, internal=True)
        topic.append(body([dump(post)]), origin).result()
        new = self._book.post(post)
        if isinstance(post, LandedPost):  # after the proof is kept: its evidence may go now
            self._log.topic(post.topic).cursors.commit(CURSOR, post.through)
        return new

    def landed(self) -> dict[str, Landed]:
        """By topic, what has landed and up to where."""
        return self._book.snapshot().landed

    def balance(self, bucket: int | None = None) -> Balance:
        """The balance now."""
        pages = self._book.snapshot()  # downstream first: what lands meanwhile only looks pending
        return balance_of(pages, self._log.directory, waiting(self._buffers, self._listeners), bucket)


def load(topics: Path, tiers: tuple[type[Post], ...] = (LandedPost, ClientPost)) -> Book:
    """The book as the topics' own files tell it, with the posts of ``tiers``."""
    book = Book()
    for path in sorted(path for path in topics.iterdir() if path.is_dir()):
        reader = TopicReader(path)
        if path.name != TOPIC:
            enter_topic(book, path.name, reader)
            continue
        for post in _posts(reader):
            if isinstance(post, tiers):
                book.post(post)
    return book


def enter_topic(book: Book, name: str, reader: TopicReader) -> None:
    """Enter all batches of a topic, and its gaps for those that can no longer be read."""
    for stored in reader.documents():
        book.enter(name, stored.origin, stored.base, stored.rows)
    for gap in reader.gaps():
        for key, rows in gap_rows(gap).items():
            book.enter_lost(name, key, gap.begin, rows)


def gap_rows(gap: Gap) -> dict[Key, int]:
    """The rows of a gap by source and bucket; those it cannot name are of source ``unknown``."""
    rows = {(source, int(b)): n for source, buckets in gap.counts.items() for b, n in buckets.items()}
    unnamed = gap.end - gap.begin - sum(rows.values())
    return rows | ({("unknown", 0): unnamed} if unnamed else {})


def _posts(reader: TopicReader) -> Iterable[Post]:
    for stored in reader.read(reader.start):
        for payload in stored.batch.column("payload").to_pylist():
            yield parse(json.loads(payload))


def balance_of(pages: Pages, topics: Path, in_buffer: Mapping[Key, Counts], bucket: int | None = None) -> Balance:
    """The balance of ``pages``, with what the topics' folders say of the offsets beyond the landed ones."""
    beyond = {name: _beyond(topics / name, pages, name) for name in pages.logged}
    return balance(pages, beyond, in_buffer, bucket)


def _beyond(path: Path, pages: Pages, name: str) -> Beyond:
    through = pages.landed[name].through if name in pages.landed else 0
    end = pages.ends[name]
    pending: dict[Key, int] = {}
    gaps: dict[Key, Counts] = {}
    reader = TopicReader(path)
    for stored in reader.documents(through):
        rows = min(stored.base + stored.rows, end) - max(stored.base, through)
        key = (stored.origin.source, stored.origin.bucket)
        if rows > 0:
            pending[key] = pending.get(key, 0) + rows
    for gap in reader.gaps():
        if gap.begin >= through:
            for key, rows in gap_rows(gap).items():
                gaps.setdefault(key, Counts())[f"{Name.GAP}{gap.reason}"] += rows
    return Beyond(pending, gaps)
