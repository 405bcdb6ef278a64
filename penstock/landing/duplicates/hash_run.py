"""Keys of events that landed, sorted, with a filter.

On disk, each part aligned: a head (its size, then JSON: version, rows, topics), the columns high, low, micros and
topic, and the filter. A run never changes. It is made again from the table where it is lost, so that nothing waits for
the disk.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from penstock.errors import PenstockError
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.key_filter import Array, filter_bytes, filter_of, maybe_there

VERSION = 2
_ALIGNED = 64
_SIZE = struct.Struct("<Q")
_COLUMNS: dict[str, np.dtype[Any]] = {
    "high": np.dtype("<u8"),
    "low": np.dtype("<u8"),
    "micros": np.dtype("<i8"),
    "topic": np.dtype("<u4"),
}


Columns = tuple[Array, Array, Array, Array]
"""High, low, micros and topic of some keys."""
_ALL = slice(None)


class BadRun(PenstockError, ValueError):
    """A file that is no run, or a damaged one."""


@dataclass(frozen=True, slots=True)
class HashRun:
    """Keys in ascending order of ``high``; ``filter``: as ``key_filter`` has it."""

    high: Array
    low: Array
    micros: Array
    topic: Array
    topics: tuple[str, ...]
    filter: Array

    def __len__(self) -> int:
        return len(self.high)

    @classmethod
    def of(cls, seen: EventsSeen) -> HashRun:
        """A run in memory."""
        order = np.argsort(seen.high)
        high, low, micros, topic = (one[order] for one in (seen.high, seen.low, seen.micros, seen.topic))
        return cls(high, low, micros, topic, seen.topics, filter_of(high, low))

    def find(self, high: Array, low: Array) -> tuple[Array, Array]:
        """Numbers of the keys that are here, and the timestamps of what landed; a key may be here more than once."""
        rows = maybe_there(self.filter, high, low)
        if not len(rows):
            return rows, rows
        left = np.searchsorted(self.high, high[rows], "left")
        counts = np.searchsorted(self.high, high[rows], "right") - left
        rows = np.repeat(rows, counts)
        places = np.repeat(left, counts) + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        same = self.low[places] == low[rows]
        return rows[same], self.micros[places[same]]

    def seen(self) -> EventsSeen:
        """The keys as ``of`` took them, in another order; partitions and offsets are not known."""
        nothing = np.zeros(len(self), np.int64)
        partition = nothing.astype(np.int32)
        return EventsSeen(self.high, self.low, self.micros, partition, nothing, self.topic, self.topics)

    def write(self, path: Path) -> int:
        """Write the file; its checksum."""
        return write_run(path, self.topics, [self.columns()], self.filter, len(self))

    def columns(self, rows: slice = _ALL) -> Columns:
        """The columns of some keys, as a file has them."""
        return self.high[rows], self.low[rows], self.micros[rows], self.topic[rows]

    @classmethod
    def open(cls, path: Path, checksum: int | None = None) -> HashRun:
        """A run in a file, mapped; looked through where a checksum is given. Raises BadRun, FileNotFoundError."""
        mapped = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        if checksum is not None and crc32c.crc32c(mapped.data) != checksum:
            raise BadRun(f"{path} is damaged")
        try:
            return cls._of(mapped)
        except (ValueError, KeyError, TypeError, struct.error):
            raise BadRun(f"{path} is damaged, or of another version") from None

    @classmethod
    def _of(cls, mapped: Array) -> HashRun:
        (size,) = _SIZE.unpack(mapped[: _SIZE.size].tobytes())
        told = json.loads(mapped[_SIZE.size :][:size].tobytes())
        if told["version"] != VERSION:
            raise ValueError("of another version")
        (*places, filter_place), _ = _layout(_SIZE.size + size, int(told["rows"]))
        columns = [_part(mapped, *place) for place in places]
        high, low, micros, topic = (one.view(kind) for one, kind in zip(columns, _COLUMNS.values(), strict=True))
        bitmap = _part(mapped, *filter_place)
        return cls(high, low, micros, topic, tuple(map(str, told["topics"])), bitmap)


def _part(mapped: Array, at: int, size: int) -> Array:
    part: Array = np.asarray(mapped[at : at + size])
    if len(part) != size:
        raise ValueError("too short")
    return part


def _layout(head: int, rows: int) -> tuple[list[tuple[int, int]], int]:
    """Where each column and the filter begin behind so many bytes, and how many bytes they are; and the end of all."""
    sizes = [*(rows * kind.itemsize for kind in _COLUMNS.values()), filter_bytes(rows)]
    *places, end = accumulate(size + -size % _ALIGNED for size in [head, *sizes])
    return list(zip(places, sizes, strict=True)), end


def write_run(path: Path, topics: tuple[str, ...], parts: Iterable[Columns], bitmap: Array, rows: int) -> int:
    """Write ``rows`` keys, which come in ascending order a part at a time, as the file of a run; its checksum.

    ``bitmap`` is their filter once all parts were taken.
    """
    told = json.dumps({"version": VERSION, "rows": rows, "topics": topics}).encode()
    head = _SIZE.pack(len(told)) + told
    ((*columns, (filter_at, _)), end), done = _layout(len(head), rows), 0
    path.unlink(missing_ok=True)  # who has another of that name mapped keeps it
    with path.open("wb") as file:
        file.write(head)
        for part in parts:
            for (at, _), kind, column in zip(columns, _COLUMNS.values(), part, strict=True):
                file.seek(at + done * kind.itemsize)
                file.write(np.ascontiguousarray(column, kind).data)
            done += len(part[0])
        file.seek(filter_at)
        file.write(bitmap.data)
        file.truncate(end)
    return int(crc32c.crc32c(np.memmap(path, np.uint8, "r").data))
