"""The keys of all events that landed within the window, as runs in a folder; made again from the table where it is
lost.

The window is of the log's time, of each topic (or partition of Kafka) by itself: a run goes when each of its topics has
landed rows that are newer by more than the window. A topic that rests keeps its last keys, however long. Of a
uuid in two partitions whose clocks are further apart than the window both may land. Rows that a wrong clock stamped
with a time to come let no key go: a time counts as newest only up to what the clock should say.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import VERSION, BadRun, HashRun
from penstock.landing.duplicates.merged_runs import merge_runs

MANIFEST = "keys.json"
MERGED_AT = 8
"""So many runs of about one size become one."""
SMALLEST = 4096
LATE = 2
"""Of so many batches the runs are kept as they came: a task may not know them yet."""
LARGE, SHARE = 32 << 20, 4
"""More keys than that become one only if they landed within this share of the window: a run goes as a whole."""
NO_LIMIT = 1 << 62
"""Microseconds after any time that a log stamps."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A run in the folder: its file, how many keys, its checksum, and for each topic its newest timestamp."""

    file: str
    rows: int
    checksum: int
    newest: Mapping[str, int]
    run: HashRun = field(compare=False, repr=False)

    @property
    def tier(self) -> int:
        """Runs of one tier are of about one size."""
        return max(0, (self.rows // SMALLEST).bit_length() // 3)

    def document(self) -> dict[str, Any]:
        return {"file": self.file, "rows": self.rows, "checksum": self.checksum, "newest": dict(self.newest)}


class LandedKeys:
    """The keys through micro-batch ``batch`` (-1 for none). One process writes.

    ``window`` in microseconds; ``latest_time``: what the clock should say, in microseconds.
    """

    def __init__(self, folder: Path, window: int, latest_time: Callable[[], int] = lambda: NO_LIMIT) -> None:
        self._folder, self._window, self._latest_time = folder, window, latest_time
        self._entries: list[_Entry] = []
        self._late: dict[int, list[HashRun]] = {}
        self._number = 0
        self.batch = -1

    @classmethod
    def load(cls, folder: Path, window: int, latest_time: Callable[[], int] = lambda: NO_LIMIT) -> LandedKeys | None:
        """Load the folder's keys; None where it is not whole, or of another window, and has to be made again."""
        found = cls(folder, window, latest_time)
        try:
            told = read_document(folder / MANIFEST)
            if (told["version"], told["window"]) != (VERSION, window):
                return None
            found.batch, found._number = int(told["batch"]), int(told["number"])
            for one in told["runs"]:
                run = HashRun.open(folder / one["file"], one["checksum"])
                found._entries.append(_Entry(one["file"], one["rows"], one["checksum"], one["newest"], run))
        except FileNotFoundError:
            return None
        except (BadRun, DamagedFile, KeyError, TypeError, ValueError) as error:
            _LOGGER.warning("the keys that landed are read from the table again: %s", error)
            return None
        return found

    @property
    def runs(self) -> list[HashRun]:
        return [entry.run for entry in self._entries]

    def since(self, batch: int) -> Sequence[HashRun]:
        """The runs that have all keys of the batches after this one."""
        after = range(batch + 1, self.batch + 1)
        if {*after} <= self._late.keys():
            return [run for one in after for run in self._late[one]]
        return self.runs

    def newest(self) -> dict[str, int]:
        """By topic (or partition of Kafka) the newest timestamp."""
        return _latest(self._entries)

    def add(self, batch: int, seen: EventsSeen) -> None:
        """Take in the events of a batch, which are in the table now."""
        self._folder.mkdir(parents=True, exist_ok=True)
        written = [self._written(seen)] if len(seen) else []
        self._entries += written
        self._late = {one: runs for one, runs in self._late.items() if one > batch - LATE}
        self._late[batch] = [entry.run for entry in written]
        gone = self._expired()
        while several := self._to_merge():
            gone += several
            self._entries.append(self._merged(several))
        self.batch = batch
        self._keep()
        for entry in gone:
            (self._folder / entry.file).unlink(missing_ok=True)

    def _written(self, seen: EventsSeen) -> _Entry:
        path = self._next_file()
        checksum = HashRun.of(seen).write(path)
        return _Entry(path.name, len(seen), checksum, seen.newest(), HashRun.open(path))

    def _merged(self, several: Sequence[_Entry]) -> _Entry:
        path = self._next_file()
        checksum = merge_runs([entry.run for entry in several], path)
        return _Entry(path.name, sum(entry.rows for entry in several), checksum, _latest(several), HashRun.open(path))

    def _next_file(self) -> Path:
        self._number += 1
        return self._folder / f"{self._number:08d}.keys"

    def _expired(self) -> list[_Entry]:
        limit, latest = self._latest_time(), _latest(self._entries)
        gone = [
            e for e in self._entries if all(at < min(latest[t], limit) - self._window for t, at in e.newest.items())
        ]
        self._entries = [entry for entry in self._entries if entry not in gone]
        return gone

    def _to_merge(self) -> list[_Entry]:
        """Take out and return the runs of one tier where there are many.

        Runs with times to come are merged only with each other: what they are merged with goes as late as they go.
        """
        limit = self._latest_time()
        tiers: dict[tuple[int, bool], list[_Entry]] = {}
        for entry in self._entries:
            tiers.setdefault((entry.tier, max(entry.newest.values(), default=0) > limit), []).append(entry)
        many = (entries for entries in tiers.values() if len(entries) >= MERGED_AT)
        several = next((entries for entries in many if not self._would_stay_for_long(entries)), [])
        self._entries = [entry for entry in self._entries if entry not in several]
        return several

    def _would_stay_for_long(self, several: Sequence[_Entry]) -> bool:
        """Whether, as one, the first of them would go much later than by themselves."""
        latest = _latest(several)
        apart = max(latest[topic] - at for entry in several for topic, at in entry.newest.items())
        return sum(entry.rows for entry in several) > LARGE and apart > self._window // SHARE

    def _keep(self) -> None:
        runs = [entry.document() for entry in self._entries]
        told = {"version": VERSION, "window": self._window, "batch": self.batch, "number": self._number, "runs": runs}
        write_document(self._folder / MANIFEST, told)


def _latest(entries: Iterable[_Entry]) -> dict[str, int]:
    latest: dict[str, int] = {}
    for entry in entries:
        for topic, micros in entry.newest.items():
            latest[topic] = max(latest.get(topic, micros), micros)
    return latest


def mapped_runs(folder: Path, window: int) -> tuple[int, list[HashRun]]:
    """Through which batch the keys in a folder go, and their runs; -1 and none where they cannot be read from here, or
    are of another window.
    """
    with contextlib.suppress(BadRun, DamagedFile, KeyError, TypeError, ValueError):
        while (folder / MANIFEST).exists():
            told = read_document(folder / MANIFEST)
            if (told["version"], told["window"]) != (VERSION, window):
                break
            with contextlib.suppress(FileNotFoundError):  # runs were merged meanwhile, unless they are lost
                return int(told["batch"]), [_mapped(folder / one["file"], one["checksum"]) for one in told["runs"]]
            if read_document(folder / MANIFEST) == told:
                break
    return -1, []


@lru_cache(maxsize=256)
def _mapped(path: Path, checksum: int) -> HashRun:
    """Looked through by the process that writes them; the checksum tells runs of one name apart."""
    del checksum
    return HashRun.open(path)


def within_window(
    parts: Iterable[EventsSeen], window: int, latest: dict[str, int] | None = None, latest_time: int = NO_LIMIT
) -> Iterator[EventsSeen]:
    """Yield the events, in any order, that are at most the window older than the newest of their topic so far.

    ``latest`` is the newest to begin with, and is kept up to date; it counts only up to ``latest_time``.
    """
    latest = {} if latest is None else latest
    for part in parts:
        for topic, micros in part.newest().items():
            latest[topic] = max(latest.get(topic, micros), micros)
        names, place = part.places()
        floors = np.array([min(latest[name], latest_time) - window for name in names], np.int64)
        yield part.take(part.micros >= floors[place])
