"""Where the rows of a topic of the log are in Kafka, and since when the pipeline reads them there.

A file for each topic that was promoted, beside the checkpoint: one line for each batch copied, and one for each move.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.files.checked_lines import append_lines, read_lines
from penstock.files.errors import DamagedFile
from penstock.landing.journal import PARTITION_MARK
from penstock.landing.table_paths import Layout

CopiedRange = tuple[int, int, int, int]
"""First offset in the log, how many rows, partition, first offset there; the offsets follow each other in both."""
PartitionOffset = tuple[int, int]
"""Partition and offset (of a message in several segments: that of the last)."""


@dataclass(frozen=True, slots=True)
class Move:
    """The pipeline's change to Kafka: before which offset it had landed the topic from the log, and where in each
    partition it went on; ``bucket`` is the minute of its last batch from the log.
    """

    landed: int
    begins: Mapping[int, int]
    bucket: int


@dataclass(slots=True)
class OffsetMap:
    """``kafka``: the name in Kafka; ``begins``: the ends of its partitions before the first row was copied.

    Rows before ``end`` are copied, or were gone from the log by then.
    """

    path: Path
    topic: str
    kafka: str
    begins: dict[int, int]
    end: int = 0
    runs: list[CopiedRange] = field(default_factory=list)
    move: Move | None = None

    @classmethod
    def load(cls, path: Path) -> OffsetMap | None:
        """The map in a file; None where there is none. A damaged end is cut off: Kafka says what was copied.

        Raises DamagedFile where it begins with no whole line.
        """
        lines = list(read_lines(path, _line, repair=True))
        if not lines:
            return None
        if not isinstance(first := lines[0], _Begin):
            raise DamagedFile(f"{path}: its first line is damaged, which says where in Kafka the copy begins")
        found = cls(path, first.topic, first.kafka, first.begins)
        for line in lines[1:]:
            if isinstance(line, Move):
                found.move = line
            elif isinstance(line, _Copied):
                found.runs += line.runs
                found.end = line.end
        return found

    @classmethod
    def begin(cls, path: Path, topic: str, kafka: str, begins: dict[int, int]) -> OffsetMap:
        """A new map."""
        path.parent.mkdir(parents=True, exist_ok=True)
        append_lines(path, [{"topic": topic, "kafka": kafka, "begins": begins}])
        return cls(path, topic, kafka, begins)

    def add(self, offsets: Sequence[int], places: Sequence[PartitionOffset], end: int) -> None:
        """Rows that are in Kafka now; everything before ``end`` is done. Synced."""
        runs = list(_runs(zip(offsets, places, strict=True)))
        append_lines(self.path, [{"end": end, "runs": runs}])
        self.runs += runs
        self.end = end

    def moved(self, move: Move) -> None:
        """The pipeline reads Kafka from now on."""
        begins = {str(partition): offset for partition, offset in move.begins.items()}
        append_lines(self.path, [{"move": {"landed": move.landed, "begins": begins, "bucket": move.bucket}}])
        self.move = move

    def place(self, offset: int) -> PartitionOffset | None:
        """Where a row is in Kafka."""
        number = bisect.bisect_right(self.runs, offset, key=lambda run: run[0]) - 1
        if number < 0:
            return None
        first, count, partition, at = self.runs[number]
        return (partition, at + offset - first) if offset < first + count else None

    def name(self, partition: int) -> str:
        """A partition as the balance calls it."""
        return f"{self.kafka}{PARTITION_MARK}{partition}"

    def after(self, offset: int) -> dict[int, int]:
        """For each partition the place behind all rows from before an offset of the log."""
        ends = dict(self.begins)
        for first, count, partition, at in self.runs:
            if first < offset:
                ends[partition] = at + min(count, offset - first)
        return ends

    def last(self) -> dict[int, int]:
        """For each partition the place behind the last row copied."""
        return self.after(self.end)


@dataclass(frozen=True, slots=True)
class _Begin:
    topic: str
    kafka: str
    begins: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Copied:
    end: int
    runs: list[CopiedRange]


def _line(told: Mapping[str, Any]) -> _Begin | Move | _Copied:
    if "kafka" in told:
        return _Begin(told["topic"], told["kafka"], _by_partition(told["begins"]))
    if "move" in told:
        move = told["move"]
        return Move(int(move["landed"]), _by_partition(move["begins"]), int(move["bucket"]))
    return _Copied(int(told["end"]), [(int(a), int(b), int(c), int(d)) for a, b, c, d in told["runs"]])


def _by_partition(told: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in told.items()}


def _runs(copied: Iterable[tuple[int, PartitionOffset]]) -> Iterator[CopiedRange]:
    run: list[int] = []
    for offset, (partition, at) in copied:
        if run and (run[0] + run[1], run[2], run[3] + run[1]) == (offset, partition, at):
            run[1] += 1
            continue
        if run:
            yield run[0], run[1], run[2], run[3]
        run = [offset, 1, partition, at]
    if run:
        yield run[0], run[1], run[2], run[3]


def map_path(layout: Layout, topic: str) -> Path:
    """Where the map of a topic is."""
    return layout.promoted / f"{topic}.jsonl"


def maps(layout: Layout) -> dict[str, OffsetMap]:
    """The maps of all topics that were promoted."""
    found = (OffsetMap.load(path) for path in sorted(layout.promoted.glob("*.jsonl")))
    return {one.topic: one for one in found if one is not None}


def counts_document(counts: Mapping[tuple[str, int], Mapping[str, int]]) -> list[dict[str, Any]]:
    """Counts by source and bucket as the ledger takes them."""
    return [{"source": s, "bucket": b, "counts": dict(of_key)} for (s, b), of_key in sorted(counts.items())]
