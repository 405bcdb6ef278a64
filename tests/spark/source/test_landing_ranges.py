"""Ranges of a micro-batch of the landing, in turn or requested, and their messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.landing.from_kafka.rows import ROW
from penstock.landing.requests.backfill_requests import OffsetRange, write_request
from penstock.landing.topics.from_folder import FolderStore
from penstock.spark.query.landing_tasks import messages_in
from penstock.spark.source.interfaces import ReadAllAvailable, ReadMaxRows
from penstock.spark.source.landing_ranges import RANGES, LandingSource, RangeReader
from penstock.spark.source.options import SourceOptions
from tests.spark.spark_helpers import append, flip

Named = tuple[str, int, int, bool]
EVERYTHING = ReadAllAvailable()


class Planner:
    """The reader that Spark would ask, over a folder of topics."""

    def __init__(self, topics: Path, folder: Path, only_backfills: bool = False, **options: str) -> None:
        self.hold, self.backfills = folder / "hold", folder / "refills"
        self.backfills.mkdir(parents=True, exist_ok=True)
        asked = SourceOptions.from_options({"path": str(topics), **options})
        self.reader = RangeReader(asked, StructType(), self.hold, (self.backfills, only_backfills))

    def request_offsets(self, topic: str, runs: Sequence[OffsetRange], again: bool = False) -> None:
        write_request(self.backfills, topic, runs, lost=again)

    def ranges(self, start: dict[str, int], end: dict[str, int]) -> list[Named]:
        """All ranges of a batch, as the rows that its tasks get."""
        batches = [rows for part in self.reader.partitions(start, end) for rows in self.reader.read(part)]
        assert all(rows.schema == RANGES for rows in batches)
        found = [row for rows in batches for row in rows.to_pylist()]
        return sorted((row["topic"], row["begin"], row["end"], row["again"]) for row in found)


@pytest.fixture
def two(topics: Path) -> Path:
    append(topics, "a", [b"%d" % n for n in range(10)])
    append(topics, "b", [b"x", b"y"], [b"z"], codec="syslog", source="tcp")
    return topics


@pytest.fixture
def planner(two: Path, tmp_path: Path) -> Planner:
    return Planner(two, tmp_path)


def test_batch_is_a_range_per_topic(planner: Planner) -> None:
    assert planner.reader.latestOffset({}, EVERYTHING) == {"a": 10, "b": 3}
    assert planner.ranges({}, {"a": 10, "b": 3}) == [("a", 0, 10, False), ("b", 0, 3, False)]
    assert planner.ranges({"a": 4, "b": 3}, {"a": 6, "b": 3}) == [("a", 4, 6, False)]


def test_hold_file_stops_planning(planner: Planner) -> None:
    planner.hold.touch()
    assert planner.reader.latestOffset({"a": 4}, EVERYTHING) == {"a": 4}
    planner.hold.unlink()
    assert planner.reader.latestOffset({"a": 4}, EVERYTHING) == {"a": 10, "b": 3}


def test_batch_is_within_its_limit(planner: Planner) -> None:
    start: dict[str, int] = {}
    taken = []
    while (end := planner.reader.latestOffset(start, ReadMaxRows(4))) != start:
        taken.append(sum(end.values()) - sum(start.values()))
        start = end
    assert sum(taken) == 13
    assert max(taken) <= 4


def test_requested_offsets_come_first_and_are_skipped_later(planner: Planner) -> None:
    planner.request_offsets("a", [(2, 4), (7, 8)])
    end = planner.reader.latestOffset({"a": 1}, EVERYTHING)
    assert end == {"a": 1, "a@1": 3}
    assert planner.ranges({"a": 1}, end) == [("a", 2, 4, False), ("a", 7, 8, False)]
    later = planner.reader.latestOffset(end, EVERYTHING)
    assert later == {"a": 10, "a@1": 3, "b": 3}
    assert planner.ranges(end, later) == [
        ("a", 1, 2, False),
        ("a", 4, 7, False),
        ("a", 8, 10, False),
        ("b", 0, 3, False),
    ]


def test_repeated_landing_is_marked_and_takes_no_turn(planner: Planner) -> None:
    planner.request_offsets("a", [(2, 4)], again=True)
    assert planner.ranges({"a": 10}, {"a": 10, "a@1": 2}) == [("a", 2, 4, True)]
    assert planner.ranges({}, {"a": 10}) == [("a", 0, 10, False)]


def test_batch_planned_before_a_request_is_repeated_unchanged(planner: Planner) -> None:
    planner.request_offsets("a", [(2, 4)])
    assert planner.ranges({}, {"a": 10}) == [("a", 0, 10, False)]


def test_only_backfills_plans_requested_offsets_only(two: Path, tmp_path: Path) -> None:
    planner = Planner(two, tmp_path, only_backfills=True)
    assert planner.reader.latestOffset({}, EVERYTHING) == {}
    planner.request_offsets("b", [(0, 2)])
    assert planner.reader.latestOffset({}, EVERYTHING) == {"b@1": 2}


def test_option_names_are_case_insensitive(two: Path, tmp_path: Path) -> None:
    options = {"path": str(two), "holdFile": str(tmp_path / "hold"), "backfillsFolder": str(tmp_path / "refills")}
    source = LandingSource({**options, "ONLYBACKFILLS": "false"})
    assert source.schema() == "topic string, begin bigint, end bigint, again boolean"
    assert source.streamReader(StructType()).latestOffset({}, EVERYTHING) == {"a": 10, "b": 3}


def messages(topics: Path, *ranges: Named) -> list[dict[str, object]]:
    rows = [dict(zip(RANGES.names, one, strict=True)) for one in ranges]
    batches = [pa.RecordBatch.from_pylist(rows, schema=RANGES)]
    found = []
    for source in messages_in(batches, FolderStore(topics)):
        assert source.rows.schema == ROW
        found += [{**row, "again": source.relands} for row in source.rows.to_pylist()]
    return found


def test_messages_of_ranges_have_position_and_origin(two: Path) -> None:
    found = messages(two, ("a", 8, 10, False), ("b", 1, 3, True))
    assert [(row["topic"], row["offset"], row["payload"], row["again"]) for row in found] == [
        ("a", 8, b"8", False),
        ("a", 9, b"9", False),
        ("b", 1, b"y", True),
        ("b", 2, b"z", True),
    ]
    assert [(row["codec"], row["source"], row["partition"]) for row in found[1:3]] == [
        ("plog", "events-udp", None),
        ("syslog", "tcp", None),
    ]


def test_corrupt_batch_and_missing_topic_are_skipped(two: Path) -> None:
    flip(two, "b", b"xy")
    found = messages(two, ("b", 0, 3, False), ("gone", 0, 5, False))
    assert [(row["topic"], row["offset"]) for row in found] == [("b", 2)]


def test_source_is_planned_without_the_modules_of_tasks() -> None:
    program = "import penstock.spark.source.landing_ranges, sys; print(*sys.modules)"
    imported = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "penstock.spark.source.landing_ranges" in imported
    assert {"penstock.landing.writing.part_writer", "penstock.wire.syslog.codec", "pandas"}.isdisjoint(imported)
