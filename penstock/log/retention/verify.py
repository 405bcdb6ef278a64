"""Verification of stored batches: damaged batches become gaps, wrong indices are rewritten."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from threading import Lock

import numpy as np

from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.read.segment_view import SegmentView
from penstock.log.store import batch_copies, index, segment_files
from penstock.log.store.gaps import Gap, Gaps
from penstock.log.store.recovery import gaps_for_lost_records, gaps_for_lost_rows, preserve_bytes


class Verification:
    """A verification of the topic in ``directory``. It stores new gaps under ``lock``, the writer's.

    ``release`` (called under ``lock``) makes the writer close its files, because the active segment's index is
    replaced.
    """

    def __init__(self, fs: FileSystem, directory: Path, gaps: Gaps, lock: Lock, release: Callable[[], None]) -> None:
        self._fs = fs
        self._directory = directory
        self._gaps = gaps
        self._lock = lock
        self._release = release

    def run(self, begin: int, end: int) -> list[Gap]:
        """Return new gaps for damaged batches with rows in [begin, end). Raises OSError, UnknownFormat.

        Rewrites an index that differs from the data.
        """
        firsts = segment_files.first_offsets(self._fs.names(self._directory))
        new_gaps: list[Gap] = []
        for first, following in zip_longest(firsts, firsts[1:]):
            if first < end and (following is None or following > begin):
                new_gaps += self._check_segment(first, following, begin, end)
        return new_gaps

    def _check_segment(self, first: int, following: int | None, begin: int, end: int) -> list[Gap]:
        view = SegmentView(self._directory, first)
        view.refresh(sealed=following is not None)
        records = view.records[(view.records["base"] < end) & (view.records["base"] + view.records["rows"] > begin)]
        messages = [view.message(record) for record in records]
        # A copy of the batch may still exist; with it nothing is lost.
        if None in messages and batch_copies.restore_batches(self._fs, view.files):
            messages = [view.message(record) for record in records]
        bad = records[np.array([message is None for message in messages], np.bool_)]
        good = records[np.array([message is not None for message in messages], np.bool_)]
        expected = index.pack(index.record(message) for message in messages if message is not None)
        wrong = view.index_unusable or not np.array_equal(expected, good)
        # The lock is taken only here: reading and checking a segment may take seconds, and appends must not wait for
        # it.
        with self._lock:
            new_gaps = self._add_gaps(view, bad, (max(view.end, begin), min(following or 0, end)))
            if wrong:
                self._write_index(view, following is not None)
        return new_gaps

    def _add_gaps(self, view: SegmentView, bad: index.IndexRecords, missing: tuple[int, int]) -> list[Gap]:
        """Store gaps for damaged batches and for the offsets ``missing`` behind the segment, unless gaps cover them."""
        # Order: the damaged bytes are in `quarantine/` before the gap is synced, because compaction drops them once
        # they are a gap.
        for position, length in zip(bad["position"].tolist(), bad["length"].tolist(), strict=True):
            preserve_bytes(self._fs, view.files, view.data, position, position + length)
        copies = batch_copies.read(view.files).copies
        added = gaps_for_lost_records(bad, self._gaps.sorted(), copies=copies)
        self._gaps.add(added)
        lost = gaps_for_lost_rows(*missing, self._gaps.sorted(), copies=copies)
        self._gaps.add(lost)
        return added + lost

    def _write_index(self, view: SegmentView, sealed: bool) -> None:
        """Rewrite the index from the data, including batches that were appended during the check."""
        view.refresh(sealed=sealed)
        records = [index.record(m) if (m := view.message(r)) is not None else tuple(r) for r in view.records]
        content = index.header(view.files.fingerprint) + index.pack(records).tobytes()
        if not sealed:
            self._release()
            # Crash: records behind an outdated synced length tell the recovery of rows that may be damaged.
            hints = index.read(self._fs.read(view.files.index), view.files.fingerprint)
            content += hints[index.valid(hints) & (hints["position"] >= view.length)].tobytes()
        replace_durably(self._fs, view.files.index, content)
