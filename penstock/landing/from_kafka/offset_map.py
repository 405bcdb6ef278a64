"""The map from a promoted topic's log offsets to Kafka offsets, and the point of the pipeline's move to Kafka.

One append-only file per promoted topic, next to Spark's checkpoint: one line per copied batch, and one per move.
Invariant: a line is synced only after its rows are in Kafka, so the map never claims a row that Kafka does not have.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.files.checked_lines import Damage, append_lines, encode_line, log_damage, read_lines
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, make_folder, replace_durably
from penstock.landing.table_paths import Layout
from penstock.qualified_names import partition_name

CopiedRange = tuple[int, int, int, int]
"""First log offset, number of rows, partition, first Kafka offset; both offsets are consecutive within a range."""
PartitionOffset = tuple[int, int]
"""Partition and Kafka offset; of a message in several chunks, that of its last chunk."""


@dataclass(frozen=True, slots=True)
class Move:
    """The pipeline's move of one topic to Kafka.

    Rows before log offset ``landed`` landed from the log. ``begins`` maps each partition to the offset where the
    pipeline continues; ``bucket`` is the minute of its last batch from the log.
    """

    landed: int
    begins: Mapping[int, int]
    bucket: int


@dataclass(slots=True)
class OffsetMap:
    """The offset map of one promoted topic. One process at a time writes it.

    ``kafka_topic`` is its name in Kafka, ``topic_id`` its id there (empty if unknown). ``begins`` holds the ends of its
    partitions before the first row was copied. All rows before log offset ``end`` are copied, or were already gone from
    the log. ``is_damaged``: damaged lines are missing in ``runs``.
    """

    path: Path
    topic: str
    kafka_topic: str
    begins: dict[int, int]
    end: int = 0
    runs: list[CopiedRange] = field(default_factory=list)
    move: Move | None = None
    topic_id: str = ""
    is_damaged: bool = False

    @classmethod
    def load(cls, path: Path, *, repair: bool = False) -> OffsetMap | None:
        """Load the map of a file, or return None without a file; ``repair`` is for the process that writes it.

        Raises DamagedFile if the first line, the header, is damaged.
        """
        damages: list[Damage] = []
        # Crash: a torn last line is cut off. Its rows are copied again, or found in Kafka by their headers.
        lines = list(read_lines(path, _parse_line, repair=repair, damaged=damages.append))
        for damage in damages:
            log_damage(damage)
        if not lines and not path.exists():
            return None
        if not lines or not isinstance(header := lines[0], _Header):
            raise DamagedFile(
                f"{path}: the first line is damaged; it holds the Kafka offsets where the copy begins. To copy the "
                "topic again, delete the file and name another topic with --as: the former one has the rows already"
            )
        offset_map = cls(path, header.topic, header.kafka_topic, header.begins, topic_id=header.topic_id)
        offset_map.is_damaged = not all(damage.cut for damage in damages)
        for line in lines[1:]:
            if isinstance(line, Move):
                offset_map.move = line
            elif isinstance(line, _CopiedBatch):
                offset_map.runs += line.runs
                offset_map.end = line.end
        return offset_map

    @classmethod
    def begin(cls, path: Path, topic: str, kafka_topic: str, begins: dict[int, int], topic_id: str = "") -> OffsetMap:
        """Create the file of a new map, durably, and return the map."""
        # Invariant: a copy without a map begins at the ends of now, so a lost map would copy all rows again. A file
        # without a header is therefore damage: no crash leaves one.
        offset_map = cls(path, topic, kafka_topic, begins, topic_id=topic_id)
        make_folder(path.parent)
        replace_durably(OS, path, encode_line(offset_map._header()))
        return offset_map

    def add(self, offsets: Sequence[int], positions: Sequence[PartitionOffset], end: int) -> None:
        """Add copied rows and their positions in Kafka; all rows before ``end`` are now copied."""
        runs = list(_merge_consecutive(zip(offsets, positions, strict=True)))
        # Order: the synced line first, memory second, so that a failed write leaves the map at the state of its file.
        append_lines(self.path, [{"end": end, "runs": runs}])
        self.runs += runs
        self.end = end

    def mend(self, copied: Mapping[int, PartitionOffset]) -> None:
        """Replace the damaged file by its intact lines and copied rows that Kafka has, by log offset."""
        runs = sorted([*self.runs, *_merge_consecutive(sorted(copied.items()))])
        end = max([self.end, *(offset + 1 for offset in copied)])
        documents = [self._header(), {"end": end, "runs": runs}, *([_describe(self.move)] if self.move else [])]
        replace_durably(OS, self.path, b"".join(map(encode_line, documents)))
        self.runs, self.end, self.is_damaged = runs, end, False

    def record_move(self, move: Move) -> None:
        """Record that the pipeline reads the topic from Kafka now. Synced."""
        append_lines(self.path, [_describe(move)])
        self.move = move

    def _header(self) -> dict[str, Any]:
        return {"topic": self.topic, "kafka": self.kafka_topic, "begins": self.begins, "id": self.topic_id}

    def kafka_position(self, offset: int) -> PartitionOffset | None:
        """Return the Kafka position of a log offset, or None if it was not copied."""
        index = bisect.bisect_right(self.runs, offset, key=lambda run: run[0]) - 1
        if index < 0:
            return None
        first, count, partition, kafka_offset = self.runs[index]
        return (partition, kafka_offset + offset - first) if offset < first + count else None

    def partition_name(self, partition: int) -> str:
        """Return the name of a partition in the ledger."""
        return partition_name(self.kafka_topic, partition)

    def kafka_ends_before(self, log_offset: int) -> dict[int, int]:
        """Return for each partition the offset after the last row copied from before ``log_offset``."""
        ends = dict(self.begins)
        for first, count, partition, kafka_offset in self.runs:
            if first < log_offset:
                ends[partition] = kafka_offset + min(count, log_offset - first)
        return ends

    def copied_ends(self) -> dict[int, int]:
        """Return for each partition the offset after the last copied row."""
        return self.kafka_ends_before(self.end)


@dataclass(frozen=True, slots=True)
class _Header:
    topic: str
    kafka_topic: str
    begins: dict[int, int]
    topic_id: str


@dataclass(frozen=True, slots=True)
class _CopiedBatch:
    end: int
    runs: list[CopiedRange]


def _parse_line(document: Mapping[str, Any]) -> _Header | Move | _CopiedBatch:
    if "kafka" in document:
        # Compatibility: an earlier version wrote no id.
        topic_id = str(document.get("id", ""))
        return _Header(document["topic"], document["kafka"], _by_partition(document["begins"]), topic_id)
    if "move" in document:
        move = document["move"]
        return Move(int(move["landed"]), _by_partition(move["begins"]), int(move["bucket"]))
    return _CopiedBatch(int(document["end"]), [(int(a), int(b), int(c), int(d)) for a, b, c, d in document["runs"]])


def _describe(move: Move) -> dict[str, Any]:
    begins = {str(partition): offset for partition, offset in move.begins.items()}
    return {"move": {"landed": move.landed, "begins": begins, "bucket": move.bucket}}


def _by_partition(offsets: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in offsets.items()}


def _merge_consecutive(copied: Iterable[tuple[int, PartitionOffset]]) -> Iterator[CopiedRange]:
    run: list[int] = []
    for offset, (partition, kafka_offset) in copied:
        if run and (run[0] + run[1], run[2], run[3] + run[1]) == (offset, partition, kafka_offset):
            run[1] += 1
            continue
        if run:
            yield run[0], run[1], run[2], run[3]
        run = [offset, 1, partition, kafka_offset]
    if run:
        yield run[0], run[1], run[2], run[3]


def map_path(layout: Layout, topic: str) -> Path:
    """Return the path of a topic's map."""
    return layout.promoted / f"{topic}.jsonl"


def load_maps(layout: Layout) -> dict[str, OffsetMap]:
    """Load the maps of all promoted topics, by topic."""
    loaded = (OffsetMap.load(path) for path in sorted(layout.promoted.glob("*.jsonl")))
    return {offset_map.topic: offset_map for offset_map in loaded if offset_map is not None}
