"""What is done to a topic's segments after they are written: checked, compacted, expired, removed."""

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
from penstock.log.resources import Shared
from penstock.log.retention.compaction import compact, is_compacted
from penstock.log.retention.dropping import Sealed, Swept, account, drop, sealed, stale, view_of
from penstock.log.retention.verify import Verification
from penstock.log.store.gaps import DELETED, Gap, Gaps
from penstock.log.store.segment import Files, first_offsets

ALL = 1 << 63
"""Beyond any offset."""
NEVER = -(1 << 62)
"""Before any entry's time."""


class Maintenance:
    """The topic in ``path``. One thing at a time; the writer is held up for moments only."""

    def __init__(self, shared: Shared, path: Path, gaps: Gaps, cursors: Cursors, writer: Writer) -> None:
        self._shared = shared
        self._path = path
        self._gaps = gaps
        self._cursors = cursors
        self._writer = writer
        self._lock = threading.Lock()
        self._final: set[tuple[int, str]] = set()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Raises LogFull and WriteFailed for what the file system does not do."""
        try:
            with self._lock:
                yield
        except OSError as error:
            raise write_error(error) from error

    def verify(self, begin: int, end: int) -> list[Gap]:
        """Check offsets [begin, end). Raises LogFull, WriteFailed, UnknownFormat."""
        with self._alone():
            return self._verify(begin, end)

    def _verify(self, begin: int, end: int) -> list[Gap]:
        writer = self._writer
        check = Verification(self._shared.fs, self._path, self._gaps, writer.lock, writer.release)
        return check.run(begin, end)

    def compact(self) -> tuple[int, int]:
        """Compact all sealed segments that are not; their bytes before and after. Raises LogFull, WriteFailed."""
        before = after = 0
        with self._alone():
            for one in sealed(self._shared.fs, self._path):
                sizes = self._compact(one)
                before, after = before + sizes[0], after + sizes[1]
        return before, after

    def _compact(self, one: Sealed) -> tuple[int, int]:
        fs, wanted = self._shared.fs, self._writer.settings.compression
        key = (one.files.first, wanted)
        sizes = (0, 0)
        if key not in self._final and not is_compacted(fs, one.files, wanted):
            self._verify(one.files.first, one.end)
            sizes = compact(fs, one.files, wanted, self._gaps.all())
            self._shared.budget.add(sizes[1] - sizes[0])
        self._final.add(key)
        return sizes

    def expire(self) -> list[Swept]:
        """Drop what retention allows. Raises LogFull, WriteFailed; what was dropped before stays so."""
        clock = self._shared.clock
        now = clock.micros() if clock.right else NEVER  # by size alone
        settings, fs = self._writer.settings, self._shared.fs
        with self._alone():
            due = stale(sealed(fs, self._path), settings, self._writer.size, now)
            self._final -= {key for key in self._final if key[0] in {one.files.first for one in due}}
            read = list(self._cursors.all().values())
            swept = list(drop(fs, self._path.name, self._gaps, due, settings, read))
            # What a reader has still to pass stays in parts: it may count them one by one.
            with contextlib.suppress(OSError):  # later, then
                self._gaps.join(min(read, default=ALL))
            return swept

    def remove(self) -> None:
        """Remove everything but the gaps, which then cover all. Raises LogFull, WriteFailed."""
        fs = self._shared.fs
        with self._alone(), self._writer.lock:
            self._writer.close()
            firsts = first_offsets(fs.names(self._path))
            for first, following in zip_longest(firsts, firsts[1:]):
                view = view_of(Files(self._path, first), is_sealed=following is not None)
                self._gaps.add(account(view, self._gaps, first, following or view.end, DELETED))
            topic_state.mark_deleted(fs, self._path)
            with contextlib.suppress(OSError):  # the rest is removed when the log is opened
                topic_state.clear(fs, self._path)
