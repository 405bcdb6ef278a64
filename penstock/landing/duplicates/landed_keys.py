"""The keys of all events that landed within the window, as runs in a folder. A damaged folder is rebuilt.

The window is measured in the log's time, per stream (a topic, or a partition of Kafka): a run expires when each of its
streams has landed rows that are newer by more than the window. While a stream pauses, its last keys do not expire. A
uuid in two partitions whose clocks differ by more than the window may land twice. Rows with a future timestamp of a
wrong clock expire no key: a timestamp counts as newest only up to the plausible time.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import VERSION, BadRun, HashRun, merge_runs

MANIFEST = "keys.json"
RUNS_PER_MERGE = 8
"""Runs of about one size that are merged into one: each key is rewritten once per tier of size."""
SMALLEST_TIER_KEYS = 4096
RECENT_BATCHES = 2
"""Batches whose runs are remembered unmerged: tasks of the next batch may not have seen them yet."""
LARGE_MERGE_KEYS, LARGE_MERGE_WINDOW_DIVISOR = 32 << 20, 4
"""A merge of more keys needs timestamps within a quarter of the window: a run expires only as a whole."""
NO_LIMIT = 1 << 62
"""A time in microseconds after every timestamp of a log."""
_MAPPED: dict[Path, dict[tuple[str, int], HashRun]] = {}
"""Runs of the newest manifest read, by folder, file and checksum. Limit: no others, because a mapped file that is
deleted keeps its disk space until the worker ends."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A run in the folder: its file, number of keys, checksum, and the newest timestamp of each stream."""

    file: str
    rows: int
    checksum: int
    newest: Mapping[str, int]
    run: HashRun = field(compare=False, repr=False)

    @property
    def tier(self) -> int:
        """Return the tier of size; runs of one tier are merged."""
        # A tier spans a factor of 8 = RUNS_PER_MERGE (three bits), so a merged run belongs to a higher tier.
        return max(0, (self.rows // SMALLEST_TIER_KEYS).bit_length() // 3)

    def document(self) -> dict[str, Any]:
        return {"file": self.file, "rows": self.rows, "checksum": self.checksum, "newest": dict(self.newest)}


class LandedKeys:
    """The keys of landed events through micro-batch ``batch`` (-1 for none). One process writes them.

    ``window`` is in microseconds; ``latest_time`` returns the plausible time in microseconds.
    """

    def __init__(self, folder: Path, window: int, latest_time: Callable[[], int] = lambda: NO_LIMIT) -> None:
        self._folder, self._window, self._latest_time = folder, window, latest_time
        self._entries: list[_Entry] = []
        self._recent: dict[int, list[HashRun]] = {}
        self._number = 0
        self.batch = -1

    @classmethod
    def load(cls, folder: Path, window: int, latest_time: Callable[[], int] = lambda: NO_LIMIT) -> LandedKeys | None:
        """Load the folder's keys, or return None if they are incomplete or of another window and have to be rebuilt."""
        keys = cls(folder, window, latest_time)
        try:
            manifest = read_document(folder / MANIFEST)
            if (manifest["version"], manifest["window"]) != (VERSION, window):
                return None
            keys.batch, keys._number = int(manifest["batch"]), int(manifest["number"])
            for entry in manifest["runs"]:
                run = HashRun.open(folder / entry["file"], entry["checksum"])
                keys._entries.append(_Entry(entry["file"], entry["rows"], entry["checksum"], entry["newest"], run))
        except FileNotFoundError:
            return None
        except (BadRun, DamagedFile, KeyError, TypeError, ValueError) as error:
            _LOGGER.warning("keys of landed events are rebuilt from the table: %s", error)
            return None
        return keys

    @property
    def runs(self) -> list[HashRun]:
        return [entry.run for entry in self._entries]

    def runs_since(self, batch: int) -> Sequence[HashRun]:
        """Return runs with all keys of the batches after ``batch``; other keys may be among them."""
        batches = range(batch + 1, self.batch + 1)
        if {*batches} <= self._recent.keys():
            return [run for number in batches for run in self._recent[number]]
        return self.runs

    def newest_by_stream(self) -> dict[str, int]:
        """Return the newest timestamp of each stream."""
        return _latest(self._entries)

    def add(self, batch: int, seen: EventsSeen) -> None:
        """Add the events of a batch, which are in the table now."""
        self._folder.mkdir(parents=True, exist_ok=True)
        written = [self._write(seen)] if len(seen) else []
        self._entries += written
        self._recent = {number: runs for number, runs in self._recent.items() if number > batch - RECENT_BATCHES}
        self._recent[batch] = [entry.run for entry in written]
        obsolete = self._remove_expired()
        while mergeable := self._remove_mergeable():
            obsolete += mergeable
            self._entries.append(self._merge(mergeable))
        self.batch = batch
        self._write_manifest()
        # Order: the manifest no longer names these files. Crash: a file that stays is overwritten or never read.
        for entry in obsolete:
            (self._folder / entry.file).unlink(missing_ok=True)

    def _write(self, seen: EventsSeen) -> _Entry:
        # Crash: run files are not synced. After a power failure `load` finds a wrong checksum, and all keys are rebuilt
        # from the table.
        path = self._next_file()
        checksum = HashRun.from_events(seen).write(path)
        return _Entry(path.name, len(seen), checksum, seen.newest_by_stream(), HashRun.open(path))

    def _merge(self, entries: Sequence[_Entry]) -> _Entry:
        path = self._next_file()
        checksum = merge_runs([entry.run for entry in entries], path)
        return _Entry(path.name, sum(entry.rows for entry in entries), checksum, _latest(entries), HashRun.open(path))

    def _next_file(self) -> Path:
        self._number += 1
        return self._folder / f"{self._number:08d}.keys"

    def _remove_expired(self) -> list[_Entry]:
        limit, latest = self._latest_time(), _latest(self._entries)
        expired = [
            candidate
            for candidate in self._entries
            if all(micros < min(latest[stream], limit) - self._window for stream, micros in candidate.newest.items())
        ]
        self._entries = [entry for entry in self._entries if entry not in expired]
        return expired

    def _remove_mergeable(self) -> list[_Entry]:
        """Remove and return the runs of one tier that is full; an empty list if none is."""
        limit = self._latest_time()
        # Runs with future timestamps are merged only with each other: others merged with them would expire as late.
        tiers: dict[tuple[int, bool], list[_Entry]] = {}
        for entry in self._entries:
            tiers.setdefault((entry.tier, max(entry.newest.values(), default=0) > limit), []).append(entry)
        full_tiers = (entries for entries in tiers.values() if len(entries) >= RUNS_PER_MERGE)
        chosen = next((entries for entries in full_tiers if not self._would_expire_late(entries)), [])
        self._entries = [entry for entry in self._entries if entry not in chosen]
        return chosen

    def _would_expire_late(self, entries: Sequence[_Entry]) -> bool:
        latest = _latest(entries)
        spread = max(latest[stream] - micros for entry in entries for stream, micros in entry.newest.items())
        return (
            sum(entry.rows for entry in entries) > LARGE_MERGE_KEYS
            and spread > self._window // LARGE_MERGE_WINDOW_DIVISOR
        )

    def _write_manifest(self) -> None:
        runs = [entry.document() for entry in self._entries]
        manifest = {
            "version": VERSION,
            "window": self._window,
            "batch": self.batch,
            "number": self._number,
            "runs": runs,
        }
        write_document(self._folder / MANIFEST, manifest)


def _latest(entries: Iterable[_Entry]) -> dict[str, int]:
    latest: dict[str, int] = {}
    for entry in entries:
        for stream, micros in entry.newest.items():
            latest[stream] = max(latest.get(stream, micros), micros)
    return latest


def mapped_runs(folder: Path, window: int) -> tuple[int, list[HashRun]]:
    """Map the runs in a folder; return the batch through which their keys go, and the runs.

    Returns -1 and no runs if they cannot be read from here, or are of another window.
    """
    with contextlib.suppress(BadRun, DamagedFile, KeyError, TypeError, ValueError):
        while (folder / MANIFEST).exists():
            manifest = read_document(folder / MANIFEST)
            if (manifest["version"], manifest["window"]) != (VERSION, window):
                break
            # The writer may merge runs between the manifest and the open: a changed manifest is read again. If it is
            # unchanged, the files are lost.
            with contextlib.suppress(FileNotFoundError):
                return int(manifest["batch"]), _map_runs(folder, manifest["runs"])
            if read_document(folder / MANIFEST) == manifest:
                break
    return -1, []


def _map_runs(folder: Path, entries: Iterable[Mapping[str, Any]]) -> list[HashRun]:
    """Map the runs of a manifest. Those that were mapped before are used again; others of the folder are let go."""
    # The checksum distinguishes runs with the same name. It is not verified here: the writer verifies it at its start.
    before = _MAPPED.get(folder, {})
    runs: dict[tuple[str, int], HashRun] = {}
    for entry in entries:
        key = entry["file"], entry["checksum"]
        runs[key] = before[key] if key in before else HashRun.open(folder / entry["file"])
    _MAPPED[folder] = runs
    return [*runs.values()]


def within_window(
    parts: Iterable[EventsSeen], window: int, latest: dict[str, int] | None = None, latest_time: int = NO_LIMIT
) -> Iterator[EventsSeen]:
    """Yield the events, in any order, that are at most the window older than the newest of their stream so far.

    ``latest`` holds the newest timestamps to begin with and is updated; it counts only up to ``latest_time``.
    """
    latest = {} if latest is None else latest
    for part in parts:
        for stream, micros in part.newest_by_stream().items():
            latest[stream] = max(latest.get(stream, micros), micros)
        names, stream_indices = part.streams()
        floors = np.array([min(latest[name], latest_time) - window for name in names], np.int64)
        yield part.select_rows(part.micros >= floors[stream_indices])
