"""The gaps of a topic: offsets without rows, the reason, and the number of rows by source and bucket.

``gaps.jsonl`` is a journal of checked lines, and the only place with the counts of dropped rows. A copy next to it
covers damage: readers add gaps that only the copy has, and so does the next start, in the files. Offsets missing from
both are found by recovery and entered without counts. Contiguous gaps are joined from time to time, and both files are
replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.files import errors as file_errors
from penstock.files.checked_lines import Damage, append_lines, encode_line, read_lines_from
from penstock.files.file_system import FileSystem, replace_durably
from penstock.log.errors import UnknownFormat

FILE_NAME, COPY_NAME = "gaps.jsonl", "gaps.copy.jsonl"
CORRUPT = "corrupt"
DELETED = "deleted"
EXPIRED_READ = "expired_read"
EXPIRED_UNREAD = "expired_unread"
MIN_GAPS_SAVED = 100
"""Gaps that a join must save before the file is rewritten; a rewrite costs a whole file and two fsyncs."""
MAX_BUCKETS_PER_GAP = 5000
"""Largest number of sources and buckets in a joined gap; bounds the length of a line."""
MAX_CACHED_FILES = 256
"""Number of files whose gaps stay in memory for the readers of this process."""
_LOGGER = logging.getLogger(__name__)
_BLANK = b"00000000"
_TAIL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) that cannot be read. ``counts``: rows by source and bucket, as far as recorded.

    ``received`` are the counts of the lost batches by source and bucket; None if they could not be read.
    """

    begin: int
    end: int
    reason: str
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    received: Mapping[str, Mapping[int, Mapping[str, int]]] | None = None

    def document(self) -> dict[str, Any]:
        """Return a JSON-ready document."""
        counts = {source: {str(b): n for b, n in buckets.items()} for source, buckets in self.counts.items()}
        document = {"begin": self.begin, "end": self.end, "reason": self.reason, "counts": counts}
        if self.received is None:
            return document
        received = {s: {str(b): dict(n) for b, n in buckets.items()} for s, buckets in self.received.items()}
        return {**document, "received": received}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Gap:
        """Parse ``document``. Raises KeyError, ValueError, TypeError or AttributeError."""
        counts = {s: {int(b): int(n) for b, n in buckets.items()} for s, buckets in document["counts"].items()}
        return cls(
            int(document["begin"]), int(document["end"]), str(document["reason"]), counts, _received_of(document)
        )

    def spans_by_bucket(self) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Yield source and bucket with their offsets [begin, end); the rest has source "" and bucket 0.

        A gap records the number of rows but not their offsets, so they are assumed in order of time: the parts of a
        divided gap add up to its exact counts.
        """
        begin = self.begin
        for bucket, source, n in sorted((b, s, n) for s, buckets in self.counts.items() for b, n in buckets.items()):
            yield (source, bucket), begin, min(begin + n, self.end)
            begin = min(begin + n, self.end)
        yield ("", 0), begin, self.end

    def rows_by_bucket(self, begin: int, end: int) -> dict[tuple[str, int], int]:
        """Return the number of rows of [begin, end) by source and bucket."""
        rows: dict[tuple[str, int], int] = {}
        for bucket, first, last in self.spans_by_bucket():
            if (inside := min(end, last) - max(begin, first)) > 0:
                rows[bucket] = rows.get(bucket, 0) + inside
        return rows


def _received_of(document: Mapping[str, Any]) -> dict[str, dict[int, dict[str, int]]] | None:
    received = document.get("received")
    if received is None:
        return None
    return {s: {int(b): {str(k): int(v) for k, v in n.items()} for b, n in bs.items()} for s, bs in received.items()}


def encode_gap(gap: Gap) -> bytes:
    """Return a gap as a line of the file."""
    return encode_line(gap.document())


def _read(path: Path, position: int = 0, **more: Any) -> list[tuple[int, Gap]]:
    """Return the gaps from a byte position on, each with the position behind it. Raises OSError, UnknownFormat."""
    try:
        return list(read_lines_from(path, Gap.from_document, position, **more))
    except file_errors.UnknownFormat as error:
        raise UnknownFormat(str(error)) from None


def _sorted(gaps: Iterable[Gap]) -> list[Gap]:
    return sorted(gaps, key=lambda gap: (gap.begin, gap.end))


def uncovered(gaps: Sequence[Gap], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of [begin, end) outside all gaps, in order. ``gaps`` are sorted and disjoint."""
    for number in range(bisect_right(gaps, begin, key=lambda gap: gap.end), len(gaps)):
        gap = gaps[number]
        if gap.begin >= end:
            break
        if gap.begin > begin:
            yield begin, gap.begin
        begin = max(begin, gap.end)
    if begin < end:
        yield begin, end


def _overlaps(gaps: Sequence[Gap], gap: Gap) -> bool:
    """Report whether any offset of ``gap`` is in one of ``gaps``."""
    return list(uncovered(gaps, gap.begin, gap.end)) != [(gap.begin, gap.end)]


def _with_missing(gaps: list[Gap], copy: Path) -> list[Gap]:
    """Return ``gaps`` and the ones of the copy that overlap none of them. Raises OSError, UnknownFormat."""
    lacking = [gap for _, gap in _read(copy, damaged=_ignore_damage) if not _overlaps(gaps, gap)]
    return _sorted([*gaps, *lacking]) if lacking else gaps


def join_adjacent_gaps(gaps: Sequence[Gap], through: int) -> list[Gap]:
    """Return ``gaps`` (sorted) with contiguous ones of one reason merged, as far as they end at or before
    ``through``.
    """
    joined: list[Gap] = []
    run: list[Gap] = []
    for gap in gaps:
        if run and (
            gap.end > through
            or not _is_adjacent(run[-1], gap)
            or _count_buckets(run) + _count_buckets([gap]) > MAX_BUCKETS_PER_GAP
        ):
            joined.append(_join(run))
            run = []
        run.append(gap)
    return [*joined, _join(run)] if run else joined


def _is_adjacent(gap: Gap, other: Gap) -> bool:
    same_detail = (gap.received is None) == (other.received is None)
    return same_detail and gap.reason == other.reason and gap.end == other.begin


def _count_buckets(run: Sequence[Gap]) -> int:
    return sum(len(buckets) for gap in run for buckets in gap.counts.values())


def _join(run: Sequence[Gap]) -> Gap:
    if len(run) == 1:
        return run[0]
    counts: dict[str, dict[int, int]] = {}
    received: dict[str, dict[int, dict[str, int]]] = {}
    for gap in run:
        for source, buckets in gap.counts.items():
            _add(counts.setdefault(source, {}), buckets)
        for source, by_bucket in (gap.received or {}).items():
            for bucket, named in by_bucket.items():
                _add(received.setdefault(source, {}).setdefault(bucket, {}), named)
    total_received = received if run[0].received is not None else None
    return Gap(run[0].begin, run[-1].end, run[0].reason, counts, total_received)


def _add(total: dict[Any, int], counts: Mapping[Any, int]) -> None:
    for key, count in counts.items():
        total[key] = total.get(key, 0) + count


@dataclass(frozen=True, slots=True)
class _CachedFile:
    """The last read of a file: inode, length, last bytes and gaps."""

    inode: int
    position: int
    tail: bytes
    gaps: list[Gap]


class GapCache:
    """Gaps of the files read last; of a file that has grown, only the new lines are read. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._overlaps: OrderedDict[str, _CachedFile] = OrderedDict()

    def read(self, path: Path) -> list[Gap]:
        while True:
            inode = os.stat(path).st_ino
            cached = self._cached_or_empty(path, inode)
            damages: list[Damage] = []
            added = _read(path, cached.position, damaged=damages.append)
            position = added[-1][0] if added else cached.position
            tail = _tail(path, position)
            # A join replaced the file during the read: positions and gaps may be of different files.
            if (file := os.stat(path)).st_ino == inode:
                break
        gaps = cached.gaps if not added else _sorted([*cached.gaps, *(gap for _, gap in added)])
        # A last line without its newline is damaged, or another process writes it right now; an empty file was cut.
        if damages or file.st_size != position or not position:
            gaps = _with_missing(gaps, path.with_name(COPY_NAME))
        if not added:
            return gaps
        self._store(path, _CachedFile(inode, position, tail, gaps))
        return gaps

    def _cached_or_empty(self, path: Path, inode: int) -> _CachedFile:
        with self._lock:
            cached = self._overlaps.get(str(path))
        # A new file may get the inode of the removed one; its last bytes differ.
        is_same = cached is not None and cached.inode == inode and _tail(path, cached.position) == cached.tail
        return cached if cached and is_same else _CachedFile(inode, 0, b"", [])

    def _store(self, path: Path, read: _CachedFile) -> None:
        with self._lock:
            self._overlaps[str(path)] = read
            self._overlaps.move_to_end(str(path))
            if len(self._overlaps) > MAX_CACHED_FILES:
                self._overlaps.popitem(last=False)


def _tail(path: Path, position: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(position - _TAIL_BYTES, 0))
        return file.read(min(position, _TAIL_BYTES))


def _ignore_damage(_: Damage) -> None:
    """Ignore damage: only the owner of the file reports it."""


GAP_CACHE = GapCache()


def load(path: Path) -> list[Gap]:
    """Return the gaps in a file, sorted; read-only. Raises FileNotFoundError, UnknownFormat. From any thread."""
    return GAP_CACHE.read(path)


class Gaps:
    """The gaps of a topic, for its writer. From any thread. Raises UnknownFormat, OSError."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._lock = threading.Lock()
        self._fs = fs
        self._path, self._copy = directory / FILE_NAME, directory / COPY_NAME
        self._gaps = _sorted(gap for _, gap in _read(self._path, repair=True, fs=fs))
        self._copied = _read_if_exists(self._path) == _read_if_exists(self._copy)
        if not self._copied:
            self._add_missing_from_copy()

    def _add_missing_from_copy(self) -> None:
        """Add the gaps that only the copy has, then rewrite the copy; on an error the next start repeats it."""
        complete = _with_missing(self._gaps, self._copy)
        with contextlib.suppress(OSError):
            if number := len(complete) - len(self._gaps):
                _LOGGER.warning("%s is damaged: %d gaps are restored from its copy", self._path, number)
                self._gaps = complete
                replace_durably(self._fs, self._path, self._text())
            self._write_copy(_read_if_exists(self._path))

    def _text(self) -> bytes:
        return b"".join(map(encode_gap, self._gaps))

    def _write_copy(self, data: bytes) -> None:
        """Replace the copy; on an error the next start does it."""
        with contextlib.suppress(OSError):
            replace_durably(self._fs, self._copy, data)
            self._copied = True

    def sorted(self) -> list[Gap]:
        """Return all gaps, sorted by offset."""
        return list(self._gaps)

    def add(self, gaps: Iterable[Gap]) -> None:
        """Append gaps; they are durable on return. Raises OSError; then nothing is added."""
        added = [gap for gap in gaps if gap.end > gap.begin]
        if not added:
            return
        with self._lock:
            documents = [gap.document() for gap in added]
            # Order: the file with its fsync, then the copy, then memory. A crash in between leaves a copy that lacks
            # the line, and the next start rewrites the copy.
            append_lines(self._path, documents, self._fs)
            self._append_to_copy(documents)
            self._gaps = _sorted([*self._gaps, *added])

    def join(self, through: int) -> None:
        """Join contiguous gaps before the offset ``through`` if that saves many. Raises OSError; then nothing
        changes.
        """
        with self._lock:
            fewer = join_adjacent_gaps(self._gaps, through)
            if len(self._gaps) - len(fewer) < MIN_GAPS_SAVED:
                return
            text = b"".join(map(encode_gap, fewer))
            replace_durably(self._fs, self._path, text)
            self._gaps, self._copied = fewer, False
            self._write_copy(text)

    def _append_to_copy(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Append to the copy while it equals the file; after an error it stays unequal until the next start."""
        if self._copied:
            self._copied = False
            with contextlib.suppress(OSError):
                append_lines(self._copy, documents, self._fs)
                self._copied = True


def _read_if_exists(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
