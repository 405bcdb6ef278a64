"""Checking the stored batches of a topic, and turning bad ones into gaps."""

from __future__ import annotations

import contextlib
from pathlib import Path

from penstock.log import index, segment
from penstock.log.files import FileSystem, replace
from penstock.log.gaps import Gap, Gaps, uncovered
from penstock.log.recovery import corrupt_gaps, quarantine, readable
from penstock.log.view import SegmentView


def find_bad(fs: FileSystem, directory: Path, gaps: Gaps, begin: int, end: int) -> list[Gap]:
    """New gaps for the batches with rows in [begin, end) that cannot be read. Raises OSError.

    Their bytes are in ``quarantine/`` before the gaps are synced. The index of a sealed segment is rebuilt when it is
    of no use.
    """
    firsts = segment.first_offsets(fs.names(directory))
    found: list[Gap] = []
    for number, first in enumerate(firsts):
        following = firsts[number + 1] if number + 1 < len(firsts) else None
        if first < end and (following is None or following > begin):
            found += _check(fs, SegmentView(directory, first), following, gaps, begin, end)
    return found


def _check(fs: FileSystem, view: SegmentView, following: int | None, gaps: Gaps, begin: int, end: int) -> list[Gap]:
    with contextlib.suppress(FileNotFoundError):
        view.refresh(sealed=following is not None)
    if following is not None and view.rebuilt:
        replace(fs, view.files.index, index.HEADER + view.records.tobytes())
    records = view.records[(view.records["base"] < end) & (view.records["base"] + view.records["rows"] > begin)]
    bad = records[~readable(view.data, records)]
    for position, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
        quarantine(fs, view.files, view.data, position, position + length)
    added = corrupt_gaps(bad, gaps.all())
    if following is not None:
        missing = uncovered([*gaps.all(), *added], max(view.end, begin), min(following, end))
        added += [Gap(b, e, "corrupt") for b, e in missing]
    gaps.add(added)
    return added
