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
_BLANK = "00000000"


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) that cannot be read. ``counts``: rows by source and bucket, where these are known."""

    begin: int
    end: int
    reason: str
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {source: {str(b): n for b, n in buckets.items()} for source, buckets in self.counts.items()}
        return {"begin": self.begin, "end": self.end, "reason": self.reason, "counts": counts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Gap:
        """From ``document``. Raises KeyError, ValueError, TypeError or AttributeError."""
        counts = {s: {int(b): int(n) for b, n in buckets.items()} for s, buckets in document["counts"].items()}
        return cls(int(document["begin"]), int(document["end"]), str(document["reason"]), counts)


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
            self._data = fs.read(self._path)
        except FileNotFoundError:
            self._data = b""
        self._gaps = parse(self._data)

    def all(self) -> list[Gap]:
        """All gaps, sorted by offset."""
        return list(self._gaps)

    def add(self, many: Iterable[Gap]) -> None:
        """Append gaps; they are on the disk when this returns. Raises OSError, and then nothing is added."""
        added = [gap for gap in many if gap.end > gap.begin]
        if not added:
            return
        lead = b"\n" if self._data and not self._data.endswith(b"\n") else b""  # a torn line stays one line
        text = lead + b"".join(line(gap) for gap in added)
        self._append(text)
        self._data += text
        self._gaps = sorted([*self._gaps, *added], key=lambda gap: (gap.begin, gap.end))

    def _append(self, text: bytes) -> None:
        created = not self._data
        file = self._fs.open(self._path, create=True)
        try:
            file.write([text], len(self._data))
            file.sync()
        except OSError:
            file.truncate(len(self._data))
            raise
        finally:
            file.close()
        if created:
            self._fs.sync_directory(self._path.parent)
