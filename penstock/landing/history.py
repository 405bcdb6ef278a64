"""What is kept of micro-batches that are proved and long done: stretches of many, a file a day, and their sum.

Journal and proofs have a line for each batch; those of old ones become stretches (``penstock.proof.rollup``).
The sum says in one small document what the daily needs: how far topics have landed, and how many rows there are.
It may be behind the files of the days, as those are written first; lines that it does not cover yet are still there.
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
SUFFIX = ".jsonl"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The batches ``first`` to ``batch``, of one day: ``commit``, ``proofs`` and ``refills`` as one batch would have
    them. ``end``: up to where each topic, or request, had come with it; ``totals``: how many rows of what fate.
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
        """JSON-ready."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_document(cls, told: Mapping[str, Any]) -> Stretch:
        """From ``document``. Raises KeyError, TypeError or ValueError."""
        first, batch, landed_at = (int(told[name]) for name in ("first", "batch", "landed_at"))
        ends, totals = ({str(k): int(v) for k, v in told[name].items()} for name in ("end", "totals"))
        kept = dict(told["commit"]), tuple(told["proofs"]), tuple(told["refills"])
        return cls(first, batch, landed_at, ends, totals, *kept)


@dataclass(frozen=True, slots=True)
class Sum:
    """Of all batches up to ``batch`` (-1 for none)."""

    batch: int = -1
    landed_at: int = 0
    end: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)

    def plus(self, stretches: Iterable[Stretch]) -> Sum:
        """With those of the stretches that it does not have yet."""
        batch, landed_at, end, totals = self.batch, self.landed_at, dict(self.end), Counter(self.totals)
        for one in stretches:
            if one.first > batch:
                batch, landed_at = one.batch, one.landed_at
                end.update(one.end)
                totals.update(one.totals)
        return Sum(batch, landed_at, end, dict(totals))


def read_sum(layout: Layout) -> Sum:
    """The sum of what was rolled up; where it is damaged, from the days. Raises OSError."""
    try:
        told = read_document(layout.rolled)
        ends, totals = ({str(k): int(v) for k, v in told[name].items()} for name in ("end", "totals"))
        return Sum(int(told["batch"]), int(told["landed_at"]), ends, totals)
    except FileNotFoundError:
        return Sum().plus(stretches(layout))
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        _LOGGER.warning("%s is damaged: it is made again from %s", layout.rolled, layout.history)
        return Sum().plus(stretches(layout))


def write_sum(layout: Layout, one: Sum, fs: FileSystem = OS) -> None:
    """Keep it, durably."""
    told = {"batch": one.batch, "landed_at": one.landed_at, "end": one.end, "totals": one.totals}
    write_document(layout.rolled, told, fs)


def stretches(layout: Layout) -> list[Stretch]:
    """All stretches, in order."""
    found = [one for name in days(layout) for one in read_day(layout.history / name)]
    return sorted(found, key=lambda one: one.first)


def days(layout: Layout) -> list[str]:
    """The names of the files of days, ascending."""
    try:
        return sorted(name for name in os.listdir(layout.history) if name.endswith(SUFFIX))
    except FileNotFoundError:
        return []


def read_day(path: Path) -> list[Stretch]:
    """The stretches of a day; none where it has no file."""
    return list(read_lines(path, Stretch.from_document))


def write_day(path: Path, found: Iterable[Stretch], fs: FileSystem = OS) -> None:
    """Make these the stretches of a day, durably and all at once."""
    if not path.parent.is_dir():
        fs.make_directory(path.parent)
        fs.sync_directory(path.parent.parent)
    replace_durably(fs, path, b"".join(encode_line(one.document()) for one in found))
