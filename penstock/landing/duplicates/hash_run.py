"""A file of the keys of landed events, sorted, with a filter; and the merging of several such runs.

On disk, each part aligned: a header (its size, then JSON: version, rows, topics), the columns high, low, micros and
topic, and the filter. A run is immutable. It is not synced: a lost run is rebuilt from the table.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from penstock.errors import PenstockError
from penstock.landing.duplicates.events_seen import EventsSeen, unify_topics
from penstock.landing.duplicates.key_filter import (
    Array,
    add_keys,
    build_filter,
    empty_filter,
    filter_bytes,
    possible_rows,
)

VERSION = 1
_ALIGNMENT_BYTES = 64
_SIZE = struct.Struct("<Q")
_COLUMNS: dict[str, np.dtype[Any]] = {
    "high": np.dtype("<u8"),
    "low": np.dtype("<u8"),
    "micros": np.dtype("<i8"),
    "topic": np.dtype("<u4"),
}


Columns = tuple[Array, Array, Array, Array]
"""The columns high, low, micros and topic of some keys."""
_ALL_ROWS = slice(None)
KEYS_PER_STEP = 1 << 19
"""Limit: about this many keys are in memory during a merge. Keys are hashes, so equal ranges hold equally many."""


class BadRun(PenstockError, ValueError):
    """The file is damaged, or it is not a run."""


@dataclass(frozen=True, slots=True)
class HashRun:
    """Keys in ascending order of ``high``, with their ``filter``. Immutable, in memory or mapped."""

    high: Array
    low: Array
    micros: Array
    topic: Array
    topics: tuple[str, ...]
    filter: Array

    def __len__(self) -> int:
        return len(self.high)

    @classmethod
    def from_events(cls, seen: EventsSeen) -> HashRun:
        """Build a run in memory."""
        order = np.argsort(seen.high)
        high, low, micros, topic = (column[order] for column in (seen.high, seen.low, seen.micros, seen.topic))
        return cls(high, low, micros, topic, seen.topics, build_filter(high, low))

    def find_keys(self, high: Array, low: Array) -> tuple[Array, Array]:
        """Look up keys; return the row number and the landed timestamp of each match. A key may match several times."""
        # Fast path: the filter answers for most keys that did not land, so that few are searched.
        rows = possible_rows(self.filter, high, low)
        if not len(rows):
            return rows, rows
        starts = np.searchsorted(self.high, high[rows], "left")
        counts = np.searchsorted(self.high, high[rows], "right") - starts
        # Several keys may share the upper half: each candidate row is compared with all of them.
        rows = np.repeat(rows, counts)
        indices = np.repeat(starts, counts) + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_match = self.low[indices] == low[rows]
        return rows[is_match], self.micros[indices[is_match]]

    def seen(self) -> EventsSeen:
        """Return the keys as events, in another order; partitions and offsets are unknown and 0."""
        zeros = np.zeros(len(self), np.int64)
        partition = zeros.astype(np.int32)
        return EventsSeen(self.high, self.low, self.micros, partition, zeros, self.topic, self.topics)

    def write(self, path: Path) -> int:
        """Write the file and return its checksum."""
        return write_run(path, self.topics, [self.columns()], self.filter, len(self))

    def columns(self, rows: slice = _ALL_ROWS) -> Columns:
        """Return the columns of some keys, as a file stores them."""
        return self.high[rows], self.low[rows], self.micros[rows], self.topic[rows]

    @classmethod
    def open(cls, path: Path, checksum: int | None = None) -> HashRun:
        """Map a run's file; with a checksum, verify all bytes. Raises BadRun, FileNotFoundError."""
        mapped = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        if checksum is not None and crc32c.crc32c(mapped.data) != checksum:
            raise BadRun(f"{path} is damaged")
        try:
            return cls._parse(mapped)
        except (ValueError, KeyError, TypeError, struct.error):
            raise BadRun(f"{path} is damaged, or of another version") from None

    @classmethod
    def _parse(cls, mapped: Array) -> HashRun:
        (size,) = _SIZE.unpack(mapped[: _SIZE.size].tobytes())
        header = json.loads(mapped[_SIZE.size :][:size].tobytes())
        if header["version"] != VERSION:
            raise ValueError("another version")
        (*column_spans, filter_span), _ = _layout(_SIZE.size + size, int(header["rows"]))
        columns = [_slice(mapped, *span) for span in column_spans]
        high, low, micros, topic = (column.view(kind) for column, kind in zip(columns, _COLUMNS.values(), strict=True))
        bitmap = _slice(mapped, *filter_span)
        return cls(high, low, micros, topic, tuple(map(str, header["topics"])), bitmap)


def _slice(mapped: Array, start: int, size: int) -> Array:
    part: Array = np.asarray(mapped[start : start + size])
    if len(part) != size:
        raise ValueError("too short")
    return part


def _layout(header_size: int, rows: int) -> tuple[list[tuple[int, int]], int]:
    """Return the (start, size) of each column and the filter behind a header, and the end of the last one."""
    sizes = [*(rows * kind.itemsize for kind in _COLUMNS.values()), filter_bytes(rows)]
    *starts, end = accumulate(size + -size % _ALIGNMENT_BYTES for size in [header_size, *sizes])
    return list(zip(starts, sizes, strict=True)), end


def write_run(path: Path, topics: tuple[str, ...], parts: Iterable[Columns], bitmap: Array, rows: int) -> int:
    """Write ``rows`` keys as a run's file and return its checksum. ``parts`` come in ascending order.

    ``bitmap``, their filter, is read after the last part: the caller adds the keys of a part before it yields the
    part.
    """
    header = json.dumps({"version": VERSION, "rows": rows, "topics": topics}).encode()
    header_bytes = _SIZE.pack(len(header)) + header
    ((*column_spans, (filter_start, _)), end), written_rows = _layout(len(header_bytes), rows), 0
    # A new inode: a process that has the old file mapped keeps the old content. Truncation would kill it (SIGBUS).
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(header_bytes)
        for part in parts:
            for (start, _), kind, column in zip(column_spans, _COLUMNS.values(), part, strict=True):
                file.seek(start + written_rows * kind.itemsize)
                file.write(np.ascontiguousarray(column, kind).data)
            written_rows += len(part[0])
        file.seek(filter_start)
        file.write(bitmap.data)
        file.truncate(end)
    return int(crc32c.crc32c(np.memmap(path, np.uint8, "r").data))


def merge_runs(runs: Sequence[HashRun], path: Path) -> int:
    """Write the keys of all runs as one run's file and return its checksum."""
    rows, (topics, topic_indexes) = sum(map(len, runs)), unify_topics([run.topics for run in runs])
    bitmap = empty_filter(rows)
    return write_run(path, topics, _merge_in_order(runs, topic_indexes, bitmap), bitmap, rows)


def _merge_in_order(runs: Sequence[HashRun], topic_indexes: Sequence[Array], bitmap: Array) -> Iterator[Columns]:
    """Yield the keys of all runs in ascending order, a range at a time, and add each to the filter."""
    steps = max(1, sum(map(len, runs)) // KEYS_PER_STEP)
    edges = np.array([(1 << 64) * step // steps for step in range(1, steps)], np.uint64)
    cuts = [[0, *np.searchsorted(run.high, edges).tolist(), len(run)] for run in runs]
    for step in range(steps):
        parts = [run.columns(slice(cut[step], cut[step + 1])) for run, cut in zip(runs, cuts, strict=True)]
        columns = _merge_parts(parts, topic_indexes)
        add_keys(bitmap, columns[0], columns[1])
        yield columns


def _merge_parts(parts: Sequence[Columns], topic_indexes: Sequence[Array]) -> Columns:
    """Merge parts into one in ascending order; ``topic_indexes`` translates the topics of each part."""
    high, low, micros = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:3])
    topic = np.concatenate([indexes[part[3]] for indexes, part in zip(topic_indexes, parts, strict=True)])
    order = np.argsort(high)
    return high[order], low[order], micros[order], topic[order]
