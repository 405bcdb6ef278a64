"""Dropping what is old, what is too much, or a whole topic: first the gap with its counts, synced, then the files.

A segment goes as a whole, the oldest first, once its newest entry is older than ``stale_after``, or while the topic
is larger than ``retain_bytes``. With roll by age, no entry is ever older than retention + roll age + sweep interval
(slogd's README, "Message retention").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from penstock.counts import Counts, by_bucket
from penstock.files.file_system import FileSystem
from penstock.log.read.segment_view import SegmentView
from penstock.log.settings import TopicSettings
from penstock.log.store import batch_copies, batch_format, segment
from penstock.log.store.gaps import CORRUPT, EXPIRED_READ, EXPIRED_UNREAD, Gap, Gaps, uncovered
from penstock.log.store.recovery import lost_gaps
from penstock.log.store.segment import Files


@dataclass(frozen=True, slots=True)
class Swept:
    """What went of a topic: offsets [begin, end), ``bytes`` on the disk, and why (``expired_read`` and so on)."""

    topic: str
    begin: int
    end: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment: offsets [first, end), ``size`` on the disk."""

    files: Files
    end: int
    size: int

    def newest(self) -> int:
        """The timestamp of its newest entry, microseconds; 0 when it is empty."""
        return int(view_of(self.files).records["last"].max(initial=0))


def sealed(fs: FileSystem, directory: Path) -> list[Sealed]:
    """The sealed segments, oldest first."""
    firsts = segment.first_offsets(fs.names(directory))
    found = []
    for first, following in pairwise(firsts):
        files = Files(directory, first)
        found.append(Sealed(files, following, size_of(files)))
    return found


def size_of(files: Files) -> int:
    """Bytes of a segment on the disk."""
    return sum(path.stat().st_size for path in (files.data, files.index) if path.exists())


def view_of(files: Files, is_sealed: bool = True) -> SegmentView:
    """A segment as it is now."""
    view = SegmentView(files.directory, files.first)
    view.refresh(sealed=is_sealed)
    return view


def stale(many: Sequence[Sealed], settings: TopicSettings, active_size: int, now: int) -> list[Sealed]:
    """The segments that are to go by age or size; ``now`` in microseconds."""
    oldest = now - settings.stale_after * 1e6
    size = active_size + sum(one.size for one in many)
    due = []
    for number, one in enumerate(many):
        too_much = settings.retain_bytes and size > settings.retain_bytes
        if not too_much and _newest(many, number, now) >= oldest:
            break
        due.append(one)
        size -= one.size
    return due


def _newest(many: Sequence[Sealed], number: int, now: int) -> int:
    """The timestamp of a segment's newest entry; where that is to come, of the next one that a right clock gave."""
    for one in many[number:]:
        if (newest := one.newest()) <= now:
            return newest
    return now


def drop(
    fs: FileSystem, name: str, gaps: Gaps, due: Sequence[Sealed], settings: TopicSettings, cursors: Sequence[int]
) -> Iterator[Swept]:
    """Drop segments, as far as the policy allows; ``cursors`` are where the registered readers are. Raises OSError."""
    read_by_all = min(cursors, default=None)
    for one in due:
        if settings.retention_policy == "keep" and read_by_all is not None and one.end > read_by_all:
            return
        parts = split(one.files.first, one.end, read_by_all)
        added = [gap for begin, end, why in parts for gap in account(view_of(one.files), gaps, begin, end, why)]
        gaps.add(added)
        segment.remove(fs, one.files)
        fs.sync_directory(one.files.directory)
        for begin, end, why in parts:
            yield Swept(name, begin, end, one.size * (end - begin) // (one.end - one.files.first), why)


def split(begin: int, end: int, read: int | None) -> list[tuple[int, int, str]]:
    """The offsets [begin, end) as those that every registered reader has read, and those that one has not."""
    middle = end if read is None else min(max(begin, read), end)
    parts = [(begin, middle, EXPIRED_READ), (middle, end, EXPIRED_UNREAD)]
    return [part for part in parts if part[1] > part[0]]


@dataclass(slots=True)
class _Tally:
    """Rows and counts of what goes, by source and bucket."""

    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    received: dict[str, dict[int, Counts]] = field(default_factory=dict)

    def add(self, message: batch_format.Message, rows: int, whole: bool) -> None:
        origin = message.origin
        of_source = self.rows.setdefault(origin.source, {})
        of_source[origin.bucket] = of_source.get(origin.bucket, 0) + rows
        if whole:
            for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
                self.received.setdefault(origin.source, {}).setdefault(bucket, Counts()).absorb(counts)


def account(view: SegmentView, gaps: Gaps, begin: int, end: int, reason: str) -> list[Gap]:
    """Gaps for what is still there of the offsets [begin, end), all in one segment, with their counts.

    A batch's counts go with its first row. What cannot be read is ``corrupt``.
    """
    known = gaps.all()
    records = view.records[(view.records["base"] < end) & (view.records["base"] + view.records["rows"] > begin)]
    messages = [view.message(record) for record in records]
    bad = records[[message is None for message in messages]]
    copies = batch_copies.read(view.files).copies if len(bad) else []
    lost = [_clipped(gap, begin, end) for gap in lost_gaps(bad, known, copies=copies)]
    known = sorted([*known, *lost], key=lambda gap: gap.begin)
    found = [message for message in messages if message is not None]
    return [*lost, *(_gap(found, b, e, reason) for b, e in uncovered(known, begin, end))]


def _clipped(gap: Gap, begin: int, end: int) -> Gap:
    if begin <= gap.begin and gap.end <= end:
        return gap
    begin, end = max(gap.begin, begin), min(gap.end, end)
    counts = {source: dict.fromkeys(buckets, end - begin) for source, buckets in gap.counts.items()}
    return Gap(begin, end, CORRUPT, counts)


def _gap(messages: Iterable[batch_format.Message], begin: int, end: int, reason: str) -> Gap:
    tally = _Tally()
    for message in messages:
        if (rows := min(end, message.end) - max(begin, message.base)) > 0:
            tally.add(message, rows, whole=message.base >= begin)
    received = {s: {b: c.pruned() for b, c in buckets.items()} for s, buckets in tally.received.items()}
    return Gap(begin, end, reason, tally.rows, received)
