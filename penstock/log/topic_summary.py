"""Extent, size and cursors of topics, computed again only for topics whose files changed.

With a thousand topics, a listing, the metrics and a look at the books would otherwise open several files of each topic.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.log.cursors import FOLDER, Backlog, Cursors
from penstock.log.read.topic_reader import LISTING_SETTLED_S, Extent, TopicReader
from penstock.log.store.segment_files import SUFFIX, first_offsets, read_synced_bytes

Stamp = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """The facts of a topic in listings. ``bytes`` has all its files, ``segment_bytes`` the data of its segments."""

    extent: Extent
    bytes: int
    segment_bytes: int
    segments: int
    backlogs: Mapping[str, Backlog]


class TopicSummaries:
    """Summaries of the topics in ``directory``, which need not be open. All methods may be called from any thread."""

    def __init__(self, directory: Path, cursors: Callable[[str], Cursors]) -> None:
        self._directory, self._cursors = directory, cursors
        # Threads: each access is a single operation of a dictionary. Two threads may compute the same summary.
        self._summaries: dict[str, tuple[Stamp, TopicSummary]] = {}

    def read(self, name: str) -> TopicSummary:
        """Return the summary of a topic. Raises CorruptBatch, UnknownFormat, FileNotFoundError."""
        # Order: the stamp before the files. A change in between gives the next call another stamp.
        stamp, sizes, is_settled = _stamp(f"{self._directory}/{name}")
        cached_stamp, cached = self._summaries.get(name, ((), None))
        if cached is not None and stamp == cached_stamp:
            return cached
        summary = self._summarize(self._directory / name, sizes)
        if is_settled:
            self._summaries[name] = stamp, summary
        else:
            self._summaries.pop(name, None)
        return summary

    def _summarize(self, path: Path, sizes: Mapping[str, int]) -> TopicSummary:
        reader = TopicReader(path)
        extent = reader.extent()
        offsets = self._cursors(path.name).offsets() if (path / FOLDER).exists() else {}
        backlogs = {name: Backlog.from_reader(reader, offset) for name, offset in offsets.items()}
        segment_bytes = sum(size for file, size in sizes.items() if file.endswith(SUFFIX))
        return TopicSummary(extent, sum(sizes.values()), segment_bytes, len(first_offsets(sizes)), backlogs)

    def forget(self, name: str) -> None:
        """Forget a deleted topic."""
        self._summaries.pop(name, None)


def _stamp(folder: str) -> tuple[Stamp, dict[str, int], bool]:
    """Return a stamp that differs after each change of a topic, the sizes of its files, and whether it is settled.

    A file that changes twice within one tick of the file system's clock may have the same stamp, so a stamp is settled
    only once all times are older.
    """
    sizes: dict[str, int] = {}
    files: list[tuple[str, int, int, int]] = []
    last_data, newest_ns = "", 0
    with os.scandir(folder) as entries:
        for entry in entries:
            # A file that retention removes during the listing.
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                files.append((entry.name, status.st_ino, status.st_size, status.st_mtime_ns))
                newest_ns = max(newest_ns, status.st_mtime_ns)
                if entry.is_file():
                    sizes[entry.name] = status.st_size
                    if entry.name.endswith(SUFFIX):
                        last_data = max(last_data, entry.name)
    # The length is stored through a mapped file, which changes the file's time only some time later.
    synced = read_synced_bytes(f"{folder}/{last_data.removesuffix(SUFFIX)}.synced") if last_data else b""
    return (synced, *files), sizes, time.time_ns() - newest_ns > LISTING_SETTLED_S * 1e9
