"""Files of the table, with their statistics and events."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.event_rules import MessageKind
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing import written_file
from penstock.landing.writing.written_file import STATISTICS, FileRole, FileWriter, WrittenFile, copy_without_rows

ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
DAY = date(2026, 2, 3)
AT = datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
Row = dict[str, Any]


def batch(rows: list[Row]) -> pa.RecordBatch:
    base = {"topic": "t", "timestamp": AT, "landed_at": AT, "bucket": AT, "type": "a", "uuid": "u"}
    return pa.RecordBatch.from_pylist([{**base, "offset": n, **row} for n, row in enumerate(rows)], schema=FILE_SCHEMA)


def write_file(
    table: Path, *groups: list[Row], kind: MessageKind = MessageKind.EVENT, role: FileRole = FileRole.NORMAL
) -> WrittenFile:
    writer = FileWriter(table, kind, DAY, role)
    for group in groups:
        rows = batch(group)
        writer.write(rows, EventsSeen.from_rows(rows) if kind is MessageKind.EVENT else None)
    return writer.close()


def rows_of(table: Path, file: WrittenFile) -> list[Row]:
    return pq.read_table(table / file.name, partitioning=None).to_pylist()


def offsets(table: Path, file: WrittenFile) -> list[int]:
    return [row["offset"] for row in rows_of(table, file)]


TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_000)).map(
    lambda time: time.replace(tzinfo=UTC)
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["t", "é", "\U0001f600", "z"]),
            "offset": st.integers(0, 2**63 - 1),
            "timestamp": TIMES,
            "type": st.none() | st.text(max_size=5),
            "event_time": st.none() | TIMES,
        }
    ),
    min_size=1,
    max_size=6,
)


def is_at_most(low: Any, value: Any) -> bool:
    """Compare as readers do: texts by their bytes, times as written."""
    if isinstance(value, datetime):
        parsed = datetime.fromisoformat(low)
        return parsed <= value
    return low.encode() <= value.encode() if isinstance(value, str) else bool(low <= value)


@ANY_PATH
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_bounds_hold_for_every_row(tmp_path: Path, groups: list[list[Row]]) -> None:
    file = write_file(tmp_path, *groups, kind=MessageKind.MESSAGE)
    statistics, rows = json.loads(file.statistics), rows_of(tmp_path, file)
    assert statistics["numRecords"] == file.rows == len(rows) == sum(map(len, groups))
    for name in STATISTICS:
        values = [row[name] for row in rows]
        non_null = [value for value in values if value is not None]
        assert statistics["nullCount"][name] == len(values) - len(non_null)
        assert (name in statistics["minValues"]) == (name in statistics["maxValues"]) == bool(non_null)
        for value in non_null:
            assert is_at_most(statistics["minValues"][name], value)
            largest = statistics["maxValues"][name]
            assert (
                is_at_most(value.isoformat(), datetime.fromisoformat(largest))
                if isinstance(value, datetime)
                else (is_at_most(value, largest))
            )


def test_bounds_of_times_are_rounded_outwards(tmp_path: Path) -> None:
    statistics = json.loads(write_file(tmp_path, [{}]).statistics)
    assert (statistics["minValues"]["timestamp"], statistics["maxValues"]["timestamp"]) == (
        "2026-02-03T04:05:06.789Z",
        "2026-02-03T04:05:06.790Z",
    )


@pytest.mark.parametrize("kind", MessageKind)
def test_file_is_in_the_folder_of_its_kind_and_day(tmp_path: Path, kind: MessageKind) -> None:
    file = write_file(tmp_path, [{}, {}], [{"offset": 5}], kind=kind)
    assert file.name.startswith(f"kind={kind}/date=2026-02-03/")
    assert (file.kind, file.date, file.rows, file.role) == (kind.value, "2026-02-03", 3, FileRole.NORMAL)
    assert file.size == (tmp_path / file.name).stat().st_size
    assert offsets(tmp_path, file) == [0, 1, 5]
    assert pq.read_schema(tmp_path / file.name).names == FILE_SCHEMA.names


@ANY_PATH
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), min_size=1, max_size=3))
def test_rows_and_events_are_sorted_by_type(tmp_path: Path, groups: list[list[str]]) -> None:
    numbered = [[{"type": kind, "offset": 100 * n + m} for m, kind in enumerate(g)] for n, g in enumerate(groups)]
    file = write_file(tmp_path, *numbered)
    rows = rows_of(tmp_path, file)
    assert file.seen is not None
    assert file.seen.offset.tolist() == [row["offset"] for row in rows]
    start = 0
    for group in groups:
        kinds = [row["type"] for row in rows[start : start + len(group)]]
        assert sum(a != b for a, b in pairwise(kinds)) == len({*group}) - 1
        start += len(group)


@ANY_PATH
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=40), st.integers(1, 9))
def test_copy_without_rows_keeps_the_order(tmp_path: Path, rows: list[tuple[str, bool]], group: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written_file, "ROW_GROUP", group)
        numbered = [{"type": kind, "offset": n, "uuid": f"u{n}", "payload": b"x"} for n, (kind, _) in enumerate(rows)]
        old = write_file(tmp_path, numbered, role=FileRole.SEPARATE)
        before = rows_of(tmp_path, old)
        dropped = np.array([rows[row["offset"]][1] for row in before])
        new = copy_without_rows(tmp_path, old, dropped)
    assert rows_of(tmp_path, old) == before
    remaining = [row for row, is_dropped in zip(before, dropped.tolist(), strict=True) if not is_dropped]
    if not remaining:
        assert new is None
        return
    assert new is not None
    assert sorted(rows_of(tmp_path, new), key=lambda row: row["offset"]) == sorted(
        remaining, key=lambda row: row["offset"]
    )
    assert new.seen is not None
    assert new.seen.offset.tolist() == offsets(tmp_path, new)
    assert (new.rows, new.role, new.kind, new.date) == (len(remaining), FileRole.NORMAL, old.kind, old.date)
    by_type = [[row["offset"] for row in remaining if row["type"] == kind] for kind in "abc"]
    assert [[o for o in offsets(tmp_path, new) if rows[o][0] == kind] for kind in "abc"] == by_type


def test_names_of_files_are_unique(tmp_path: Path) -> None:
    assert len({write_file(tmp_path, [{}]).name for _ in range(20)}) == 20


def test_times_at_the_edges_are_bounded(tmp_path: Path) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    first = datetime(1, 1, 1, tzinfo=UTC)
    statistics = json.loads(write_file(tmp_path, [{"event_time": first}, {"event_time": last}]).statistics)
    assert statistics["minValues"]["event_time"] == "0001-01-01T00:00:00.000Z"
    assert statistics["maxValues"]["event_time"] == "9999-12-31T23:59:59.999Z"
    assert last - first > timedelta(days=3_000_000)
