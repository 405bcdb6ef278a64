"""Maintenance of a topic's segments: verification, compaction, retention and deletion, one operation at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from penstock.log import topic_state
from penstock.log.commit.writer import Writer
from penstock.log.cursors import Cursors
from penstock.log.errors import write_error
from penstock.log.resources import SharedResources
from penstock.log.retention.compaction import compact, is_compacted
from penstock.log.retention.dropping import (
    SealedSegment,
    Swept,
    account_for_rows,
    drop,
    expired_segments,
    sealed_segments,
    view_of,
)
from penstock.log.retention.verify import Verification
from penstock.log.store.gaps import DELETED, Gap, Gaps
from penstock.log.store.segment_files import SegmentFiles, first_offsets

BEYOND_ALL_OFFSETS = 1 << 63
"""An offset greater than any that a topic can have."""
BEFORE_ALL_TIMES = -(1 << 62)
"""A time before all entries, in microseconds."""


class Maintenance:
    """Maintenance operations of the topic in ``path``.

    Threads: ``_lock`` serializes them; the writer's lock is held briefly.
    """

    def __init__(self, shared: SharedResources, path: Path, gaps: Gaps, cursors: Cursors, writer: Writer) -> None:
        self._shared = shared
        self._path = path
        self._gaps = gaps
        self._cursors = cursors
        self._writer = writer
        self._lock = threading.Lock()
        self._compacted: set[tuple[int, str]] = set()

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Hold the lock. Raises LogFull and WriteFailed instead of OSError."""
        try:
            with self._lock:
                yield
        except OSError as error:
            raise write_error(error) from error

    def verify(self, begin: int, end: int) -> list[Gap]:
        """Verify offsets [begin, end) and return new gaps. Raises LogFull, WriteFailed, UnknownFormat."""
        with self._exclusively():
            return self._verify(begin, end)

    def _verify(self, begin: int, end: int) -> list[Gap]:
        writer = self._writer
        check = Verification(self._shared.fs, self._path, self._gaps, writer.lock, writer.release)
        return check.run(begin, end)

    def compact(self) -> tuple[int, int]:
        """Compact all sealed segments that need it; return their bytes before and after.

        Raises LogFull, WriteFailed.
        """
        before = after = 0
        with self._exclusively():
            for segment in sealed_segments(self._shared.fs, self._path):
                sizes = self._compact(segment)
                before, after = before + sizes[0], after + sizes[1]
        return before, after

    def _compact(self, segment: SealedSegment) -> tuple[int, int]:
        fs, compression = self._shared.fs, self._writer.settings.compression
        key = (segment.files.first, compression)
        sizes = (0, 0)
        if key not in self._compacted and not is_compacted(fs, segment.files, compression):
            # Order: verify first, because compaction leaves out damaged batches, which must be gaps by then.
            self._verify(segment.files.first, segment.end)
            sizes = compact(fs, segment.files, compression, self._gaps.sorted())
            self._shared.budget.add(sizes[1] - sizes[0])
        # A cache: without it, each sweep would read the index of each segment.
        self._compacted.add(key)
        return sizes

    def expire(self) -> list[Swept]:
        """Drop what retention allows.

        Raises LogFull, WriteFailed; segments that were dropped before the error stay dropped.
        """
        clock = self._shared.clock
        now = clock.micros() if clock.right else BEFORE_ALL_TIMES  # Invariant: a wrong clock drops nothing by age
        settings, fs = self._writer.settings, self._shared.fs
        with self._exclusively():
            due = expired_segments(sealed_segments(fs, self._path), settings, self._writer.size, now)
            self._compacted -= {key for key in self._compacted if key[0] in {segment.files.first for segment in due}}
            cursors = list(self._cursors.offsets().values())
            swept = list(drop(fs, self._path.name, self._gaps, due, settings, cursors))
            # Gaps that a reader has not passed stay separate, because the reader may count them one by one.
            with contextlib.suppress(OSError):  # joining saves space only; the next sweep tries again
                self._gaps.join(min(cursors, default=BEYOND_ALL_OFFSETS))
            return swept

    def remove(self) -> None:
        """Remove everything but the gaps, which then cover all offsets. Raises LogFull, WriteFailed."""
        fs = self._shared.fs
        with self._exclusively(), self._writer.lock:
            # Order: the rollback before the files are gone. It could never succeed without them, and the other topics
            # of its transaction wait for it; later it would cut the rows of a new topic with this name.
            self._writer.finish_pending_rollback()
            self._writer.close()
            firsts = first_offsets(fs.names(self._path))
            for first, following in zip_longest(firsts, firsts[1:]):
                view = view_of(SegmentFiles(self._path, first), is_sealed=following is not None)
                self._gaps.add(account_for_rows(view, self._gaps, first, following or view.end, DELETED))
            # Order: the gaps before the mark, so that the counts of the deleted rows are never lost.
            topic_state.mark_deleted(fs, self._path)
            with contextlib.suppress(OSError):  # Crash: the mark stays, and the rest is removed when the log is opened
                topic_state.clear(fs, self._path)
