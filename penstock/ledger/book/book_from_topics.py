"""The book computed from the topics' files: from the beginning, or from the end of a checkpoint.

Invariant: both give the same book. If that is not certain, because files changed before the checkpoint's end, the
checkpoint is ignored and everything is read.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from types import MappingProxyType

from penstock.counts import Name, SourceBucket
from penstock.ledger.book import checkpoint
from penstock.ledger.book.book import Book
from penstock.ledger.book.book_pages import BookPages, Covered
from penstock.ledger.book.checkpoint import BadCheckpoint
from penstock.ledger.book.daily_rollup import DAY
from penstock.ledger.posts import AuditPost, ClientPost, EventPost, LandedPost, Post, SenderPost, parse
from penstock.log import CorruptBatch, Gap, StoredBatch, TopicReader, UnknownFormat
from penstock.log.read.glance import IntactTopic

TOPIC = "_ledger"
Verify = Callable[[str, int, int], object]
"""Verifies the offsets [begin, end) of a topic and turns corrupt ones into a gap."""
OnMissing = Callable[[str, int, int], object]
"""Receives a topic, its end, and the end up to which its entries were counted."""
TIERS: tuple[type[Post], ...] = (LandedPost, ClientPost, AuditPost, EventPost, SenderPost)
_NONE: Mapping[str, IntactTopic] = MappingProxyType({})
_LOGGER = logging.getLogger(__name__)


def resume(
    topics: Path,
    verify: Verify | None = None,
    rolled: int | None = None,
    orderly: Mapping[str, IntactTopic] = _NONE,
    on_missing: OnMissing = lambda topic, end, counted: None,
    unrecovered: Set[str] = frozenset(),
) -> Book:
    """Return the book from the checkpoint and the batches after it, or from all batches.

    ``rolled`` is the day up to which roll-up is allowed; a checkpoint beyond it, written while the clock was ahead, is
    ignored. A topic in ``orderly`` is read only if it goes beyond what is entered. ``on_missing`` is called for topics
    that end before what the checkpoint counted: the book cannot have these entries any more. Of the topics
    ``unrecovered`` the book has what can be read up to the first damage; ``enter`` adds the rest after the recovery.
    """

    def missing(topic: str, end: int, counted: int) -> None:
        if topic not in unrecovered:
            on_missing(topic, end, counted)

    pages, why = usable(topics, orderly, missing)
    if pages is not None and rolled is not None and pages.rolled > rolled + DAY:
        pages, why = None, "the checkpoint is rolled up to a day in the future"
    if pages is not None:
        return _read(Book(pages), topics, TIERS, verify, orderly, unrecovered)
    if any(_folders(topics)):
        _LOGGER.warning("the ledger reads all batches: %s", why)
    return _read(Book(), topics, TIERS, verify, orderly, unrecovered)


def load(topics: Path, tiers: tuple[type[Post], ...] = TIERS, verify: Verify | None = None) -> Book:
    """Return the book that the topics' files give, with the posts of ``tiers``.

    A corrupt range is passed to ``verify``, which makes it a gap; without ``verify``, its rows have the source
    ``unknown``.
    """
    return _read(Book(), topics, tiers, verify)


def _read(
    book: Book,
    topics: Path,
    tiers: tuple[type[Post], ...],
    verify: Verify | None,
    orderly: Mapping[str, IntactTopic] = _NONE,
    unrecovered: Set[str] = frozenset(),
) -> Book:
    for name in _folders(topics):
        # Fast path: a topic that is covered up to its end has nothing to enter, so its files stay unopened.
        if name not in orderly or orderly[name].end > book.covered(name):
            enter(book, TopicReader(topics / name), tiers, verify, is_recovered=name not in unrecovered)
    return book


def enter(
    book: Book,
    reader: TopicReader,
    tiers: tuple[type[Post], ...] = TIERS,
    verify: Verify | None = None,
    *,
    is_recovered: bool = True,
) -> None:
    """Enter the part of a topic that ``book`` does not cover; of an unrecovered one the part before the first damage.

    Rows may look damaged because only their index is lost; then a recovery makes them readable.
    """
    if reader.path.name != TOPIC:
        # A topic of another format stays out of the balance. The start has already logged it.
        with contextlib.suppress(UnknownFormat):
            enter_topic(book, reader.path.name, reader, verify, is_recovered=is_recovered)
    elif tiers:
        enter_posts(book, reader, tiers, verify, is_recovered=is_recovered)


def with_posts(book: Book, topics: Path, tiers: tuple[type[Post], ...]) -> Book:
    """Return a copy of ``book``, which has no posts, with the posts of ``tiers``."""
    copy = Book(book.snapshot())
    if (topics / TOPIC).is_dir():
        enter_posts(copy, TopicReader(topics / TOPIC), tiers)
    return copy


def _folders(topics: Path) -> list[str]:
    if not topics.is_dir():
        return []
    with os.scandir(topics) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def enter_topic(
    book: Book, name: str, reader: TopicReader, verify: Verify | None = None, *, is_recovered: bool = True
) -> None:
    """Enter the batches of a topic that are not covered, and its gaps in place of unreadable batches."""

    def lost(begin: int, end: int) -> None:
        book.enter_lost(name, ("unknown", 0), begin, end - begin)

    begin = book.covered(name)
    corrupt = partial(verify, name) if verify else lost
    for stored in _readable(reader, begin, corrupt if is_recovered else None):
        book.enter(name, stored.origin, stored.base, stored.rows, stored.last)
    entered_end = book.covered(name)
    for gap in reader.gaps():
        if gap.end <= begin or (gap.end > entered_end and not is_recovered):
            continue
        # The line of such a gap repeats the counts of its batches. Of other gaps only the number of rows is known.
        if gap.received is not None:
            book.enter_gone(name, gap, gap_rows(gap, gap.begin))
            continue
        if not name.startswith("_"):
            for key, rows in gap_rows(gap, gap.begin).items():
                book.enter_lost(name, key, gap.begin, rows)
        book.enter_gap(name, gap)
    # Batches on both sides of a gap look like skipped offsets until the gap itself is entered.
    book.skipped.discard(name)


def enter_posts(
    book: Book,
    reader: TopicReader,
    tiers: tuple[type[Post], ...],
    verify: Verify | None = None,
    *,
    is_recovered: bool = True,
) -> None:
    """Enter the posts that are not covered."""
    begin = book.covered(TOPIC)
    corrupt = partial(verify, TOPIC) if verify else lambda begin, end: None
    for stored in _readable(reader, begin, corrupt if is_recovered else None):
        for payload in stored.batch.column("payload").to_pylist():
            try:
                post = parse(json.loads(payload))  # type: ignore[arg-type]  # posts are never null
            except ValueError as error:
                # A post that an earlier version accepted must not stop the start.
                _LOGGER.warning("a post in %s is skipped: %s", TOPIC, error)
                continue
            if isinstance(post, tiers):
                book.post(post, stored.origin.bucket)
        book.cover(TOPIC, stored.end, stored.last)
    entered_end = book.covered(TOPIC)
    for gap in reader.gaps():
        if gap.end > begin and (gap.end <= entered_end or is_recovered):
            book.enter_gap(TOPIC, gap)


def _readable(reader: TopicReader, offset: int, corrupt: Callable[[int, int], object] | None) -> Iterator[StoredBatch]:
    """Yield all readable batches from ``offset``, and report unreadable ranges to ``corrupt``.

    ``corrupt`` may repair a range, so each range is tried again before it is skipped. Without it, nothing behind an
    unreadable range is yielded.
    """
    reported_begin = -1
    while True:
        try:
            for stored in reader.whole_batches(offset):
                yield stored
                offset = stored.end
            return
        except CorruptBatch as error:
            if corrupt is None:
                return
            if error.begin == reported_begin:
                offset = error.end
            else:
                corrupt(error.begin, error.end)
                reported_begin = error.begin


def gap_rows(gap: Gap, begin: int, end: int | None = None) -> dict[SourceBucket, int]:
    """Return the rows of a gap in [begin, end) by source and bucket; rows of unknown origin have the source
    ``unknown``.
    """
    end = gap.end if end is None else end
    rows_by_bucket = gap.rows_by_bucket(begin, end) if begin < end else {}
    return {(source or "unknown", bucket): rows for (source, bucket), rows in rows_by_bucket.items()}


def recompute(topics: Path) -> tuple[Book, list[str]]:
    """Return the book from the topics' files alone, without posts, and the differences to the checkpoint."""
    before = _resumed(topics)
    book = load(topics, ())
    full = with_posts(book, topics, TIERS)
    # Without a checkpoint, or if messages arrived during the computation, there is nothing to compare.
    if before is None or _resumed(topics) != before:
        return book, []
    full.roll_up(before.rolled)
    return book, _compared(before, full.snapshot())


def _resumed(topics: Path) -> BookPages | None:
    pages, _ = usable(topics)
    return None if pages is None else _read(Book(pages), topics, TIERS, None).snapshot()


def _compared(checkpointed: BookPages, computed: BookPages) -> list[str]:
    """Return one line for each tier that differs."""
    differences = []
    for tier in ("received", "logged", "ends", "landed", "clients", "audits", "events", "senders"):
        by_checkpoint, by_files = getattr(checkpointed, tier), getattr(computed, tier)
        if differing := [key for key in {*by_checkpoint, *by_files} if by_checkpoint.get(key) != by_files.get(key)]:
            key = min(differing)
            both = f"{by_checkpoint.get(key)} by the checkpoint, {by_files.get(key)} computed"
            differences.append(f"{tier} {key}: {both}")
    return differences


def usable(
    topics: Path,
    orderly: Mapping[str, IntactTopic] = _NONE,
    on_missing: OnMissing = lambda topic, end, counted: None,
) -> tuple[BookPages | None, str]:
    """Return the checkpoint if continuing from it gives the same book as reading everything; otherwise None and the
    reason.
    """
    try:
        pages = checkpoint.read(topics)
    except FileNotFoundError:
        return None, "there is no checkpoint"
    except (BadCheckpoint, OSError) as error:
        return None, f"{topics / checkpoint.FILE} cannot be used: {error}"
    # Compatibility: an earlier version summed by day only.
    pages.roll_tables()
    why = differs(topics, pages, orderly)
    for name, mark in pages.covered.items() if why else ():
        with contextlib.suppress(CorruptBatch, UnknownFormat, OSError):
            end = TopicReader(topics / name).end if (topics / name).is_dir() else 0
            if end < mark.end:
                on_missing(name, end, mark.end)
    return (None, f"the checkpoint is left alone: {why}") if why else (pages, "")


def differs(topics: Path, pages: BookPages, orderly: Mapping[str, IntactTopic] = _NONE) -> str:
    """Return how the topics' files changed since ``pages`` were entered; empty if they did not."""
    for name, mark in sorted(pages.covered.items()):
        lost = pages.unreadable_ranges.get(name, [])
        # Fast path: the start has read end, last timestamp and gaps of an intact topic, so its folder is not read
        # again.
        if name in orderly and _is_unchanged(orderly[name], mark, lost):
            continue
        path = topics / name
        if not path.is_dir():
            return f"topic {name} is gone"
        try:
            why = _changed(TopicReader(path), mark, lost)
        except (CorruptBatch, UnknownFormat, OSError) as error:
            why = str(error)
        if why:
            return f"topic {name}: {why}"
    return ""


def _is_unchanged(glanced: IntactTopic, mark: Covered, lost: list[tuple[int, int]]) -> bool:
    """Return whether a topic is unchanged since it was entered up to ``mark``."""
    # A time of 0 means that the last offset is in a gap, which has no timestamp.
    same_end = glanced.end == mark.end and (glanced.last == mark.time or 0 in (glanced.last, mark.time))
    return same_end and unreadable(glanced.gaps, mark.end) == sorted(lost)


def _changed(reader: TopicReader, mark: Covered, lost: list[tuple[int, int]]) -> str:
    if (end := reader.end) < mark.end:
        return f"it ends at {end}, before {mark.end}"
    all_gaps = reader.gaps()
    gaps = [gap for gap in all_gaps if gap.begin < mark.end]
    if unreadable(gaps, mark.end) != sorted(lost):
        return "other offsets than then cannot be read"
    if any(gap.end > mark.end for gap in gaps):
        return f"offsets before and behind {mark.end} went together"
    # The timestamp tells a topic from one that was deleted and filled up to the same offset again.
    if (last := next(reader.read(mark.end - 1, end=mark.end), None)) is not None and mark.time not in (0, last.last):
        return f"offset {mark.end - 1} has another timestamp"
    # If compaction joined batches across the mark, the rest of one cannot be entered without the part before it.
    if (following := next(reader.whole_batches(mark.end), None)) is not None and following.base < mark.end:
        return f"offset {mark.end} has become a part of a larger batch"
    # Such a batch may have been dropped in two parts: its counts are in the gap with its first row.
    is_divided = any(gap.end == mark.end for gap in gaps)
    if is_divided and any(gap.begin == mark.end and not _has_own_counts(gap) for gap in all_gaps):
        return f"offset {mark.end} was a part of a larger batch when it went"
    return ""


def _has_own_counts(gap: Gap) -> bool:
    """Return whether a gap with counts of batches has the counts of all its rows; False also if others carry them."""
    accepted = (c.get(Name.ACCEPTED, 0) for buckets in (gap.received or {}).values() for c in buckets.values())
    rows = (number for buckets in gap.counts.values() for number in buckets.values())
    return gap.received is None or sum(accepted) >= sum(rows)


def unreadable(gaps: Sequence[Gap], end: int) -> list[tuple[int, int]]:
    """Return the gaps that begin before ``end`` and have no counts of their batches."""
    return sorted((gap.begin, gap.end) for gap in gaps if gap.received is None and gap.begin < end)
