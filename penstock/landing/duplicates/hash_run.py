"""Keys of events that landed, sorted, with a filter that answers nearly all questions for keys that are not there.

On disk, each part aligned: a head (its size, then JSON: version, rows, topics), the columns high, low, micros and
topic, and the filter. A run never changes. It is made again from the table where it is lost, so that nothing waits for
the disk.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from penstock.errors import PenstockError
from penstock.landing.duplicates.events_seen import EventsSeen

Array = np.ndarray[tuple[int], np.dtype[Any]]
VERSION = 1
FILTER_BITS = 16
"""Bits of the filter for each key: with two of them set, one question in seventy is asked in vain."""
_ALIGNED = 64
_SIZE = struct.Struct("<Q")
_COLUMNS: dict[str, np.dtype[Any]] = {
    "high": np.dtype("<u8"),
    "low": np.dtype("<u8"),
    "micros": np.dtype("<i8"),
    "topic": np.dtype("<u4"),
}


class BadRun(PenstockError, ValueError):
    """A file that is no run, or a damaged one."""


@dataclass(frozen=True, slots=True)
class HashRun:
    """Keys in ascending order of ``high``; ``filter`` is a bitmap of a power of two of bits."""

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
        order = np.argsort(seen.high, kind="stable")
        sorted_ones = seen.take(order)
        return cls(
            sorted_ones.high, sorted_ones.low, sorted_ones.micros, sorted_ones.topic, seen.topics, _filter(seen.low)
        )

    def find(self, high: Array, low: Array) -> tuple[Array, Array]:
        """Numbers of the keys that are here, and the timestamps of what landed; a key may be here more than once."""
        rows = self._likely(low)
        if not len(rows):
            return rows, rows
        left = np.searchsorted(self.high, high[rows], "left")
        counts = np.searchsorted(self.high, high[rows], "right") - left
        rows = np.repeat(rows, counts)
        places = np.repeat(left, counts) + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        same = self.low[places] == low[rows]
        return rows[same], self.micros[places[same]]

    def _likely(self, low: Array) -> Array:
        rows: Array = np.flatnonzero(_bits(self.filter, low))
        likely: Array = rows[_bits(self.filter, low[rows] >> np.uint64(32)) != 0]
        return likely

    def seen(self) -> EventsSeen:
        """The keys as ``of`` took them, in another order; partitions and offsets are not known."""
        nothing = np.zeros(len(self), np.int64)
        partition = nothing.astype(np.int32)
        return EventsSeen(self.high, self.low, self.micros, partition, nothing, self.topic, self.topics)

    def write(self, path: Path) -> int:
        """Write the file; its checksum."""
        head = json.dumps({"version": VERSION, "rows": len(self), "topics": self.topics}).encode()
        arrays = [getattr(self, name).astype(kind) for name, kind in _COLUMNS.items()]
        parts = [_SIZE.pack(len(head)) + head, *(one.tobytes() for one in (*arrays, self.filter))]
        whole = b"".join(part + bytes(-len(part) % _ALIGNED) for part in parts)
        path.unlink(missing_ok=True)  # who has another of that name mapped keeps it
        path.write_bytes(whole)
        return int(crc32c.crc32c(whole))

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
        rows, at, columns = int(told["rows"]), _SIZE.size + size, []
        sizes = [rows * kind.itemsize for kind in _COLUMNS.values()]
        for size in (*sizes, _filter_bytes(rows)):
            at += -at % _ALIGNED
            columns.append(_part(mapped, at, size))
            at += size
        high, low, micros, topic = (one.view(kind) for one, kind in zip(columns, _COLUMNS.values(), strict=False))
        return cls(high, low, micros, topic, tuple(map(str, told["topics"])), columns[-1])


def _part(mapped: Array, at: int, size: int) -> Array:
    part: Array = np.asarray(mapped[at : at + size])
    if len(part) != size:
        raise ValueError("too short")
    return part


def _filter_bytes(rows: int) -> int:
    return max(8, 1 << (max(rows, 1) * FILTER_BITS - 1).bit_length()) // 8


def _filter(low: Array) -> Array:
    size = _filter_bytes(len(low))
    found = np.zeros(size * 8, np.uint8)
    mask = np.uint64(size * 8 - 1)
    for part in (low, low >> np.uint64(32)):
        found[part & mask] = 1
    packed: Array = np.packbits(found, bitorder="little")
    return packed


def _bits(bitmap: Array, values: Array) -> Array:
    places = values & np.uint64(len(bitmap) * 8 - 1)
    found: Array = (bitmap[places >> np.uint64(3)] >> (places & np.uint64(7)).astype(np.uint8)) & np.uint8(1)
    return found
