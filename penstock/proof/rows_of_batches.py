"""The rows that a micro-batch brought into the table: from the files it wrote, or from today's table.

A proof reads the files of its batch. Later these may be merged with others; then the rows are selected by the batch's
ranges of offsets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.event_rules import WITH_UUID
from penstock.landing.journal import Commit
from penstock.landing.offset_runs import OffsetRange, is_inside
from penstock.landing.requests.backfill_requests import load_requests, subtract_runs
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile, as_written, open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.proof.evidence import NO_ROWS, is_of_topic, matching, read_rows
from penstock.qualified_names import topic_of

RowsOf = Callable[[Commit], pa.Table]
"""The rows (``evidence.ROWS``) of a batch."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CACHE_BYTES = 512 << 20
"""Limit: memory for rows of files; neighbouring batches often share a file."""


def of_its_files(layout: Layout, *, hashed: bool = False) -> RowsOf:
    """Return a reader of the files that a batch wrote; if one is gone, for example merged, it reads the whole table.

    ``hashed`` as for ``read_rows``.
    """

    def rows(commit: Commit) -> pa.Table:
        # Fast path: the files of a batch hold nothing else. Only merged files need the search by offsets.
        if all((layout.landed / name).exists() for name in commit.files):
            return read_rows(layout.landed, as_written(commit.files), hashed=hashed)
        return SnapshotRows(layout, hashed=hashed)(commit)

    return rows


@dataclass(frozen=True, slots=True)
class _File:
    """The first and last topic and offset in a file."""

    name: TableFile
    topics: tuple[str, str]
    offsets: tuple[int, int]

    def may_have(self, topic: str, runs: Sequence[OffsetRange]) -> bool:
        """Report whether the file may hold some of a topic's offsets."""
        # The column of a file has the topic without the partition.
        named = topic_of(topic)
        if not self.topics[0] <= named <= self.topics[1]:
            return False
        return any(begin <= self.offsets[1] and self.offsets[0] < end for begin, end in runs)


class SnapshotRows:
    """Rows of batches, selected by offset from the files of the table at the time of creation."""

    def __init__(self, layout: Layout, *, hashed: bool = False) -> None:
        self._landed, self._requests, self._hashed = layout.landed, load_requests(layout.backfills), hashed
        self._files = [
            description for name in table_of(layout).active() if (description := _describe(layout.landed, name))
        ]
        self._cache: OrderedDict[str, pa.Table] = OrderedDict()
        self._room = CACHE_BYTES

    def __call__(self, commit: Commit) -> pa.Table:
        """Return the rows of a batch: from its topics' turns and from requests."""
        wanted_runs = self._offsets_by_topic(commit)
        files = [f for f in self._files if any(f.may_have(topic, runs) for topic, runs in wanted_runs.items())]
        parts = [_with_offsets(self._rows(file.name), wanted_runs) for file in files]
        return pa.concat_tables([NO_ROWS, *parts])

    def _offsets_by_topic(self, commit: Commit) -> dict[str, list[OffsetRange]]:
        wanted_runs = {topic: self._own_turn(topic, *span) for topic, span in commit.ranges().items()}
        for name, span in commit.backfills().items():
            if request := self._requests.get(name):
                wanted_runs.setdefault(request.topic, []).extend(request.part(*span))
        return wanted_runs

    def _own_turn(self, topic: str, begin: int, end: int) -> list[OffsetRange]:
        """Return the offsets of a topic's turn except the ones that a request landed before."""
        ahead = (candidate for candidate in self._requests.values() if candidate.topic == topic and not candidate.lost)
        return subtract_runs(begin, end, (run for request in ahead for run in request.runs))

    def _rows(self, name: TableFile) -> pa.Table:
        if name in self._cache:
            self._cache.move_to_end(name)
            return self._cache[name]
        rows = read_rows(self._landed, [name], hashed=self._hashed)
        self._cache[name] = rows
        self._room -= rows.nbytes
        # Limit: a single file stays, even if it is larger than the cache.
        while self._room < 0 and len(self._cache) > 1:
            self._room += self._cache.popitem(last=False)[1].nbytes
        return rows


def survivors(
    layout: Layout, topic: str, wanted_runs: Mapping[str, Sequence[int]], window: int
) -> dict[str, list[int]]:
    """Return when events with these uuids landed, within the window (microseconds) of the wanted times.

    Searches the whole table: for events that are older than the recent batches.
    """
    wanted_runs = {uuid: times for uuid, times in wanted_runs.items() if times}
    times = [time for several in wanted_runs.values() for time in several]
    bounds = (min(times) - window, max(times) + window)
    landed_at: dict[str, list[int]] = {}
    for name in table_of(layout).active():
        if partition_value(name, "kind") in WITH_UUID and _may_be_of(layout.landed, name, topic, bounds):
            rows = read_rows(layout.landed, [name])
            for row in matching(rows, topic, wanted_runs):
                landed_at.setdefault(row[0], []).append(row[1])
    return landed_at


def _may_be_of(table: TablePath, name: TableFile, topic: str, bounds: tuple[int, int]) -> bool:
    """Report by a file's statistics whether it may have rows of a topic between two times."""
    file_bounds = _bounds(table, name, ("topic", "timestamp"))
    if file_bounds is None:
        return False
    topics, times = file_bounds
    first, last = ((time - EPOCH) // timedelta(microseconds=1) for time in times)
    return bool(topics[0] <= topic <= topics[1] and first <= bounds[1] and bounds[0] <= last)


def _with_offsets(rows: pa.Table, wanted_runs: Mapping[str, Sequence[OffsetRange]]) -> pa.Table:
    offsets, mask = rows["offset"].to_numpy(), np.zeros(rows.num_rows, bool)
    for topic, runs in wanted_runs.items():
        mask |= is_of_topic(rows, topic).to_numpy().astype(bool) & is_inside(offsets, runs)
    return rows.filter(pa.array(mask))


def _describe(table: TablePath, name: TableFile) -> _File | None:
    """Return the description of a file; None for a missing or empty file."""
    file_bounds = _bounds(table, name, ("topic", "offset"))
    return _File(name, *file_bounds) if file_bounds else None


def _bounds(
    table: TablePath, name: TableFile, columns: tuple[str, str]
) -> tuple[tuple[Any, Any], tuple[Any, Any]] | None:
    """Return the first and the last value of two columns; None where the file is gone, or has no rows."""
    try:
        with open_rows(table, name) as file:
            first, second = (file.bounds(column) for column in columns)
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    return (first, second) if first is not None and second is not None else None
