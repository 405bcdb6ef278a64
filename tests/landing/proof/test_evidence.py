"""The evidence of a proof: rows of files, gaps, uuids that landed before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.journal import Commit
from penstock.landing.proof.evidence import LandedUuids, in_gaps, of_topic, read_rows, split_offsets, tally
from penstock.log.store.gaps import Gap
from tests.spark.spark_helpers import BUCKET, HandWritten, landed_event, landed_message


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 15), st.integers(0, 15))
def test_missing_and_unexpected_offsets_are_exactly_those(found: list[int], begin: int, rows: int) -> None:
    wanted = range(begin, begin + rows)
    missing, unexpected = split_offsets(np.array(found, np.int64), begin, begin + rows)
    assert missing.tolist() == [offset for offset in wanted if offset not in found]
    outside = [offset for offset in found if offset not in wanted]
    doubled = sorted({offset for offset in found if offset in wanted and found.count(offset) > 1})
    assert unexpected.tolist() == outside + doubled


GAPS = st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(1, 4), min_size=1, max_size=3)), max_size=4)


@given(GAPS, st.integers(0, 60))
def test_the_parts_of_a_gap_come_to_its_counts_together(spans: list[tuple[int, list[int]]], cut: int) -> None:
    gaps, at = [], 0
    for space, counts in spans:
        begin = at + space
        at = begin + sum(counts)
        gaps.append(Gap(begin, at, "corrupt", {f"s{n}": {60 * n: count} for n, count in enumerate(counts)}))
    everything = np.arange(70)
    parts = [in_gaps(everything[everything < cut], gaps), in_gaps(everything[everything >= cut], gaps)]
    total: dict[tuple[str, int], int] = {}
    for _, places in parts:
        for place, reasons in places.items():
            total[place] = total.get(place, 0) + reasons["corrupt"]
    wanted: dict[tuple[str, int], int] = {}
    for gap in gaps:
        for source, buckets in gap.counts.items():
            for bucket, count in buckets.items():
                wanted[source, bucket] = wanted.get((source, bucket), 0) + count
    assert total == wanted
    assert sum(len(left) for left, _ in parts) == 70 - sum(gap.end - gap.begin for gap in gaps)


def test_rows_of_a_gap_that_nobody_knows_are_counted_without_a_source() -> None:
    left, places = in_gaps(np.arange(5), [Gap(0, 4, "corrupt", {"a": {60: 3}})])
    assert left.tolist() == [4]
    assert places == {("a", 60): {"corrupt": 3}, ("", 0): {"corrupt": 1}}


def test_rows_are_read_with_their_kind_and_counted_by_place_and_reason(table: HandWritten) -> None:
    table.commit(
        {"t": 4},
        [
            landed_event(0, "u"),
            landed_message(1),
            landed_message(2, source="tcp", bucket=BUCKET + 60),
            {"topic": "t", "offset": 3, "kind": "quarantine", "reason": "bad_json"},
        ],
    )
    rows = read_rows(table.layout.landed, table.files)
    assert tally(rows) == {
        ("events-udp", BUCKET): {("event", ""): 1, ("message", ""): 1, ("quarantine", "bad_json"): 1},
        ("tcp", BUCKET + 60): {("message", ""): 1},
    }
    assert of_topic(rows, "t").num_rows == 4
    assert of_topic(rows, "x").num_rows == 0


def test_a_file_that_is_gone_or_no_parquet_has_no_rows(table: HandWritten) -> None:
    table.commit({"t": 1}, [landed_message(0)])
    (table.layout.landed / "broken.parquet").write_bytes(b"PAR1 something else PAR1")
    (table.layout.landed / "empty.parquet").touch()
    assert (
        read_rows(table.layout.landed, [*table.files, "gone.parquet", "broken.parquet", "empty.parquet"]).num_rows == 1
    )


def commits_of(table: HandWritten, *batches: tuple[int, list[str]]) -> list[Commit]:
    """Batches that landed at given seconds with given uuids, with the watermark Spark would have had."""
    found, offset, watermark = [], 0, 0
    for number, (seconds, uuids) in enumerate(batches):
        before = len(table.files)
        rows = [landed_event(offset + n, uuid) for n, uuid in enumerate(uuids)]
        table.commit({"t": offset + len(uuids)}, rows, landed_at=seconds * 1000)
        offset += len(uuids)
        found.append(Commit(number, {}, {}, seconds * 1000, watermark, tuple(table.files[before:])))
        watermark = max(watermark, seconds * 1000 - 600_000)
    return found


def test_survivors_are_found_in_memory_and_in_files_alike(table: HandWritten) -> None:
    commits = commits_of(table, (1000, ["a", "b"]), (1001, ["c"]))
    for room in (0, 1 << 20):
        landed = LandedUuids(table.layout.landed, 600.0, room)
        for commit in commits:
            landed.remember(commit, read_rows(table.layout.landed, commit.files))
        assert landed.find({"t": {"a", "c", "x"}, "other": {"b"}}) == {"t": {"a", "c"}, "other": set()}


def test_a_uuid_counts_as_long_as_spark_remembers_it_and_no_longer(table: HandWritten) -> None:
    """The watermark of batch 2 is 600 s before batch 1: past the 600 s of "old" only where batch 1 is late enough."""
    for second, remembered in ((2199, True), (2201, False)):
        commits = commits_of(table, (1000, ["old"]), (second, ["x"]), (second + 1, ["y"]), (second + 2, ["z"]))
        landed = LandedUuids(table.layout.landed, 600.0)
        for commit in commits:
            landed.remember(commit)
        assert landed.find({"t": {"old"}}) == {"t": {"old"} if remembered else set()}


def test_the_columns_of_the_evidence_are_as_declared(table: HandWritten) -> None:
    table.commit({"t": 1}, [landed_event(0, "u")])
    rows = read_rows(table.layout.landed, table.files)
    assert rows.schema.field("bucket").type == pa.int64()
    assert rows["bucket"].to_pylist() == [BUCKET]
