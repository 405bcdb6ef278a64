"""The documented SQL names the one row that was altered, in any column, if the sums have whole rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import CommitProperties, Transaction
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.landing import row_hashes
from penstock.landing.requests.backfill_requests import write_request
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.row_hashes import HASHED_COLUMNS, TIME_WEIGHTS
from penstock.landing.row_sums import ROW_SUMS, SLICE_OFFSETS
from penstock.landing.table.delta_table import OWN_COMMIT_MARK
from penstock.landing.table.table_reader import APPLICATION, DELETIONS_APPLICATION
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.proof import proofs_table
from penstock.proof.rollup import roll_up
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from tests.proof.proof_sql import differences
from tests.proof.test_proofs_table import WINDOW, land, prove, rows_of
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
EMPTY: dict[str, Any] = dict.fromkeys(HASHED_COLUMNS)
FULL: dict[str, Any] = {
    **{name: f"{name} \u00e9" for name in HASHED_COLUMNS if name not in TIME_WEIGHTS},
    "payload": b"\xff\x00{}",
    "key": b"",
    "annotations": [("a", "1"), ("b", "")],
    "received": AT,
    "event_time": datetime(1, 1, 1, tzinfo=UTC),
}
OFFSETS = (0, 1, 2, SLICE_OFFSETS - 1, SLICE_OFFSETS, 3 * SLICE_OFFSETS + 5)


@pytest.fixture
def hashed(topics: Path, tmp_path: Path) -> HandWritten:
    return HandWritten(Layout.for_tables(tmp_path / "tables"), hashed=True)


@pytest.fixture(scope="module")
def proved() -> Iterator[Path]:
    """The folder of tables with rows of all columns, of empty ones, and of a partition of Kafka."""
    with TemporaryDirectory() as folder:
        table = HandWritten(Layout.for_tables(Path(folder) / "tables"), hashed=True)
        columns = [(FULL if n % 2 else EMPTY) | TIMES | {"uuid": f"u{n}"} for n in OFFSETS]
        rows = [
            {"topic": "k", "partition": 0, "offset": n, "kind": "event"} | row
            for n, row in zip(OFFSETS, columns, strict=True)
        ]
        rows += [landed_message(n, "k", partition=1, **FULL | TIMES) for n in OFFSETS]
        table.commit({"k/0": OFFSETS[-1] + 1, "k/1": OFFSETS[-1] + 1}, rows)
        (Path(folder) / "topics").mkdir()
        prove(Path(folder) / "topics", table)
        assert all(row["row_hashes"] is not None for row in rows_of(table.layout))
        assert differences(table.layout) == []
        yield Path(folder)


TIMES = {"bucket": AT.timestamp() // 60 * 60, "timestamp": AT.timestamp()}
TEXT = st.none() | st.text(max_size=80)
MOMENT = st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(HASHED_COLUMNS, TEXT),
    **dict.fromkeys(("payload", "key"), st.none() | st.binary(max_size=80)),
    **dict.fromkeys(TIME_WEIGHTS, MOMENT),
    "annotations": st.none()
    | st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9), max_size=3).map(lambda m: [*m.items()]),
}


def files_of(layout: Layout) -> list[Path]:
    return [Path(str(layout.landed)) / name for name in deltalake.DeltaTable(str(layout.landed)).file_uris()]


def alter(layout: Layout, kind: str, offset: int, changes: dict[str, Any], *, times: int = 1) -> bool:
    """Change columns of a row, or have it ``times`` times; return whether that changed the file."""
    for path in files_of(layout):
        rows = pq.read_table(path, partitioning=None).to_pylist()
        before = [dict(row) for row in rows]
        if f"kind={kind}" not in str(path) or offset not in [row["offset"] for row in rows]:
            continue
        changed = []
        for row in rows:
            is_it = row["offset"] == offset
            changed += [row | changes if is_it else row] * (times if is_it else 1)
        pq.write_table(pa.Table.from_pylist(changed, schema=FILE_SCHEMA), path)
        return changed != before
    return False


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_column_of_any_row_that_was_altered_is_named(proved: Path, data: st.DataObject) -> None:
    column, offset = data.draw(st.sampled_from(HASHED_COLUMNS)), data.draw(st.sampled_from(OFFSETS))
    kind, value = data.draw(st.sampled_from(("event", "message"))), data.draw(VALUES[column])
    with TemporaryDirectory() as folder:
        layout = copy_of(proved, Path(folder))
        before = value_of(layout, kind, offset, column)
        # Times count to the millisecond.
        if isinstance(value, datetime) and isinstance(before, datetime):
            assume(abs(value - before) >= timedelta(milliseconds=1))
        # A null map counts as an empty one.
        assume(value != before and (value or before or column != "annotations"))
        alter(layout, kind, offset, {column: value})
        (difference,) = differences(layout)
        assert (difference["topic"], difference["partition"]) == ("k", int(kind == "message"))
        assert (difference["slice"], difference["offset"]) == (offset // SLICE_OFFSETS, offset)


def copy_of(proved: Path, folder: Path) -> Layout:
    shutil.copytree(proved / "tables", folder / "tables")
    return Layout.for_tables(folder / "tables")


def value_of(layout: Layout, kind: str, offset: int, column: str) -> Any:
    dataset = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table(filters=[("kind", "=", kind)])
    return next(row[column] for row in dataset.to_pylist() if row["offset"] == offset)


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("offset", OFFSETS)
def test_row_that_was_removed_or_is_there_twice_is_named(proved: Path, tmp_path: Path, offset: int, times: int) -> None:
    layout = copy_of(proved, tmp_path)
    alter(layout, "message", offset, {}, times=times)
    (difference,) = differences(layout)
    assert (difference["partition"], difference["offset"], difference["rows"]) == (1, offset, times - 1)


def test_rows_that_are_too_large_to_be_joined_at_once_have_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"data": "x" * n, "payload": b"y" * n, "timestamp": AT, "annotations": [("n", str(n))]} for n in range(40)],
        schema=FILE_SCHEMA,
    )
    expected = row_hashes.row_hashes(rows, "event", "2026-01-31").tolist()
    monkeypatch.setattr(row_hashes, "MAX_JOINED_BYTES", 200)
    assert row_hashes.row_hashes(rows, "event", "2026-01-31").tolist() == expected
    assert len({*expected}) == 40


def test_two_altered_rows_of_a_slice_are_found_and_not_named(proved: Path, tmp_path: Path) -> None:
    layout = copy_of(proved, tmp_path)
    for offset in (1, 2, SLICE_OFFSETS):
        alter(layout, "event", offset, {"data": "{}"})
    assert [(row["slice"], row["offset"]) for row in differences(layout)] == [(0, None), (1, SLICE_OFFSETS)]


def test_row_in_another_folder_is_named(proved: Path, tmp_path: Path) -> None:
    layout = copy_of(proved, tmp_path)
    (path,) = [path for path in files_of(layout) if "kind=message" in str(path)]
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.slice(1), path)
    extra = rows.slice(0, 1).to_pylist()[0] | {"kind": "syslog", "date": AT.date()}
    schema = deltalake.DeltaTable(str(layout.landed)).schema().to_arrow()
    deltalake.write_deltalake(
        str(layout.landed), pa.Table.from_pylist([extra], schema=pa.schema(schema)), mode="append"
    )
    (difference,) = differences(layout)
    assert (difference["messages"], difference["syslog"], difference["offset"]) == (-1, 1, 0)


def test_upkeep_keeps_the_sums_of_rows(topics: Path, hashed: HandWritten, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs_table, "ROLL_AT_FILES", 3)
    layout = hashed.layout
    for batch in range(6):
        land(topics, hashed, range(batch, batch + 1))
        prove(topics, hashed)
    compact_table(layout.landed)
    request_deletion(layout, REQUESTED, parse_conditions("uuid in ('u0', 'u11')"))
    request_deletion(layout, "retention", parse_conditions("kind = 'message'"))
    execute_deletions(layout, WINDOW)
    deltalake.DeltaTable(str(layout.landed)).delete("uuid = 'u5'")
    note_foreign_changes(layout)
    execute_deletions(layout, WINDOW)
    roll_up(layout, 3, lambda: None)
    for is_lost in (False, True):
        if is_lost:
            shutil.rmtree(Path(str(layout.proof_table)))
        prove(topics, hashed)
        assert differences(layout) == []
        assert {row["fate"] for row in rows_of(layout)} >= {"landed", "deleted.asked", "deleted.foreign"}
        assert all(row["row_hashes"] is not None for row in rows_of(layout))
    assert alter(layout, "event", 16, {"data": "altered"})
    assert [row["offset"] for row in differences(layout)] == [16]


def test_backfilled_rows_have_sums(topics: Path, hashed: HandWritten) -> None:
    land(topics, hashed, range(2))
    prove(topics, hashed)
    append(topics, "b", [event(n) for n in range(6)])
    request = write_request(hashed.layout.backfills, "b", [(1, 4)])
    hashed.commit(
        {"t": 10, f"b@{request.number}": 3}, [landed_event(n, f"u{n}", "b", data=f'{{"n":{n}}}') for n in (1, 2, 3)]
    )
    prove(topics, hashed)
    assert differences(hashed.layout) == []
    assert {row["fate"]: row["row_hashes"] is not None for row in rows_of(hashed.layout)} == {
        "landed": True,
        "backfilled": True,
    }
    alter(hashed.layout, "event", 2, {"data": "{}"})
    assert {(row["topic"], row["offset"]) for row in differences(hashed.layout)} >= {("b", 2)}


def test_slice_with_rows_that_are_not_hashed_is_compared_by_keys(topics: Path, hashed: HandWritten) -> None:
    hashed.hashed = False
    land(topics, hashed, range(2))
    prove(topics, hashed)
    hashed.hashed = True
    land(topics, hashed, range(2, 4))
    prove(topics, hashed)
    assert differences(hashed.layout) == []
    alter(hashed.layout, "event", 1, {"host": "altered"})
    assert differences(hashed.layout) == []
    alter(hashed.layout, "event", 1, {"uuid": "altered"})
    assert [(row["offset"], row["row_hashes"]) for row in differences(hashed.layout)] == [(None, None)]
    alter(hashed.layout, "event", 1, {"uuid": "u1"}, times=0)
    (difference,) = differences(hashed.layout)
    assert (difference["offset"], difference["rows"]) == (1, -1)


def test_table_of_an_earlier_version_gets_the_columns(topics: Path, hashed: HandWritten) -> None:
    hashed.hashed = False
    land(topics, hashed, range(1))
    prove(topics, hashed)
    folder = str(hashed.layout.proof_table)
    proofs = deltalake.DeltaTable(folder)
    # Earlier tables have their rows, and no such columns.
    rows = proofs.to_pyarrow_table().drop_columns([*ROW_SUMS])
    newest = {name: proofs.transaction_version(name) for name in (APPLICATION, DELETIONS_APPLICATION)}
    shutil.rmtree(folder)
    transactions = [Transaction(name, version) for name, version in newest.items() if version is not None]
    properties = CommitProperties(app_transactions=transactions, custom_metadata=OWN_COMMIT_MARK)
    deltalake.write_deltalake(folder, rows, commit_properties=properties)
    hashed.hashed = True
    land(topics, hashed, range(1, 2))
    prove(topics, hashed)
    assert differences(hashed.layout) == []
    assert [row["row_hashes"] is None for row in rows_of(hashed.layout)] == [False, True]
    alter(hashed.layout, "message", 9, {}, times=0)
    assert [(row["rows"], row["offset"]) for row in differences(hashed.layout)] == [(-1, 9)]
