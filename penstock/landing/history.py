"""Rolled-up micro-batches: stretches of many proved batches, a file for each day, and their sum.

Journal and proofs have a line for each batch; lines of old batches become stretches (``penstock.proof.rollup``). The
sum is one small document with what is needed daily: how far topics have landed, and the numbers of rows.

Invariant: a batch is in the journal until a stretch and the sum have it. Files of days are written before the sum, so
the sum may be behind; lines that it does not cover still exist.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.files.checked_document import read_document, write_document
from penstock.files.checked_lines import encode_line, read_lines
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, FileSystem, replace_durably
from penstock.landing.table_paths import Layout

TOTALS = ("rows", "quarantined", "duplicates", "unaccounted")
"""Names of numbers of rows in a stretch, which may also have numbers of violations of contracts by rule."""
SUFFIX = ".jsonl"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The batches ``first`` to ``batch`` of one day, merged.

    ``commit``, ``proofs`` and ``refills`` (proofs of backfill requests; the name in the file) are merged from all
    batches. ``end`` is the end offset of each topic or backfill request afterwards, ``totals`` are numbers of rows by
    fate.
    """

    first: int
    batch: int
    landed_at: int
    end: Mapping[str, int]
    totals: Mapping[str, int]
    commit: Mapping[str, Any]
    proofs: tuple[Mapping[str, Any], ...]
    refills: tuple[Mapping[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the stretch as JSON-ready values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Stretch:
        """Parse a document. Raises KeyError, TypeError or ValueError."""
        first, batch, landed_at = (int(document[name]) for name in ("first", "batch", "landed_at"))
        ends, totals = ({str(k): int(v) for k, v in document[name].items()} for name in ("end", "totals"))
        merged = dict(document["commit"]), tuple(document["proofs"]), tuple(document["refills"])
        return cls(first, batch, landed_at, ends, totals, *merged)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of all batches up to ``batch``; -1 for none."""

    batch: int = -1
    landed_at: int = 0
    end: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)

    def plus(self, stretches: Iterable[Stretch]) -> Sum:
        """Return the sum with the stretches that it does not cover yet."""
        batch, landed_at, end, totals = self.batch, self.landed_at, dict(self.end), Counter(self.totals)
        for stretch in stretches:
            if stretch.first > batch:
                batch, landed_at = stretch.batch, stretch.landed_at
                end.update(stretch.end)
                totals.update(stretch.totals)
        return Sum(batch, landed_at, end, dict(totals))


def read_sum(layout: Layout) -> Sum:
    """Return the sum of the rolled-up batches; if it is damaged, from the files of days. Raises OSError."""
    try:
        document = read_document(layout.rolled)
        ends, totals = ({str(k): int(v) for k, v in document[name].items()} for name in ("end", "totals"))
        return Sum(int(document["batch"]), int(document["landed_at"]), ends, totals)
    except FileNotFoundError:
        return Sum().plus(stretches(layout))
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        # Crash: files of days are written before the sum, so the sum can always be computed from them.
        _LOGGER.warning("%s is damaged: it is computed again from %s", layout.rolled, layout.history)
        return Sum().plus(stretches(layout))


def write_sum(layout: Layout, total: Sum, fs: FileSystem = OS) -> None:
    """Write the sum durably."""
    document = {"batch": total.batch, "landed_at": total.landed_at, "end": total.end, "totals": total.totals}
    write_document(layout.rolled, document, fs)


def stretches(layout: Layout) -> list[Stretch]:
    """Return all stretches, in order."""
    all_stretches = [stretch for name in days(layout) for stretch in read_day(layout.history / name)]
    return sorted(all_stretches, key=lambda stretch: stretch.first)


def days(layout: Layout) -> list[str]:
    """Return the names of the files of days, ascending."""
    try:
        return sorted(name for name in os.listdir(layout.history) if name.endswith(SUFFIX))
    except FileNotFoundError:
        return []


def read_day(path: Path) -> list[Stretch]:
    """Return the stretches of a day; none if it has no file."""
    return list(read_lines(path, Stretch.from_document))


def write_day(path: Path, day_stretches: Iterable[Stretch], fs: FileSystem = OS) -> None:
    """Replace the stretches of a day, durably and atomically."""
    if not path.parent.is_dir():
        fs.make_directory(path.parent)
        # Crash: without it the new folder, with all its days, could be missing after a power cut.
        fs.sync_directory(path.parent.parent)
    replace_durably(fs, path, b"".join(encode_line(stretch.document()) for stretch in day_stretches))
