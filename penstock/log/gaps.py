"""Gaps of a topic: offsets that hold no rows any more, why, and how many of which source and bucket.

``gaps.jsonl`` is append-only, one JSON object a line with a CRC32C of its own; a line that is torn or damaged is
ignored (what it covered is found missing, and entered, again).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.log.files import FileSystem

FILE_NAME = "gaps.jsonl"
CORRUPT = "corrupt"
DELETED = "deleted"
EXPIRED_READ = "expired_read"
EXPIRED_UNREAD = "expired_unread"
_BLANK = "00000000"


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
    def of(cls, document: Mapping[str, Any]) -> Gap:
        """From ``document``. Raises KeyError, ValueError, TypeError or AttributeError."""
        counts = {s: {int(b): int(n) for b, n in buckets.items()} for s, buckets in document["counts"].items()}
        return cls(
            int(document["begin"]), int(document["end"]), str(document["reason"]), counts, _received_of(document)
        )

    def places(self, begin: int, end: int) -> dict[tuple[str, int], int]:
        """The rows of [begin, end) by source and bucket; those the gap cannot name are of source "", bucket 0.

        A gap knows how many rows of each it has, not where: they are taken to lie in order of time. So the parts
        of a gap come to its exact counts together.
        """
        places = sorted((bucket, source, n) for source, buckets in self.counts.items() for bucket, n in buckets.items())
        named = sum(n for _, _, n in places)
        found: dict[tuple[str, int], int] = {}
        at = self.begin
        for bucket, source, n in [*places, (0, "", self.end - self.begin - named)]:
            if (inside := min(end, at + n) - max(begin, at)) > 0:
                found[source, bucket] = found.get((source, bucket), 0) + inside
            at += n
        return found


def _received_of(document: Mapping[str, Any]) -> dict[str, dict[int, dict[str, int]]] | None:
    told = document.get("received")
    if told is None:
        return None
    return {s: {int(b): {str(k): int(v) for k, v in n.items()} for b, n in bs.items()} for s, bs in told.items()}


def line(gap: Gap) -> bytes:
    """A gap as a line of the file."""
    text = json.dumps({**gap.document(), "crc32c": _BLANK}, separators=(",", ":"))
    crc = f"{crc32c(text.encode()):08x}"
    return (text[: -len(_BLANK) - 2] + crc + '"}\n').encode()


def parse(data: bytes) -> list[Gap]:
    """The gaps of the file's bytes, sorted; lines that are torn or damaged are left out."""
    found = [gap for text in data.split(b"\n") if (gap := _parse_line(text)) is not None]
    return sorted(found, key=lambda gap: (gap.begin, gap.end))


def _parse_line(text: bytes) -> Gap | None:
    tail = len(_BLANK) + 2
    try:
        blank = text[:-tail] + _BLANK.encode() + text[-2:]
        if len(text) < tail or text[-tail:-2] != b"%08x" % crc32c(blank):
            return None
        return Gap.of(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def uncovered(gaps: Sequence[Gap], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [begin, end) that no gap covers, in order. ``gaps`` are sorted and do not overlap."""
    for number in range(bisect_right(gaps, begin, key=lambda gap: gap.end), len(gaps)):
        gap = gaps[number]
        if gap.begin >= end:
            break
        if gap.begin > begin:
            yield begin, gap.begin
        begin = gap.end
    if begin < end:
        yield begin, end


class Gaps:
    """The gaps of a topic, for its writer."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / FILE_NAME
        try:
            data = fs.read(self._path)
        except FileNotFoundError:
            data = b""
        self._size = len(data)
        self._torn = bool(data) and not data.endswith(b"\n")
        self._gaps = parse(data)

    def all(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        return list(self._gaps)

    def add(self, many: Iterable[Gap]) -> None:
        """Append gaps; they are on the disk when this returns. Raises OSError, and then nothing is added."""
        added = [gap for gap in many if gap.end > gap.begin]
        if not added:
            return
        lead = b"\n" if self._torn else b""  # a torn line stays one line
        text = lead + b"".join(line(gap) for gap in added)
        self._append(text)
        self._size += len(text)
        self._torn = False
        self._gaps = sorted([*self._gaps, *added], key=lambda gap: (gap.begin, gap.end))

    def _append(self, text: bytes) -> None:
        created = not self._size
        file = self._fs.open(self._path, create=True)
        try:
            file.write([text], self._size)
            file.sync()
        except OSError:
            file.truncate(self._size)
            raise
        finally:
            file.close()
        if created:
            self._fs.sync_directory(self._path.parent)
