"""A file of the table, and what is known of it."""

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
from penstock.landing.writing.written_file import ASIDE, KEPT, STATISTICS, FileWriter, WrittenFile, copy_without_rows

ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
DAY = date(2026, 2, 3)
AT = datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
Row = dict[str, Any]


def batch(rows: list[Row]) -> pa.RecordBatch:
    base = {"topic": "t", "timestamp": AT, "landed_at": AT, "bucket": AT, "type": "a", "uuid": "u"}
    return pa.RecordBatch.from_pylist([{**base, "offset": n, **row} for n, row in enumerate(rows)], schema=FILE_SCHEMA)


def written(table: Path, *groups: list[Row], kind: MessageKind = MessageKind.EVENT, role: str = KEPT) -> WrittenFile:
    writer = FileWriter(table, kind, DAY, role)
    for group in groups:
        rows = batch(group)
        writer.write(rows, EventsSeen.of(rows) if kind is MessageKind.EVENT else None)
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


def before_or_at(low: Any, value: Any) -> bool:
    """As readers compare: texts by their bytes, times as they are told."""
    if isinstance(value, datetime):
        shown = datetime.fromisoformat(low)
        return shown <= value
    return low.encode() <= value.encode() if isinstance(value, str) else bool(low <= value)


@ANY_PATH
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_the_bounds_that_readers_are_told_hold_for_every_row(tmp_path: Path, groups: list[list[Row]]) -> None:
    file = written(tmp_path, *groups, kind=MessageKind.MESSAGE)
    told, rows = json.loads(file.statistics), rows_of(tmp_path, file)
    assert told["numRecords"] == file.rows == len(rows) == sum(map(len, groups))
    for name in STATISTICS:
        values = [row[name] for row in rows]
        known = [value for value in values if value is not None]
        assert told["nullCount"][name] == len(values) - len(known)
        assert (name in told["minValues"]) == (name in told["maxValues"]) == bool(known)
        for value in known:
            assert before_or_at(told["minValues"][name], value)
            most = told["maxValues"][name]
            assert (
                before_or_at(value.isoformat(), datetime.fromisoformat(most))
                if isinstance(value, datetime)
                else (before_or_at(value, most))
            )


def test_times_are_told_to_the_millisecond_and_lie_inside(tmp_path: Path) -> None:
    told = json.loads(written(tmp_path, [{}]).statistics)
    assert (told["minValues"]["timestamp"], told["maxValues"]["timestamp"]) == (
        "2026-02-03T04:05:06.789Z",
        "2026-02-03T04:05:06.790Z",
    )


@pytest.mark.parametrize("kind", MessageKind)
def test_a_file_lies_where_its_kind_and_day_say_and_holds_what_was_written(tmp_path: Path, kind: MessageKind) -> None:
    file = written(tmp_path, [{}, {}], [{"offset": 5}], kind=kind)
    assert file.name.startswith(f"kind={kind}/date=2026-02-03/")
    assert (file.kind, file.date, file.rows, file.role) == (kind.value, "2026-02-03", 3, KEPT)
    assert file.size == (tmp_path / file.name).stat().st_size
    assert offsets(tmp_path, file) == [0, 1, 5]
    assert pq.read_schema(tmp_path / file.name).names == FILE_SCHEMA.names


@ANY_PATH
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), min_size=1, max_size=3))
def test_events_lie_together_by_type_and_what_is_known_of_them_is_in_the_same_order(
    tmp_path: Path, groups: list[list[str]]
) -> None:
    numbered = [[{"type": kind, "offset": 100 * n + m} for m, kind in enumerate(g)] for n, g in enumerate(groups)]
    file = written(tmp_path, *numbered)
    rows = rows_of(tmp_path, file)
    assert file.seen is not None
    assert file.seen.offset.tolist() == [row["offset"] for row in rows]
    at = 0
    for group in groups:
        kinds = [row["type"] for row in rows[at : at + len(group)]]
        assert sum(a != b for a, b in pairwise(kinds)) == len({*group}) - 1
        at += len(group)


@ANY_PATH
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=40), st.integers(1, 9))
def test_without_some_of_its_rows_a_file_keeps_the_others_in_their_order(
    tmp_path: Path, rows: list[tuple[str, bool]], group: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written_file, "ROW_GROUP", group)
        numbered = [{"type": kind, "offset": n, "uuid": f"u{n}", "payload": b"x"} for n, (kind, _) in enumerate(rows)]
        old = written(tmp_path, numbered, role=ASIDE)
        before = rows_of(tmp_path, old)
        dropped = np.array([rows[row["offset"]][1] for row in before])
        new = copy_without_rows(tmp_path, old, dropped)
    assert rows_of(tmp_path, old) == before
    left = [row for row, gone in zip(before, dropped.tolist(), strict=True) if not gone]
    if not left:
        assert new is None
        return
    assert new is not None
    assert sorted(rows_of(tmp_path, new), key=lambda row: row["offset"]) == sorted(left, key=lambda row: row["offset"])
    assert new.seen is not None
    assert new.seen.offset.tolist() == offsets(tmp_path, new)
    assert (new.rows, new.role, new.kind, new.date) == (len(left), KEPT, old.kind, old.date)
    by_type = [[row["offset"] for row in left if row["type"] == kind] for kind in "abc"]
    assert [[o for o in offsets(tmp_path, new) if rows[o][0] == kind] for kind in "abc"] == by_type


def test_two_files_never_have_one_name(tmp_path: Path) -> None:
    assert len({written(tmp_path, [{}]).name for _ in range(20)}) == 20


def test_times_at_the_edges_are_bounded(tmp_path: Path) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    first = datetime(1, 1, 1, tzinfo=UTC)
    told = json.loads(written(tmp_path, [{"event_time": first}, {"event_time": last}]).statistics)
    assert told["minValues"]["event_time"] == "0001-01-01T00:00:00.000Z"
    assert told["maxValues"]["event_time"] == "9999-12-31T23:59:59.999Z"
    assert last - first > timedelta(days=3_000_000)
