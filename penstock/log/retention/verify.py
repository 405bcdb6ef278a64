"""Checking the stored batches of a topic, and turning bad ones into gaps; wrong indices are made anew."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from threading import Lock

import numpy as np

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.read.segment_view import SegmentView
from penstock.log.store import batch_copies, index, segment
from penstock.log.store.gaps import CORRUPT, Gap, Gaps, uncovered
from penstock.log.store.recovery import lost_gaps, set_aside


class Verification:
    """Checks the topic in ``directory``. New gaps are entered under ``lock``, the writer's.

    ``release`` (called under ``lock``) has the writer close its files: those of the active segment are exchanged.
    """

    def __init__(self, fs: FileSystem, directory: Path, gaps: Gaps, lock: Lock, release: Callable[[], None]) -> None:
        self._fs = fs
        self._directory = directory
        self._gaps = gaps
        self._lock = lock
        self._release = release

    def run(self, begin: int, end: int) -> list[Gap]:
        """New gaps for the batches with rows in [begin, end) that cannot be read. Raises OSError, UnknownFormat.

        Their bytes are in ``quarantine/`` before the gaps are synced. An index that is not what the data say is
        written anew.
        """
        firsts = segment.first_offsets(self._fs.names(self._directory))
        found: list[Gap] = []
        for first, following in zip_longest(firsts, firsts[1:]):
            if first < end and (following is None or following > begin):
                found += self._check(first, following, begin, end)
        return found

    def _check(self, first: int, following: int | None, begin: int, end: int) -> list[Gap]:
        view = SegmentView(self._directory, first)
        view.refresh(sealed=following is not None)
        records = view.records[(view.records["base"] < end) & (view.records["base"] + view.records["rows"] > begin)]
        messages = [view.message(record) for record in records]
        if None in messages and batch_copies.put_back(self._fs, view.files):
            messages = [view.message(record) for record in records]
        bad = records[np.array([message is None for message in messages], np.bool_)]
        good = records[np.array([message is not None for message in messages], np.bool_)]
        told = index.pack(index.record(message) for message in messages if message is not None)
        wrong = view.index_unusable or not np.array_equal(told, good)
        with self._lock:
            found = self._enter(view, bad, (max(view.end, begin), min(following or 0, end)))
            if wrong:
                self._write_index(view, following is not None)
        return found

    def _enter(self, view: SegmentView, bad: index.IndexRecords, missing: tuple[int, int]) -> list[Gap]:
        """Make gaps of bad batches and of the offsets ``missing`` behind the segment, where they are none yet."""
        for position, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
            set_aside(self._fs, view.files, view.data, position, position + length)
        added = lost_gaps(bad, self._gaps.all(), copies=batch_copies.read(view.files).copies)
        self._gaps.add(added)
        lost = [Gap(b, e, CORRUPT) for b, e in uncovered(self._gaps.all(), *missing)]
        self._gaps.add(lost)
        return added + lost

    def _write_index(self, view: SegmentView, sealed: bool) -> None:
        """Write the index anew as the data say, also what came in meanwhile."""
        view.refresh(sealed=sealed)
        records = [index.record(m) if (m := view.message(r)) is not None else tuple(r) for r in view.records]
        if not sealed:
            self._release()
        replace_durably(self._fs, view.files.index, index.header(mark=view.files.mark) + index.pack(records).tobytes())
