"""Evidence of a proof: rows of files, gaps, uuids that landed before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.journal import Commit
from penstock.landing.offset_runs import as_runs, count_offsets, offsets_of
from penstock.landing.table.table_file import as_written
from penstock.log.store.gaps import Gap
from penstock.proof.evidence import LandedUuids, in_gaps, of_topic, read_rows, split_offsets, tally
from tests.spark.spark_helpers import BUCKET, HandWritten, landed_event, landed_message


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 15), st.integers(0, 15))
def test_split_offsets_finds_missing_and_unexpected_offsets(counts: list[int], begin: int, rows: int) -> None:
    expected = range(begin, begin + rows)
    missing, unexpected = split_offsets(np.array(counts, np.int64), begin, begin + rows)
    assert offsets_of(missing).tolist() == [offset for offset in expected if offset not in counts]
    outside = [offset for offset in counts if offset not in expected]
    doubled = sorted({offset for offset in counts if offset in expected and counts.count(offset) > 1})
    assert unexpected.tolist() == outside + doubled


GAPS = st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(1, 4), min_size=1, max_size=3)), max_size=4)


@given(GAPS, st.integers(0, 60))
def test_counts_of_parts_add_up_to_counts_of_gap(spans: list[tuple[int, list[int]]], cut: int) -> None:
    gaps, offset = [], 0
    for space, counts in spans:
        begin = offset + space
        offset = begin + sum(counts)
        gaps.append(Gap(begin, offset, "corrupt", {f"s{n}": {60 * n: count} for n, count in enumerate(counts)}))
    parts = [in_gaps(as_runs([(0, cut)]), gaps), in_gaps(as_runs([(cut, 70)]), gaps)]
    total: dict[tuple[str, int], int] = {}
    for _, origins in parts:
        for origin, reasons in origins.items():
            total[origin] = total.get(origin, 0) + reasons["corrupt"]
    expected: dict[tuple[str, int], int] = {}
    for gap in gaps:
        for source, buckets in gap.counts.items():
            for bucket, count in buckets.items():
                expected[source, bucket] = expected.get((source, bucket), 0) + count
    assert total == expected
    assert sum(count_offsets(remaining) for remaining, _ in parts) == 70 - sum(gap.end - gap.begin for gap in gaps)


def test_unknown_rows_of_gap_are_counted_without_source() -> None:
    remaining, origins = in_gaps(as_runs([(0, 5)]), [Gap(0, 4, "corrupt", {"a": {60: 3}})])
    assert remaining.tolist() == [[4, 5]]
    assert origins == {("a", 60): {"corrupt": 3}, ("", 0): {"corrupt": 1}}


def test_rows_are_counted_by_origin_and_reason(table: HandWritten) -> None:
    table.commit(
        {"t": 4},
        [
            landed_event(0, "u"),
            landed_message(1),
            landed_message(2, source="tcp", bucket=BUCKET + 60),
            {"topic": "t", "offset": 3, "kind": "quarantine", "reason": "bad_json"},
        ],
    )
    rows = read_rows(table.layout.landed, as_written(table.files))
    assert tally(rows) == {
        ("events-udp", BUCKET): {("event", ""): 1, ("message", ""): 1, ("quarantine", "bad_json"): 1},
        ("tcp", BUCKET + 60): {("message", ""): 1},
    }
    assert of_topic(rows, "t").num_rows == 4
    assert of_topic(rows, "x").num_rows == 0


def test_missing_or_damaged_file_has_no_rows(table: HandWritten) -> None:
    table.commit({"t": 1}, [landed_message(0)])
    (table.layout.landed / "broken.parquet").write_bytes(b"PAR1 something else PAR1")
    (table.layout.landed / "empty.parquet").touch()
    assert (
        read_rows(
            table.layout.landed, as_written([*table.files, "gone.parquet", "broken.parquet", "empty.parquet"])
        ).num_rows
        == 1
    )


Landed = tuple[int, str]
"""A second of the log, and a uuid."""


def commits_of(table: HandWritten, *batches: list[Landed]) -> list[Commit]:
    """Batches of events, each landed a second after the log stored its newest."""
    commits, offset = [], 0
    for number, events in enumerate(batches):
        before, landed_at = len(table.files), (max(second for second, _ in events) + 1) * 1000
        rows = [landed_event(offset + n, uuid, timestamp=second) for n, (second, uuid) in enumerate(events)]
        offset += len(events)
        table.commit({"t": offset}, rows, landed_at=landed_at)
        commits.append(Commit(number, {}, {}, landed_at, 0, tuple(table.files[before:])))
    return commits


def landed_of(table: HandWritten, room: int = 1 << 20) -> LandedUuids:
    return LandedUuids(lambda commit: read_rows(table.layout.landed, as_written(commit.files)), 600.0, room)


def wanted_uuids(*events: Landed) -> dict[str, dict[str, list[int]]]:
    expected: dict[str, list[int]] = {}
    for second, uuid in events:
        expected.setdefault(uuid, []).append(second * 1_000_000)
    return {"t": expected}


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_survivors_are_found_in_cache_and_in_files(table: HandWritten, room: int) -> None:
    landed = landed_of(table, room)
    for commit in commits_of(table, [(1000, "a"), (1000, "b")], [(1001, "c")]):
        landed.remember(commit, read_rows(table.layout.landed, as_written(commit.files)))
    counts = landed.find_landed(
        {**wanted_uuids((1002, "a"), (1002, "c"), (1002, "x")), "other": {"b": [1_002_000_000]}}
    )
    assert counts == {"t": {"a": [1_000_000_000], "c": [1_001_000_000]}, "other": {}}


@pytest.mark.parametrize("read", [True, False])
def test_uuid_counts_only_within_window(table: HandWritten, read: bool) -> None:
    landed = landed_of(table)
    for commit in commits_of(table, [(1000, "old")], [(1500, "x")], [(1600, "y")]):
        landed.remember(commit, read_rows(table.layout.landed, as_written(commit.files)) if read else None)
    for second, near in ((1600, True), (400, True), (399, False), (1601, False)):
        times = landed.find_landed(wanted_uuids((second, "old")))["t"].get("old", [])
        assert landed.within(second * 1_000_000, times) is near


def test_any_event_of_a_uuid_can_be_the_survivor(table: HandWritten) -> None:
    landed = landed_of(table)
    for commit in commits_of(table, [(1000, "u"), (1700, "u")], [(1701, "x")]):
        landed.remember(commit)
    times = landed.find_landed(wanted_uuids((1000, "u"), (1701, "u")))["t"]["u"]
    assert all(landed.within(second * 1_000_000, times) for second in (1000, 1701))


def test_batch_outside_window_is_dropped(table: HandWritten) -> None:
    read: list[int] = []

    def rows_of(commit: Commit) -> pa.Table:
        read.append(commit.batch)
        return read_rows(table.layout.landed, as_written(commit.files))

    landed = LandedUuids(rows_of, 600.0, 0)
    commits = commits_of(table, [(1000, "a")], [(1700, "b")], [(1701, "c")])
    for commit in commits:
        landed.remember(commit, read_rows(table.layout.landed, as_written(commit.files)))
    landed.find_landed(wanted_uuids((1701, "x")))
    assert read == [2, 1], "the first batch is not read again"


def test_partitions_of_kafka_count_as_one_topic(table: HandWritten) -> None:
    rows = [landed_event(0, "a", partition=3, timestamp=1000)]
    table.commit({"t/3": 1}, rows)
    landed = landed_of(table)
    landed.remember(Commit(0, {}, {}, 1_001_000, 0, tuple(table.files)))
    assert landed.find_landed(wanted_uuids((1001, "a"))) == {"t": {"a": [1_000_000_000]}}


def test_columns_of_evidence_match_schema(table: HandWritten) -> None:
    table.commit({"t": 1}, [landed_event(0, "u")])
    rows = read_rows(table.layout.landed, as_written(table.files))
    assert rows.schema.field("bucket").type == pa.int64()
    assert rows["bucket"].to_pylist() == [BUCKET]
