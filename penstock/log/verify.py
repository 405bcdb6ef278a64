"""Checking the stored batches of a topic, and turning bad ones into gaps."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from itertools import zip_longest
from pathlib import Path

from penstock.log import index, segment
from penstock.log.files import FileSystem, replace
from penstock.log.gaps import CORRUPT, Gap, Gaps, uncovered
from penstock.log.recovery import corrupt_gaps, quarantine, readable
from penstock.log.view import SegmentView


def find_bad(
    fs: FileSystem, directory: Path, gaps: Gaps, lock: AbstractContextManager[object], begin: int, end: int
) -> list[Gap]:
    """New gaps for the batches with rows in [begin, end) that cannot be read. Raises OSError.

    Their bytes are in ``quarantine/`` before the gaps are synced, which are entered under ``lock``. The index of a
    sealed segment is rebuilt when it is of no use.
    """
    firsts = segment.first_offsets(fs.names(directory))
    found: list[Gap] = []
    for first, following in zip_longest(firsts, firsts[1:]):
        if first < end and (following is None or following > begin):
            view = SegmentView(directory, first)
            with suppress(FileNotFoundError):  # it expires meanwhile
                view.refresh(sealed=following is not None)
            bad = _unreadable(view, begin, end)
            with lock:
                found += _enter(fs, view, bad, gaps, (max(view.end, begin), min(following or 0, end)))
    return found


def _unreadable(view: SegmentView, begin: int, end: int) -> index.Records:
    records = view.records[(view.records["base"] < end) & (view.records["base"] + view.records["rows"] > begin)]
    bad: index.Records = records[~readable(view.data, records)]
    return bad


def _enter(fs: FileSystem, view: SegmentView, bad: index.Records, gaps: Gaps, missing: tuple[int, int]) -> list[Gap]:
    """Make gaps of bad batches and of the offsets ``missing`` behind the segment, where they are none yet."""
    for position, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
        quarantine(fs, view.files, view.data, position, position + length)
    if view.sealed and view.rebuilt:
        replace(fs, view.files.index, index.HEADER + view.records.tobytes())
    added = corrupt_gaps(bad, gaps.all())
    gaps.add(added)
    lost = [Gap(b, e, CORRUPT) for b, e in uncovered(gaps.all(), *missing)]
    gaps.add(lost)
    return added + lost
