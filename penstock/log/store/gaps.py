"""Gaps of a topic: offsets that hold no rows any more, why, and how many of which source and bucket.

``gaps.jsonl`` is a journal of checked lines. Nobody else has the counts of what went: so there is a copy of it, which
the next start takes what is missing from (what it lacks too is found missing, and entered again, without counts). From
time to time both are replaced by one in which gaps that follow each other are one.
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
"""So many gaps must become fewer for the file to be written anew."""
JOINED_BUCKETS = 5000
"""Sources and buckets of one gap made of several, at most: what is written anew is not one ever longer line."""
KEPT_FILES = 256
"""Topics whose gaps are kept in memory for the readers of this process."""
_LOGGER = logging.getLogger(__name__)
_BLANK = b"00000000"
_TAIL = 64


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) that cannot be read. ``counts``: rows by source and bucket, where these are known.

    ``received`` are the counts of the batches that went, by source and bucket; None where nothing could be read.
    """

    begin: int
    end: int
    reason: str
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    received: Mapping[str, Mapping[int, Mapping[str, int]]] | None = None

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {source: {str(b): n for b, n in buckets.items()} for source, buckets in self.counts.items()}
        told = {"begin": self.begin, "end": self.end, "reason": self.reason, "counts": counts}
        if self.received is None:
            return told
        received = {s: {str(b): dict(n) for b, n in buckets.items()} for s, buckets in self.received.items()}
        return {**told, "received": received}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Gap:
        """From ``document``. Raises KeyError, ValueError, TypeError or AttributeError."""
        counts = {s: {int(b): int(n) for b, n in buckets.items()} for s, buckets in document["counts"].items()}
        return cls(
            int(document["begin"]), int(document["end"]), str(document["reason"]), counts, _received_of(document)
        )

    def spans_by_bucket(self) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Source and bucket, and which offsets [begin, end) are theirs; the rest is of source "", bucket 0.

        A gap knows how many rows of each it has, not where: they are taken to lie in order of time. So the parts
        of a gap come to its exact counts together.
        """
        at = self.begin
        for bucket, source, n in sorted((b, s, n) for s, buckets in self.counts.items() for b, n in buckets.items()):
            yield (source, bucket), at, min(at + n, self.end)
            at = min(at + n, self.end)
        yield ("", 0), at, self.end

    def rows_by_bucket(self, begin: int, end: int) -> dict[tuple[str, int], int]:
        """The rows of [begin, end) by source and bucket."""
        found: dict[tuple[str, int], int] = {}
        for place, first, last in self.spans_by_bucket():
            if (inside := min(end, last) - max(begin, first)) > 0:
                found[place] = found.get(place, 0) + inside
        return found


def _received_of(document: Mapping[str, Any]) -> dict[str, dict[int, dict[str, int]]] | None:
    told = document.get("received")
    if told is None:
        return None
    return {s: {int(b): {str(k): int(v) for k, v in n.items()} for b, n in bs.items()} for s, bs in told.items()}


def encode_gap(gap: Gap) -> bytes:
    """A gap as a line of the file."""
    return encode_line(gap.document())


def _read(path: Path, position: int = 0, **more: Any) -> list[tuple[int, Gap]]:
    """The gaps from a byte position on, each with the position after it. Raises OSError, UnknownFormat."""
    try:
        return list(read_lines_from(path, Gap.from_document, position, **more))
    except file_errors.UnknownFormat as error:
        raise UnknownFormat(str(error)) from None


def _sorted(gaps: Iterable[Gap]) -> list[Gap]:
    return sorted(gaps, key=lambda gap: (gap.begin, gap.end))


def uncovered(gaps: Sequence[Gap], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [begin, end) that no gap covers, in order. ``gaps`` are sorted and do not overlap."""
    for number in range(bisect_right(gaps, begin, key=lambda gap: gap.end), len(gaps)):
        gap = gaps[number]
        if gap.begin >= end:
            break
        if gap.begin > begin:
            yield begin, gap.begin
        begin = max(begin, gap.end)
    if begin < end:
        yield begin, end


def _known(gaps: Sequence[Gap], gap: Gap) -> bool:
    """Whether any offset of ``gap`` is in one of ``gaps`` already."""
    return list(uncovered(gaps, gap.begin, gap.end)) != [(gap.begin, gap.end)]


def join_adjacent_gaps(gaps: Sequence[Gap], through: int) -> list[Gap]:
    """``gaps`` (sorted), those of one reason that follow each other and end at or before ``through`` made one."""
    found: list[Gap] = []
    run: list[Gap] = []
    for gap in gaps:
        if run and (
            gap.end > through or not _continues(run[-1], gap) or _places(run) + _places([gap]) > JOINED_BUCKETS
        ):
            found.append(_join(run))
            run = []
        run.append(gap)
    return [*found, _join(run)] if run else found


def _continues(gap: Gap, other: Gap) -> bool:
    known = (gap.received is None) == (other.received is None)
    return known and gap.reason == other.reason and gap.end == other.begin


def _places(run: Sequence[Gap]) -> int:
    return sum(len(buckets) for gap in run for buckets in gap.counts.values())


def _join(run: Sequence[Gap]) -> Gap:
    if len(run) == 1:
        return run[0]
    counts: dict[str, dict[int, int]] = {}
    received: dict[str, dict[int, dict[str, int]]] = {}
    for gap in run:
        for source, buckets in gap.counts.items():
            _add(counts.setdefault(source, {}), buckets)
        for source, told in (gap.received or {}).items():
            for bucket, named in told.items():
                _add(received.setdefault(source, {}).setdefault(bucket, {}), named)
    known = received if run[0].received is not None else None
    return Gap(run[0].begin, run[-1].end, run[0].reason, counts, known)


def _add(total: dict[Any, int], counts: Mapping[Any, int]) -> None:
    for key, count in counts.items():
        total[key] = total.get(key, 0) + count


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a file: which one, how much, how that ended, and the gaps in it."""

    inode: int
    position: int
    tail: bytes
    gaps: list[Gap]


class _Files:
    """The gaps of files as they were read last: of one that has grown since, only what is new is read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Read] = OrderedDict()

    def read(self, path: Path) -> list[Gap]:
        while True:
            inode = os.stat(path).st_ino
            known = self._of(path, inode)
            found = _read(path, known.position, damaged=_pass_over)
            position = found[-1][0] if found else known.position
            tail = _tail(path, position)
            if os.stat(path).st_ino == inode:  # else it was replaced meanwhile
                break
        if not found:
            return known.gaps
        gaps = _sorted([*known.gaps, *(gap for _, gap in found)])
        self._keep(path, _Read(inode, position, tail, gaps))
        return gaps

    def _of(self, path: Path, inode: int) -> _Read:
        with self._lock:
            known = self._known.get(str(path))
        # The tail tells another file that got its number.
        is_same = known is not None and known.inode == inode and _tail(path, known.position) == known.tail
        return known if known and is_same else _Read(inode, 0, b"", [])

    def _keep(self, path: Path, read: _Read) -> None:
        with self._lock:
            self._known[str(path)] = read
            self._known.move_to_end(str(path))
            if len(self._known) > KEPT_FILES:
                self._known.popitem(last=False)


def _tail(path: Path, position: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(position - _TAIL, 0))
        return file.read(min(position, _TAIL))


def _pass_over(_: Damage) -> None:
    """The owner tells of it."""


_FILES = _Files()


def load(path: Path) -> list[Gap]:
    """The gaps in a file, sorted; not to be changed. Raises FileNotFoundError, UnknownFormat. From any thread."""
    return _FILES.read(path)


class Gaps:
    """The gaps of a topic, for its writer. From any thread. Raises UnknownFormat, OSError."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._lock = threading.Lock()
        self._fs = fs
        self._path, self._copy = directory / FILE_NAME, directory / COPY_NAME
        self._gaps = _sorted(gap for _, gap in _read(self._path, repair=True, fs=fs))
        self._copied = _bytes(self._path) == _bytes(self._copy)
        if not self._copied:
            self._compare_with_copy()

    def _compare_with_copy(self) -> None:
        """Take what is missing from the copy, and have it made anew; what fails the next start does."""
        copied = [gap for _, gap in _read(self._copy, damaged=_pass_over)]
        lacking = [gap for gap in copied if not _known(self._gaps, gap)]
        with contextlib.suppress(OSError):
            if lacking:
                _LOGGER.warning("%s is damaged: %d gaps are taken from its copy", self._path, len(lacking))
                self._gaps = _sorted([*self._gaps, *lacking])
                replace_durably(self._fs, self._path, self._text())
            self._keep_copy(_bytes(self._path))

    def _text(self) -> bytes:
        return b"".join(map(encode_gap, self._gaps))

    def _keep_copy(self, data: bytes) -> None:
        """Have the copy made anew; where that fails, the next start does it."""
        with contextlib.suppress(OSError):
            replace_durably(self._fs, self._copy, data)
            self._copied = True

    def all(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        return list(self._gaps)

    def add(self, many: Iterable[Gap]) -> None:
        """Append gaps; they are on the disk when this returns. Raises OSError, and then nothing is added."""
        added = [gap for gap in many if gap.end > gap.begin]
        if not added:
            return
        with self._lock:
            documents = [gap.document() for gap in added]
            append_lines(self._path, documents, self._fs)
            self._append_to_copy(documents)
            self._gaps = _sorted([*self._gaps, *added])

    def join(self, through: int) -> None:
        """Make one of gaps that follow each other, before the offset ``through``, where that saves many.

        Raises OSError, and then all is as before.
        """
        with self._lock:
            fewer = join_adjacent_gaps(self._gaps, through)
            if len(self._gaps) - len(fewer) < MIN_GAPS_SAVED:
                return
            text = b"".join(map(encode_gap, fewer))
            replace_durably(self._fs, self._path, text)
            self._gaps, self._copied = fewer, False
            self._keep_copy(text)

    def _append_to_copy(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Where the copy is not the same any more it stays so until the next start."""
        if self._copied:
            self._copied = False
            with contextlib.suppress(OSError):
                append_lines(self._copy, documents, self._fs)
                self._copied = True


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
