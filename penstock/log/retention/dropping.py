"""Retention: drops old segments, segments beyond the size limit, or a whole topic.

Order: the gap with its counts is synced before the files are removed, so no row disappears without being accounted
for. A segment goes as a whole, the oldest first, once its newest entry is older than ``stale_after``, or while the
topic is larger than ``retain_bytes``. With roll by age, no entry is older than retention + roll age + sweep interval
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
from penstock.log.store import batch_copies, batch_format, segment_files
from penstock.log.store.gaps import CORRUPT, EXPIRED_READ, EXPIRED_UNREAD, Gap, Gaps, uncovered
from penstock.log.store.recovery import gaps_for_lost_records
from penstock.log.store.segment_files import SegmentFiles


@dataclass(frozen=True, slots=True)
class Swept:
    """Dropped offsets [begin, end) of ``topic``, ``bytes`` on the disk, and the reason (such as ``expired_read``)."""

    topic: str
    begin: int
    end: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A sealed segment: offsets [first, end), ``size`` in bytes on the disk."""

    files: SegmentFiles
    end: int
    size: int

    def newest(self) -> int:
        """Return the timestamp of the newest entry in microseconds; 0 if the segment is empty."""
        return int(view_of(self.files).records["last"].max(initial=0))


def sealed_segments(fs: FileSystem, directory: Path) -> list[SealedSegment]:
    """Return the sealed segments, oldest first."""
    firsts = segment_files.first_offsets(fs.names(directory))
    segments = []
    for first, following in pairwise(firsts):
        files = SegmentFiles(directory, first)
        segments.append(SealedSegment(files, following, size_of(files)))
    return segments


def size_of(files: SegmentFiles) -> int:
    """Return the bytes of a segment on the disk."""
    return sum(path.stat().st_size for path in (files.data, files.index) if path.exists())


def view_of(files: SegmentFiles, is_sealed: bool = True) -> SegmentView:
    """Return a segment's current state."""
    view = SegmentView(files.directory, files.first)
    view.refresh(sealed=is_sealed)
    return view


def expired_segments(
    segments: Sequence[SealedSegment], settings: TopicSettings, active_size: int, now: int
) -> list[SealedSegment]:
    """Return the segments that exceed the age or size limit; ``now`` in microseconds."""
    oldest = now - settings.stale_after * 1e6
    size = active_size + sum(candidate.size for candidate in segments)
    due = []
    for index, candidate in enumerate(segments):
        too_much = settings.retain_bytes and size > settings.retain_bytes
        if not too_much and _newest_plausible(segments, index, now) >= oldest:
            break
        due.append(candidate)
        size -= candidate.size
    return due


def _newest_plausible(segments: Sequence[SealedSegment], index: int, now: int) -> int:
    """Return the timestamp of a segment's newest entry.

    If a wrong clock dated that entry in the future, return the timestamp of the next segment that is not in the
    future.
    """
    for candidate in segments[index:]:
        if (newest := candidate.newest()) <= now:
            return newest
    return now


def drop(
    fs: FileSystem, name: str, gaps: Gaps, due: Sequence[SealedSegment], settings: TopicSettings, cursors: Sequence[int]
) -> Iterator[Swept]:
    """Drop segments as far as the policy allows. Raises OSError.

    ``cursors`` are the offsets of the registered readers.
    """
    read_by_all = min(cursors, default=None)
    for expired in due:
        if settings.retention_policy == "keep" and read_by_all is not None and expired.end > read_by_all:
            return
        parts = split_by_readers(expired.files.first, expired.end, read_by_all)
        view = view_of(expired.files)
        added = [gap for begin, end, why in parts for gap in gaps_at_cursors(view, gaps, begin, end, why, cursors)]
        # Order: the gap is synced before the files are removed. Crash: files that remain are covered by the gap.
        gaps.add(added)
        segment_files.remove(fs, expired.files)
        fs.sync_directory(expired.files.directory)
        for begin, end, why in parts:
            yield Swept(name, begin, end, expired.size * (end - begin) // (expired.end - expired.files.first), why)


def gaps_at_cursors(
    view: SegmentView, gaps: Gaps, begin: int, end: int, reason: str, cursors: Iterable[int]
) -> list[Gap]:
    """Return the gaps of [begin, end), a part of a segment, divided at the cursors of its readers.

    A gap has the rows of its sources and not their offsets, so a reader can only count those in whole gaps exactly.
    """
    bounds = sorted({begin, *(cursor for cursor in cursors if begin < cursor < end), end})
    return [gap for first, last in pairwise(bounds) for gap in account_for_rows(view, gaps, first, last, reason)]


def split_by_readers(begin: int, end: int, read: int | None) -> list[tuple[int, int, str]]:
    """Divide [begin, end) into the part that every registered reader has read, and the rest."""
    middle = end if read is None else min(max(begin, read), end)
    parts = [(begin, middle, EXPIRED_READ), (middle, end, EXPIRED_UNREAD)]
    return [part for part in parts if part[1] > part[0]]


@dataclass(slots=True)
class _Tally:
    """Dropped rows and their counts, by source and bucket."""

    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    received: dict[str, dict[int, Counts]] = field(default_factory=dict)

    def add(self, message: batch_format.IpcMessage, rows: int, with_counts: bool) -> None:
        origin = message.origin
        of_source = self.rows.setdefault(origin.source, {})
        of_source[origin.bucket] = of_source.get(origin.bucket, 0) + rows
        if with_counts:
            for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
                self.received.setdefault(origin.source, {}).setdefault(bucket, Counts()).absorb(counts)


def account_for_rows(view: SegmentView, gaps: Gaps, begin: int, end: int, reason: str) -> list[Gap]:
    """Return gaps with their counts for the rows in [begin, end), all in one segment, that are not in a gap yet.

    A batch's counts belong to the gap that has its first row. A damaged batch becomes a gap with reason ``corrupt``.
    """
    covered = gaps.sorted()
    records = view.records[(view.records["base"] < end) & (view.records["base"] + view.records["rows"] > begin)]
    messages = [view.message(record) for record in records]
    bad = records[[message is None for message in messages]]
    copies = batch_copies.read(view.files).copies if len(bad) else []
    corrupt_gaps = [_clip(gap, begin, end) for gap in gaps_for_lost_records(bad, covered, copies=copies)]
    covered = sorted([*covered, *corrupt_gaps], key=lambda gap: gap.begin)
    readable = [message for message in messages if message is not None]
    return [*corrupt_gaps, *(_make_gap(readable, b, e, reason) for b, e in uncovered(covered, begin, end))]


def _clip(gap: Gap, begin: int, end: int) -> Gap:
    if begin <= gap.begin and gap.end <= end:
        return gap
    begin, end = max(gap.begin, begin), min(gap.end, end)
    counts = {source: dict.fromkeys(buckets, end - begin) for source, buckets in gap.counts.items()}
    return Gap(begin, end, CORRUPT, counts)


def _make_gap(messages: Iterable[batch_format.IpcMessage], begin: int, end: int, reason: str) -> Gap:
    tally = _Tally()
    for message in messages:
        if (rows := min(end, message.end) - max(begin, message.base)) > 0:
            tally.add(message, rows, with_counts=message.base >= begin)
    received = {s: {b: c.pruned() for b, c in buckets.items()} for s, buckets in tally.received.items()}
    return Gap(begin, end, reason, tally.rows, received)
