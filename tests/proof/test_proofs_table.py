"""The table of proofs: complete after any crash, and its SQL finds each altered row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.row_sums import SLICE_OFFSETS
from penstock.landing.table_paths import Layout
from penstock.proof import proofs_table
from penstock.proof.proofs_table import APPEND_INTERVAL_S, ProofAppender, ProofsTable
from penstock.proof.rollup import roll_up
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from tests.proof.proof_sql import differences, offsets_never_proved
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message

WINDOW = 600_000_000


def land(topics: Path, table: HandWritten, batches: range) -> None:
    """Land batches of five offsets: three events, a duplicate of the first, and a message."""
    for batch in batches:
        first = batch * 5
        numbers = [first, first + 1, first + 2]
        append(topics, "t", [*map(event, numbers), event(first), b"text"])
        rows = [*(landed_event(number, f"u{number}") for number in numbers), landed_message(first + 4)]
        table.commit({"t": first + 5}, rows)


def prove(topics: Path, table: HandWritten) -> ProofWorker:
    worker = ProofWorker(Landing(topics, table.layout.tables), None)
    assert worker.stop(0)
    return worker


@pytest.fixture
def proved(topics: Path, table: HandWritten) -> Layout:
    land(topics, table, range(3))
    prove(topics, table)
    return table.layout


def rows_of(layout: Layout) -> list[dict[str, Any]]:
    return deltalake.DeltaTable(str(layout.proof_table)).to_pyarrow_table().to_pylist()


def test_proofs_have_ranges_counts_and_sums(proved: Layout) -> None:
    (row,) = rows_of(proved)
    assert (row["fate"], row["topic"], row["partition"], row["slice"]) == ("landed", "t", None, 0)
    assert (row["first_offset"], row["end_offset"], row["batch"]) == (0, 15, 2)
    assert row["version"] == deltalake.DeltaTable(str(proved.landed)).version()
    counts = {name: row[name] for name in ("rows", "events", "messages", "duplicates", "missing", "unaccounted")}
    assert counts == {"rows": 12, "events": 9, "messages": 3, "duplicates": 3, "missing": 0, "unaccounted": 0}
    assert differences(proved) == offsets_never_proved(proved) == []


def test_commit_states_batch_ranges_rows_and_sums(proved: Layout) -> None:
    info = json.loads(deltalake.DeltaTable(str(proved.landed)).history(1)[0]["penstock"])
    assert (info["batch"], info["ranges"], info["rows"]) == (2, {"t": [10, 15]}, {"event": 3, "message": 1})
    (sums,) = info["sums"]
    assert (sums["topic"], sums["slice"], sums["offsets"]) == ("t", 0, str(10 + 11 + 12 + 14))


def test_rows_that_are_not_proved_yet_are_not_compared(topics: Path, table: HandWritten, proved: Layout) -> None:
    land(topics, table, range(3, 4))
    assert differences(proved) == []
    prove(topics, table)
    assert sum(row["rows"] for row in rows_of(proved)) == 16
    assert differences(proved) == []


def _change_uuid(rows: pa.Table) -> pa.Table:
    uuids = ["altered" if uuid == "u6" else uuid for uuid in rows["uuid"].to_pylist()]
    return rows.set_column(rows.schema.get_field_index("uuid"), "uuid", pa.array(uuids))


def _change_offset(rows: pa.Table) -> pa.Table:
    offsets = [number + 1000 if number == 6 else number for number in rows["offset"].to_pylist()]
    return rows.set_column(rows.schema.get_field_index("offset"), "offset", pa.array(offsets))


def _remove_row(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.not_equal(rows["offset"], 6))


def _add_row(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


@pytest.mark.parametrize("alter", [_change_uuid, _change_offset, _remove_row, _add_row])
def test_altered_row_is_found(alter: Callable[[pa.Table], pa.Table], proved: Layout) -> None:
    for path in Path(str(proved.landed)).rglob("kind=event/**/*.parquet"):
        rows = pq.read_table(path, partitioning=None)
        if 6 in rows["offset"].to_pylist():
            pq.write_table(alter(rows), path)
    (difference,) = differences(proved)
    assert (difference["topic"], difference["slice"]) == ("t", 0)
    expected = {_change_uuid: 0, _change_offset: 0, _remove_row: -1, _add_row: 1}[alter]
    assert difference["rows"] == difference["events"] == expected
    changed_sums = {name for name in ("offsets", "uuid_hashes") if difference[name]}
    assert changed_sums == {
        _change_uuid: {"uuid_hashes"},
        _change_offset: {"offsets"},
    }.get(alter, {"offsets", "uuid_hashes"})


def test_row_without_uuid_that_delta_rs_removed_or_added_is_found(proved: Layout) -> None:
    table = deltalake.DeltaTable(str(proved.landed))
    extra = table.to_pyarrow_table(filters=[("kind", "=", "message")]).slice(0, 1)
    deltalake.write_deltalake(table, extra, mode="append")
    (difference,) = differences(proved)
    assert (difference["rows"], difference["messages"], difference["uuid_hashes"]) == (1, 1, 0)
    deltalake.DeltaTable(str(proved.landed)).delete("kind = 'message'")
    assert [row["messages"] for row in differences(proved)] == [-3]


def test_merges_deletions_and_retention_keep_the_sql_clean(topics: Path, table: HandWritten, proved: Layout) -> None:
    compact_table(proved.landed)
    assert differences(proved) == []
    request_deletion(proved, REQUESTED, parse_conditions("uuid in ('u0', 'u11')"))
    request_deletion(proved, "retention", parse_conditions("kind = 'message'"))
    execute_deletions(proved, WINDOW)
    assert differences(proved) == offsets_never_proved(proved) == []
    deleted = {row["fate"]: row["rows"] for row in rows_of(proved) if row["rows"] < 0}
    assert deleted == {"deleted.asked": -2, "deleted.retention": -3}
    land(topics, table, range(3, 5))
    prove(topics, table)
    assert differences(proved) == []


def test_rows_that_another_program_deleted_are_accounted_for(proved: Layout) -> None:
    note_foreign_changes(proved)
    deltalake.DeltaTable(str(proved.landed)).delete("uuid = 'u1'")
    assert [row["events"] for row in differences(proved)] == [-1]
    note_foreign_changes(proved)
    execute_deletions(proved, WINDOW)
    assert differences(proved) == []


def test_slices_of_a_large_range_have_rows_of_their_own(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"x"] * (2 * SLICE_OFFSETS + 10))
    table.commit({"t": 5}, [landed_message(number) for number in range(5)])
    end = 2 * SLICE_OFFSETS + 10
    table.commit({"t": end}, [landed_message(number) for number in range(5, end)])
    prove(topics, table)
    spans = [(row["slice"], row["first_offset"], row["end_offset"], row["rows"]) for row in rows_of(table.layout)]
    whole = SLICE_OFFSETS
    assert sorted(spans) == [(0, 0, whole, whole), (1, whole, 2 * whole, whole), (2, 2 * whole, end, 10)]
    assert differences(table.layout) == offsets_never_proved(table.layout) == []


def test_unaccounted_offsets_are_found(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"a", b"b", b"c"])
    table.commit({"t": 3}, [landed_message(0), landed_message(2)])
    prove(topics, table)
    assert differences(table.layout) == []
    assert [(row["never_proved"], row["unaccounted"]) for row in offsets_never_proved(table.layout)] == [(0, 1)]


def test_appends_are_a_minute_apart_but_for_deletions(topics: Path, table: HandWritten, proved: Layout) -> None:
    now = 0.0
    appender = ProofAppender(proved, lambda: now)
    land(topics, table, range(3, 4))
    appender.step()
    version = ProofsTable(proved).version()
    worker = ProofWorker(Landing(topics, table.layout.tables), None)
    worker.enter()
    worker._prove()
    now = APPEND_INTERVAL_S - 1
    appender.step()
    assert ProofsTable(proved).version() == version
    now = APPEND_INTERVAL_S
    appender.step()
    appender.step(now=True)
    assert (ProofsTable(proved).version(), appender.batch) == (version + 1, 3)


def test_files_are_merged_and_nothing_changes(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs_table, "ROLL_AT_FILES", 3)
    for batch in range(8):
        land(topics, table, range(batch, batch + 1))
        prove(topics, table)
        assert len(ProofsTable(table.layout).active()) <= 3
        assert differences(table.layout) == offsets_never_proved(table.layout) == []
    assert len(rows_of(table.layout)) <= 3


def test_lost_or_restored_table_is_completed_from_rolled_up_proofs(
    topics: Path, table: HandWritten, tmp_path: Path
) -> None:
    land(topics, table, range(2))
    prove(topics, table)
    folder = Path(str(table.layout.proof_table))
    shutil.copytree(folder, tmp_path / "backup")
    land(topics, table, range(2, 6))
    prove(topics, table)
    roll_up(table.layout, 4, lambda: None)
    for backup in (None, tmp_path / "backup"):
        shutil.rmtree(folder)
        if backup is not None:
            shutil.copytree(backup, folder)
        prove(topics, table)
        assert differences(table.layout) == offsets_never_proved(table.layout) == []
        assert sum(row["rows"] for row in rows_of(table.layout)) == 24


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("operation", ["RESTORE", "DELETE", "WRITE"])
def test_table_that_another_program_changed_is_written_again(
    topics: Path, table: HandWritten, proved: Layout, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    proofs = deltalake.DeltaTable(str(proved.proof_table))
    version, rows = proofs.version(), proofs.to_pyarrow_table()
    request_deletion(proved, REQUESTED, parse_conditions("uuid = 'u1'"))
    execute_deletions(proved, WINDOW)
    land(topics, table, range(3, 5))
    prove(topics, table)
    if operation == "RESTORE":
        deltalake.DeltaTable(str(proved.proof_table)).restore(version)
    elif operation == "DELETE":
        deltalake.DeltaTable(str(proved.proof_table)).delete("slice = 0")
    else:
        deltalake.write_deltalake(str(proved.proof_table), rows, mode="append")
    assert differences(proved) != [] or rows_of(proved) == []
    ProofAppender(proved).step(now=True)
    assert differences(proved) == []
    assert sum(row["rows"] for row in rows_of(proved)) == 5 * 4 - 1
    assert f"is {operation} of" in caplog.text
    newest = deltalake.DeltaTable(str(proved.proof_table)).version()
    ProofAppender(proved).step(now=True)
    assert deltalake.DeltaTable(str(proved.proof_table)).version() == newest
