"""Rows that other programs deleted have a fate of their own, in the running balance and in the rebuilt one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.landing.journal import Journal
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import (
    FOREIGN,
    REQUESTED,
    DeletionRecord,
    load_deletions,
    pending_deletions,
    request_deletion,
)
from penstock.landing.table.features import FeatureNotWritten
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.proof.commit_faults import current_complaints
from penstock.proof.commit_notes import noted_complaints
from penstock.upkeep.backfill_planner import BackfillPlanner
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.maintenance import Maintenance, Upkeep
from penstock.upkeep.repair.unreadable_files import unreadable_files
from penstock.upkeep.trace.tracer import Tracer
from tests.landing.table.foreign_writer import (
    ENGINE,
    add_without_vector,
    commit,
    delete_by_vector,
    latest_add,
    optimize_rows,
    optimize_without_vector,
    restore,
)
from tests.proof.proof_sql import differences
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message
from tests.upkeep.deletion.test_removal import believed, fates, ledger_sums, rebuilt_sums, worker

WINDOW = 600_000_000


@pytest.fixture
def table(tmp_path: Path, topics: Path) -> HandWritten:
    """Two batches: events u0 to u4 and a message."""
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    append(topics, "t", [event(0), event(1), event(2), b"text"], [event(3), event(4)])
    table.commit({"t": 4}, [*(landed_event(n, f"u{n}", host="x") for n in range(3)), landed_message(3)])
    table.commit({"t": 6}, [landed_event(n, f"u{n - 1}", host="y") for n in (4, 5)])
    return table


def file_of(layout: Layout, host: str) -> str:
    """Return the file with the events of a host."""
    names = [name for name in table_of(layout).active() if name.startswith("kind=event")]
    return next(n for n in names if pq.read_table(layout.tables / "landed" / n)["host"][0].as_py() == host)


def maintain(proof_worker: object, table: HandWritten) -> None:
    Maintenance(table.layout, Upkeep(window=WINDOW), believed(table.layout)).step()
    assert proof_worker.step()  # type: ignore[attr-defined]


BEFORE = {"landed.event": 5, "landed.message": 1}
AFTER = {"landed.event": 3, "landed.message": 1, "deleted.foreign": 2}


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_next_balance_counts_rows_deleted_by_another_program(
    tmp_path: Path, topics: Path, table: HandWritten, caplog: pytest.LogCaptureFixture
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        assert fates(running) == BEFORE
        name = file_of(table.layout, "x")
        version = delete_by_vector(landed, name, [1])
        delete_by_vector(landed, name, [1, 2])
        maintain(proof_worker, table)
        assert fates(running) == AFTER
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        first, second = load_deletions(table.layout)
        assert (first.why, first.version, first.engine, first.operation) == (FOREIGN, version, ENGINE, "DELETE")
        assert second.version == version + 1
        assert f"version {version} is DELETE of {ENGINE}: it deleted 1 rows" in caplog.text
        compact_table(table.layout.landed)
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u3'"))
        maintain(proof_worker, table)
        assert fates(running) == {**AFTER, "landed.event": 2, "deleted.asked": 1}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert len(load_deletions(table.layout)) == 3, "our own commits are not another program's"


def test_rebuilt_balance_counts_foreign_deletions_without_pipeline(topics: Path, table: HandWritten) -> None:
    worker(topics, table)
    assert rebuilt_sums(topics, table.layout)[0] == BEFORE
    delete_by_vector(table.layout.tables / "landed", file_of(table.layout, "x"), [0, 2])
    assert rebuilt_sums(topics, table.layout)[0] == AFTER
    note_foreign_changes(table.layout)
    assert rebuilt_sums(topics, table.layout)[0] == AFTER, "requested, not executed"
    execute_deletions(table.layout, WINDOW)
    assert rebuilt_sums(topics, table.layout)[0] == AFTER
    assert [deleted_rows.fate for _, deleted_rows in DeletionRecord(table.layout).deleted()] == ["deleted.foreign"]


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_next_balance_counts_rows_that_an_optimize_lost(
    tmp_path: Path, topics: Path, table: HandWritten, caplog: pytest.LogCaptureFixture
) -> None:
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        version = optimize_rows(table.layout.tables / "landed", file_of(table.layout, "x"), [1])
        assert rebuilt_sums(topics, table.layout)[0] == AFTER
        maintain(proof_worker, table)
        assert fates(running) == AFTER
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        (lost,) = load_deletions(table.layout)
        assert (lost.why, lost.version, lost.engine, lost.operation) == (FOREIGN, version, ENGINE, "OPTIMIZE")
        assert (
            f"version {version} is OPTIMIZE of {ENGINE}: it deleted 2 rows and says that it changed none" in caplog.text
        )
        maintain(proof_worker, table)
        assert fates(running) == AFTER
        assert current_complaints(table.layout, is_exact=True) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize(("rows", "is_removed", "twice"), [([0, 1, 1, 2], True, 1), ([0, 1, 2], False, 3)])
def test_balance_names_optimize_that_repeats_rows(
    tmp_path: Path, topics: Path, table: HandWritten, rows: list[int], is_removed: bool, twice: int
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        name = file_of(table.layout, "x")
        version = optimize_rows(landed, name, rows, is_removed)
        copy = name.replace(".parquet", "-optimized.parquet")
        text = f"version {version}, OPTIMIZE of {ENGINE}, added {copy}: {twice} rows are in the table twice"
        assert [c.text for c in current_complaints(table.layout, is_exact=False)] == [f"{landed}: {text}"]
        note_foreign_changes(table.layout)
        maintain(worker(topics, table, running), table)
        (event,) = [event for event in running.ledger.events() if event.kind == "foreign"]
        assert event.cause == f"{landed}: {text}"
        assert fates(running) == BEFORE
        assert not load_deletions(table.layout)
        assert [c.text for c in current_complaints(table.layout, is_exact=False)] == [event.cause]
        compact_table(table.layout.landed)
        assert [c.text for c in current_complaints(table.layout, is_exact=False)] == [event.cause]


@pytest.mark.parametrize(("rows", "is_removed"), [([0, 1, 1, 2], True), ([0, 1, 2], False)])
def test_requested_deletion_removes_all_copies_of_a_row_and_counts_it_once(
    tmp_path: Path, topics: Path, table: HandWritten, rows: list[int], is_removed: bool
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        optimize_rows(landed, file_of(table.layout, "x"), rows, is_removed)
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid in ('u0', 'u1', 'u2')"))
        maintain(proof_worker, table)
        uuids = deltalake.DeltaTable(str(landed)).to_pyarrow_table()["uuid"].drop_null()
        assert sorted(uuids.to_pylist()) == ["u3", "u4"]
        assert fates(running) == {**BEFORE, "landed.event": 2, "deleted.asked": 3}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert current_complaints(table.layout, is_exact=False) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("is_noted", [False, True])
def test_undo_of_a_commit_that_repeated_rows_is_no_deletion(
    tmp_path: Path, topics: Path, table: HandWritten, is_noted: bool
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        version = table_of(table.layout).version()
        optimize_rows(landed, file_of(table.layout, "x"), [0, 1, 2], is_removed=False)
        if is_noted:
            maintain(proof_worker, table)
        deltalake.DeltaTable(str(landed)).restore(version)
        assert rebuilt_sums(topics, table.layout)[0] == BEFORE
        maintain(proof_worker, table)
        assert fates(running) == BEFORE
        assert not load_deletions(table.layout)
        assert current_complaints(table.layout, is_exact=False) == []


@pytest.mark.parametrize("columns", [[], ["uuid"]])
def test_optimize_of_all_rows_is_no_deletion_also_if_its_file_is_damaged(
    topics: Path, table: HandWritten, columns: list[str]
) -> None:
    landed = table.layout.tables / "landed"
    worker(topics, table)
    note_foreign_changes(table.layout)
    delete_by_vector(landed, file_of(table.layout, "x"), [1])
    optimize = deltalake.DeltaTable(str(landed)).optimize
    metrics = optimize.z_order(columns) if columns else optimize.compact()
    assert metrics["numFilesAdded"] > 0
    # Only the log says here how many rows the file has: a file that cannot be read is not a deletion.
    (landed / file_of(table.layout, "x")).write_bytes(b"")
    assert note_foreign_changes(table.layout) == 1
    assert [deletion.operation for deletion in load_deletions(table.layout)] == ["DELETE"]
    assert complaints_at(table) == []


def test_rows_in_other_files_are_not_deleted(
    topics: Path, table: HandWritten, caplog: pytest.LogCaptureFixture
) -> None:
    landed = table.layout.tables / "landed"
    worker(topics, table)
    note_foreign_changes(table.layout)
    name = file_of(table.layout, "x")
    copy = name.replace(".parquet", "-copy.parquet")
    (landed / copy).write_bytes((landed / name).read_bytes())
    added = latest_add(landed, name)
    removed = {key: added[key] for key in ("path", "partitionValues", "size")}
    removed |= {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}
    commit(landed, [{"remove": removed}, {"add": {**added, "path": copy, "dataChange": True}}], "UPDATE")
    assert note_foreign_changes(table.layout) == 1
    assert "is UPDATE of" in caplog.text
    assert "it deleted 0 rows and changed rows" in caplog.text
    assert not load_deletions(table.layout)
    assert rebuilt_sums(topics, table.layout)[0] == BEFORE


Writer = Callable[[Path, str], int]


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize(
    ("write", "complaint", "fates_rebuilt"),
    [
        (lambda f, n: optimize_without_vector(f, n, [1]), "OPTIMIZE of {}, removed or added {}", {"landed.event": 6}),
        (add_without_vector, "WRITE of {}, removed or added {}", {}),
        (restore, "RESTORE of {}, brought 1 deleted rows back", {"landed.event": 5}),
    ],
)
def test_balance_names_commit_that_repeats_rows_or_brings_deleted_ones_back(
    tmp_path: Path, topics: Path, table: HandWritten, write: Writer, complaint: str, fates_rebuilt: dict[str, int]
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        name = file_of(table.layout, "x")
        delete_by_vector(landed, name, [1])
        maintain(proof_worker, table)
        version = write(landed, name)
        text = f"{landed}: version {version}, " + complaint.format(ENGINE, name)
        assert next(c.text for c in current_complaints(table.layout, is_exact=False)).startswith(text)
        assert note_foreign_changes(table.layout) == int("OPTIMIZE" not in complaint)
        maintain(worker(topics, table, running), table)
        (event,) = [event for event in running.ledger.events() if event.kind == "foreign"]
        assert event.cause.startswith(text)
        assert event.at == 1_770_000_000_000
        maintain(worker(topics, table, running), table)
        assert len([event for event in running.ledger.events() if event.kind == "foreign"]) == 1
        after = {"landed.event": 4, "landed.message": 1, "deleted.foreign": 1}
        assert fates(running) == after
        assert rebuilt_sums(topics, table.layout)[0] == after | fates_rebuilt
        (noted,) = current_complaints(table.layout, is_exact=not fates_rebuilt)
        assert noted.text == event.cause
    # Restored to the state before the commit: nothing to complain about.
    (landed / "_delta_log" / f"{version:020}.json").unlink()
    assert current_complaints(table.layout, is_exact=True) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("is_foreign", [False, True])
@pytest.mark.parametrize(("topic", "offset"), [("t", 6), ("t", 100), ("q", 0)])
def test_deletion_of_a_row_that_another_program_invented_leaves_the_balance(
    tmp_path: Path, topics: Path, table: HandWritten, topic: str, offset: int, is_foreign: bool, is_noted: bool
) -> None:
    landed = str(table.layout.landed)
    append(topics, "t", [event(6)])
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        if is_noted:
            maintain(proof_worker, table)
        rows = deltalake.DeltaTable(landed).to_pyarrow_table().filter(pc.field("uuid") == "u0")
        for name, value in {"topic": topic, "offset": offset, "uuid": "invented"}.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, name, pa.array([value], rows.schema.field(name).type))
        deltalake.write_deltalake(landed, rows, mode="append")
        if is_noted:
            maintain(proof_worker, table)
        if is_foreign:
            deltalake.DeltaTable(landed).delete("uuid = 'invented'")
        else:
            request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'invented'"))
            maintain(proof_worker, table)
        # The offset lands later: the earlier deletion is not of this row.
        table.commit({"t": 7}, [landed_event(6, "u6")])
        after = {**BEFORE, "landed.event": 6}
        maintain(proof_worker, table)
        maintain(proof_worker, table)
        assert "invented" not in deltalake.DeltaTable(landed).to_pyarrow_table()["uuid"].to_pylist()
        assert rebuilt_sums(topics, table.layout)[0] == after
        assert fates(running) == after
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("is_foreign", [False, True])
def test_row_that_was_restored_and_deleted_again_is_counted_once(
    tmp_path: Path, topics: Path, table: HandWritten, is_foreign: bool
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        first_version = table_of(table.layout).version()
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u1'"))
        maintain(proof_worker, table)
        once = {"landed.event": 4, "landed.message": 1, "deleted.asked": 1}
        assert fates(running) == once
        deltalake.DeltaTable(str(landed)).restore(first_version)
        maintain(proof_worker, table)
        (complaint,) = noted_complaints(table.layout)
        assert "brought 1 deleted rows back: rows that Penstock had deleted are deleted again" in complaint.text
        assert current_complaints(table.layout, is_exact=False) == []
        if is_foreign:
            # Restored and deleted again before Penstock looks.
            deltalake.DeltaTable(str(landed)).restore(first_version)
            deltalake.DeltaTable(str(landed)).delete("uuid = 'u1'")
        request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
        maintain(proof_worker, table)
        assert fates(running) == {"landed.event": 2, "landed.message": 1, "deleted.asked": 3}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert current_complaints(table.layout, is_exact=False) == []
        *_, number = [deletion.number for deletion in load_deletions(table.layout)]
        record = DeletionRecord(table.layout).certificate(number)
        assert (record["tables"], record["topics"]) == ({"landed": 2}, {"t": 2})
        assert differences(table.layout) == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:40])])
@pytest.mark.parametrize("is_restored", [False, True])
def test_unreadable_record_of_an_earlier_deletion_stops_no_later_one(
    topics: Path, table: HandWritten, is_restored: bool, damage: Callable[[Path], object]
) -> None:
    worker(topics, table)
    first_version = table_of(table.layout).version()
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u1'"))
    assert execute_deletions(table.layout, 600_000_000) == 1
    if is_restored:
        deltalake.DeltaTable(str(table.layout.tables / "landed")).restore(first_version)
    note_foreign_changes(table.layout)
    damage(table.layout.deletions / "000001.offsets")
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u2'"))
    assert execute_deletions(table.layout, 600_000_000) == 1


def test_offsets_of_earlier_deletions_are_read_only_if_rows_may_have_come_back(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    runs_of = DeletionRecord._runs_of
    monkeypatch.setattr(
        DeletionRecord, "_runs_of", lambda record, deletion: read.append(deletion.number) or runs_of(record, deletion)
    )
    worker(topics, table)
    first_version = table_of(table.layout).version()
    for uuid in ("u1", "u2"):
        request_deletion(table.layout, REQUESTED, parse_conditions(f"uuid = '{uuid}'"))
        execute_deletions(table.layout, 600_000_000)
        note_foreign_changes(table.layout)
    assert read == []
    deltalake.DeltaTable(str(table.layout.tables / "landed")).restore(first_version)
    note_foreign_changes(table.layout)
    read.clear()
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u3'"))
    execute_deletions(table.layout, 600_000_000)
    assert read == [1, 2]


def insert_without(landed: Path, *columns: str) -> None:
    """Insert a copy of event u1 with the host ``foreign`` and null in the columns."""
    rows = deltalake.DeltaTable(str(landed)).to_pyarrow_table()
    rows = rows.filter(pc.equal(rows["uuid"], "u1"))
    for name in ("host", *columns):
        field = rows.schema.field(name)
        value = pa.array([None if name in columns else "foreign"], field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field, value)
    deltalake.write_deltalake(str(landed), rows, mode="append")


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("columns", [("topic", "offset"), ("topic",), ("offset",)])
@pytest.mark.parametrize("is_foreign", [True, False])
def test_inserted_row_without_topic_or_offset_has_no_fate(
    tmp_path: Path, topics: Path, table: HandWritten, columns: tuple[str, ...], is_foreign: bool
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        insert_without(landed, *columns)
        maintain(proof_worker, table)
        assert fates(running) == BEFORE
        if is_foreign:
            deltalake.DeltaTable(str(landed)).delete("host = 'foreign'")
        else:
            compact_table(table.layout.landed)
            request_deletion(table.layout, REQUESTED, parse_conditions("host = 'foreign'"))
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u4'"))
        maintain(proof_worker, table)
        assert not pending_deletions(table.layout)
        assert fates(running) == {**BEFORE, "landed.event": 4, "deleted.asked": 1}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert current_complaints(table.layout, is_exact=False) == []
        assert "foreign" not in deltalake.DeltaTable(str(landed)).to_pyarrow_table()["host"].to_pylist()
        assert differences(table.layout) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("is_noted", [False, True])
def test_row_that_another_program_deleted_is_not_landed_again_by_a_backfill(
    topics: Path, table: HandWritten, is_noted: bool
) -> None:
    worker(topics, table)
    deltalake.DeltaTable(str(table.layout.landed)).delete("uuid in ('u1', 'u3')")
    if is_noted:
        note_foreign_changes(table.layout)
    plan = BackfillPlanner(topics, table.layout, ["t"], running=False).survey("t", 0, None)
    assert (plan.lost.tolist(), dict(+plan.fates)) == ([], {"landed": 4, "deleted": 2})
    tracer = Tracer(topics, table.layout, ["t"])
    assert (tracer.trace("t", 0).fate, tracer.trace("t", 1).fate) == ("landed.event", "deleted")


def insert_rows(landed: Path, offset: int | None, uuids: tuple[str, ...] = ("u0", "u1")) -> int:
    """Insert copies of events of another uuid; ``offset``: of the first one, None for unchanged ones."""
    rows = deltalake.DeltaTable(str(landed)).to_pyarrow_table().filter(pc.field("uuid").isin(uuids))
    columns: dict[str, Any] = {"uuid": pa.array([f"foreign-{n}" for n in range(len(uuids))])}
    if offset is not None:
        columns["offset"] = pa.array(range(offset, offset + len(uuids)))
    for name, column in columns.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, name, column.cast(rows.schema.field(name).type))
    deltalake.write_deltalake(str(landed), rows, mode="append")
    return deltalake.DeltaTable(str(landed)).version()


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("offset", [None, 6, 1000])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_inserted_rows_are_named_until_they_are_deleted(
    tmp_path: Path,
    topics: Path,
    table: HandWritten,
    offset: int | None,
    is_compacted: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    landed = table.layout.landed
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        version = insert_rows(Path(str(landed)), offset)
        engine = engine_of(Path(str(landed)))
        text = f"{landed}: version {version}, WRITE of {engine}, inserted 2 rows that Penstock did not land"
        named = [c.text.startswith(text) for c in current_complaints(table.layout, is_exact=True)]
        assert named == [True]
        maintain(proof_worker, table)
        maintain(worker(topics, table, running), table)
        (event,) = [event for event in running.ledger.events() if event.kind == "foreign"]
        assert event.cause.startswith(text)
        assert text in caplog.text
        assert fates(running) == BEFORE
        if is_compacted:
            compact_table(table.layout.landed)
        for is_exact in (True, False):
            assert [c.text for c in current_complaints(table.layout, is_exact)] == [event.cause]
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'foreign-0'"))
        maintain(proof_worker, table)
        assert [c.text for c in current_complaints(table.layout, is_exact=True)] == [event.cause]
        deltalake.DeltaTable(str(landed)).delete("uuid = 'foreign-1'")
        maintain(proof_worker, table)
        assert current_complaints(table.layout, is_exact=True) == []
        assert current_complaints(table.layout, is_exact=False) == []
        assert "foreign-0" not in deltalake.DeltaTable(str(landed)).to_pyarrow_table()["uuid"].to_pylist()
        assert differences(table.layout) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_table_that_was_replaced_by_one_without_folders_stops_the_landing(topics: Path, table: HandWritten) -> None:
    """delta-rs would commit files of folders to it, which no reader could read with the other ones."""
    landed = table.layout.tables / "landed"
    worker(topics, table)
    lines = (landed / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    metadata = next(json.loads(line)["metaData"] for line in lines if "metaData" in line)
    commit(landed, [{"metaData": {**metadata, "partitionColumns": []}}], "CREATE OR REPLACE TABLE")
    replaced = r"partitioned by no column instead of kind, date: nothing lands .* RESTORE TABLE"
    with pytest.raises(FeatureNotWritten, match=replaced):
        table.commit({"t": 7}, [landed_event(6, "u6")])
    commit(landed, [{"metaData": metadata}], "RESTORE")
    table.commit({"t": 7}, [landed_event(6, "u6")])


def test_updated_rows_are_not_called_inserted(topics: Path, table: HandWritten) -> None:
    landed = deltalake.DeltaTable(str(table.layout.landed))
    worker(topics, table)
    landed.update(predicate="uuid = 'u1'", updates={"host": "'changed'"})
    rows = landed.to_pyarrow_table().filter(pc.field("uuid") == "u2")
    merge = landed.merge(rows, "t.uuid = s.uuid", source_alias="s", target_alias="t")
    merge.when_matched_update({"host": "'merged'"}).execute()
    assert note_foreign_changes(table.layout) == 2
    assert noted_complaints(table.layout) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("value", ["'other'", "null"])
def test_changed_uuids_are_named_with_version_and_engine(
    tmp_path: Path, topics: Path, table: HandWritten, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        deltalake.DeltaTable(str(landed)).update(predicate="uuid in ('u1', 'u3')", updates={"uuid": value})
        version = deltalake.DeltaTable(str(landed)).version()
        maintain(proof_worker, table)
        maintain(worker(topics, table, running), table)
        (event,) = [event for event in running.ledger.events() if event.kind == "foreign"]
        text = f"{landed}: version {version}, UPDATE of {engine_of(landed)}, changed the uuid of 2 rows"
        assert event.cause.startswith(text)
        assert text in caplog.text
        assert fates(running) == BEFORE


def test_deleted_rows_alone_make_the_journal_be_read(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int | None] = []

    def note(layout: Layout, table: object, version: int | None = None) -> None:
        read.append(version)

    for module in ("foreign_deletions", "commit_faults"):
        monkeypatch.setattr(f"penstock.proof.{module}.landed_offsets", note)
    worker(topics, table)
    landed = deltalake.DeltaTable(str(table.layout.landed))
    landed.update(predicate="uuid = 'u1'", updates={"host": "'changed'"})
    landed.optimize.compact()
    note_foreign_changes(table.layout)
    assert read == []
    landed.delete("uuid = 'u1'")
    note_foreign_changes(table.layout)
    assert read == [landed.version()]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("damage", [Path.unlink, cut_short])
@pytest.mark.parametrize("is_old_file", [False, True])
def test_rows_of_a_commit_with_an_unreadable_file_are_unaccounted_until_it_is_back(
    tmp_path: Path,
    topics: Path,
    table: HandWritten,
    damage: Callable[[Path], None],
    is_old_file: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        old = file_of(table.layout, "x")
        deltalake.DeltaTable(str(landed)).delete("uuid = 'u1'")
        path = landed / (old if is_old_file else file_of(table.layout, "x"))
        content = path.read_bytes()
        damage(path)
        text = f"DELETE of {engine_of(landed)}, may have deleted rows, which count once its files can be read again"
        assert [text in c.text for c in current_complaints(table.layout, is_exact=False)] == [True]
        maintain(proof_worker, table)
        maintain(proof_worker, table)
        assert fates(running) == BEFORE
        assert not load_deletions(table.layout)
        assert [text in c.text and str(path) in c.text for c in noted_complaints(table.layout)] == [True]
        assert [text in line and str(path) in line for line in unreadable_files(table.layout)] == [True]
        assert caplog.text.count(text) == 1
        # A later deletion does not wait for the file.
        deltalake.DeltaTable(str(landed)).delete("uuid = 'u3'")
        request_deletion(table.layout, REQUESTED, parse_conditions("kind = 'message'"))
        maintain(proof_worker, table)
        later = {"landed.event": 4, "deleted.foreign": 1, "deleted.asked": 1}
        assert fates(running) == later
        path.write_bytes(content)
        counted = {**later, "landed.event": 3, "deleted.foreign": 2}
        assert rebuilt_sums(topics, table.layout)[0] == counted
        assert current_complaints(table.layout, is_exact=False) == []
        maintain(proof_worker, table)
        assert fates(running) == counted
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert current_complaints(table.layout, is_exact=False) == []
        assert unreadable_files(table.layout) == []
        assert note_foreign_changes(table.layout) == 0
        assert differences(table.layout) == []


def engine_of(landed: Path) -> str:
    return str(deltalake.DeltaTable(str(landed)).history(1)[0]["engineInfo"])


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_requested_accounting_of_a_commit_whose_file_went_stops_no_later_deletion(
    tmp_path: Path, topics: Path, table: HandWritten
) -> None:
    landed = table.layout.tables / "landed"
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        path = landed / file_of(table.layout, "x")
        deltalake.DeltaTable(str(landed)).delete("uuid = 'u1'")
        assert note_foreign_changes(table.layout) == 1
        path.rename(tmp_path / "away")
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u4'"))
        assert execute_deletions(table.layout, WINDOW) == 2
        assert proof_worker.step()
        assert fates(running) == {**BEFORE, "landed.event": 4, "deleted.asked": 1}
        (complaint,) = current_complaints(table.layout, is_exact=False)
        assert str(path) in complaint.text
        (tmp_path / "away").rename(path)
        maintain(proof_worker, table)
        assert fates(running) == {"landed.event": 3, "landed.message": 1, "deleted.asked": 1, "deleted.foreign": 1}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert current_complaints(table.layout, is_exact=False) == []


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_expired_log_of_a_requested_accounting_stops_no_later_deletion(topics: Path, table: HandWritten) -> None:
    landed = table.layout.tables / "landed"
    worker(topics, table)
    delta = deltalake.DeltaTable(str(landed))
    delta.delete("uuid = 'u1'")
    assert note_foreign_changes(table.layout) == 1
    delta.create_checkpoint()
    for path in (landed / "_delta_log").glob("*.json"):
        if int(path.stem) < delta.version():
            path.unlink()
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u4'"))
    assert execute_deletions(table.layout, WINDOW) == 2
    assert complaints_at(table) == [delta.version()]
    assert rebuilt_sums(topics, table.layout)[0] == {"landed.event": 3, "landed.message": 1, "deleted.asked": 1}


def complaints_at(table: HandWritten) -> list[int]:
    """Return the versions about which there are complaints if the balance does not add up."""
    return [complaint.version for complaint in current_complaints(table.layout, is_exact=False)]


def test_complaint_is_about_the_faulty_commit_and_ends_when_it_is_undone(topics: Path, table: HandWritten) -> None:
    landed = table.layout.tables / "landed"
    worker(topics, table)
    name, other = file_of(table.layout, "x"), file_of(table.layout, "y")
    delete_by_vector(landed, name, [1])
    listed_by_delete = latest_add(landed, name)
    faulty = add_without_vector(landed, name)
    delete_by_vector(landed, other, [0])
    assert complaints_at(table) == [faulty]
    note_foreign_changes(table.layout)
    assert complaints_at(table) == [faulty]
    removal = {key: listed_by_delete[key] for key in ("path", "partitionValues", "size")}
    commit(landed, [{"remove": {**removal, "deletionTimestamp": 1, "dataChange": True}}], "RESTORE")
    assert complaints_at(table) == []
    note_foreign_changes(table.layout)
    assert complaints_at(table) == []


def test_row_that_is_deleted_and_restored_between_two_looks_is_named(topics: Path, table: HandWritten) -> None:
    landed = table.layout.tables / "landed"
    worker(topics, table)
    name = file_of(table.layout, "x")
    delete_by_vector(landed, name, [1])
    restored = restore(landed, name)
    note_foreign_changes(table.layout)
    execute_deletions(table.layout, WINDOW)
    assert complaints_at(table) == [restored]


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_foreign_commit_is_counted_once_after_kill(topics: Path, table: HandWritten) -> None:
    worker(topics, table)
    delete_by_vector(table.layout.tables / "landed", file_of(table.layout, "y"), [0])
    note_foreign_changes(table.layout)
    table.layout.foreign.unlink()  # killed after the request, before the position
    note_foreign_changes(table.layout)
    assert len(load_deletions(table.layout)) == 1
    assert execute_deletions(table.layout, WINDOW) == 1
    assert rebuilt_sums(topics, table.layout)[0] == {**BEFORE, "landed.event": 4, "deleted.foreign": 1}


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_deletion_from_a_table_that_lost_its_folders_says_what_to_do(topics: Path, table: HandWritten) -> None:
    """The bare error was ``Invalid isoformat string``, each ten minutes."""
    landed = table.layout.tables / "landed"
    worker(topics, table)
    rows = deltalake.DeltaTable(str(landed)).to_pyarrow_table()
    deltalake.write_deltalake(
        str(landed), rows, mode="overwrite", schema_mode="overwrite", partition_by=[], configuration={}
    )
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u1'"))
    with pytest.raises(FeatureNotWritten, match=r"partitioned by no column instead of kind, date: .* RESTORE TABLE"):
        execute_deletions(table.layout, WINDOW)


def test_compacted_commits_of_another_program_are_no_commits(topics: Path, table: HandWritten) -> None:
    """Their names begin with the first of the commits that they repeat."""
    log = table.layout.tables / "landed" / "_delta_log"
    worker(topics, table)
    commits = sorted(log.glob("*.json"))[:2]
    text = "".join(path.read_text() for path in commits)
    (log / f"{commits[0].stem}.{commits[1].stem}.compacted.json").write_text(text)
    delete_by_vector(log.parent, file_of(table.layout, "x"), [1])
    assert note_foreign_changes(table.layout) == 1
    table_of(table.layout).begin()
    assert [deletion.operation for deletion in load_deletions(table.layout)] == ["DELETE"]


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_deletion_of_a_row_that_another_program_put_at_the_offset_of_a_duplicate_leaves_the_balance(
    tmp_path: Path, topics: Path, is_foreign: bool, is_noted: bool
) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    append(topics, "t", [event(0), event(0), event(1), event(2)])
    table.commit({"t": 4}, [landed_event(offset, f"u{n}") for n, offset in enumerate((0, 2, 3))])
    landed = table.layout.tables / "landed"
    before = {"landed.event": 3, "duplicate": 1}
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        maintain(proof_worker, table)
        assert fates(running) == before
        insert_rows(landed, 1, ("u1",))
        if is_noted:
            maintain(proof_worker, table)
            assert current_complaints(table.layout, is_exact=True) != []
            compact_table(table.layout.landed)
        if is_foreign:
            deltalake.DeltaTable(str(landed)).delete("uuid = 'foreign-0'")
        else:
            request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'foreign-0'"))
        maintain(proof_worker, table)
        maintain(proof_worker, table)
        assert fates(running) == before
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u1'"))
        maintain(proof_worker, table)
        assert fates(running) == {**before, "landed.event": 2, "deleted.asked": 1}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert "foreign-0" not in deltalake.DeltaTable(str(landed)).to_pyarrow_table()["uuid"].to_pylist()
        assert differences(table.layout) == []


@pytest.mark.parametrize("looks", [0, 1])
def test_deletions_and_returned_rows_in_an_object_store_are_found_from_the_first_look_on(
    at_url: Layout, looks: int
) -> None:
    """Found with Trino: without a stored position each look began at the newest version, and stored none."""
    assert at_url.store is not None
    table, options = HandWritten(at_url), at_url.store.storage_options()
    table.commit({"t": 5}, [landed_event(number, f"u{number}") for number in range(5)])
    for _ in range(looks):
        assert note_foreign_changes(at_url) == 0
    foreign = deltalake.DeltaTable(str(at_url.landed), storage_options=options)
    before = foreign.version()
    foreign.delete("uuid = 'u1'")
    assert note_foreign_changes(at_url, retry=False) == 1
    assert note_foreign_changes(at_url, retry=False) == 0
    request_deletion(at_url, REQUESTED, parse_conditions("uuid = 'u2'"))
    execute_deletions(at_url, WINDOW)
    record = DeletionRecord(at_url)
    assert [(deletion.why, record.rows(deletion.number)) for deletion in record.deletions] == [
        (FOREIGN, 1),
        (REQUESTED, 1),
    ]
    foreign.update_incremental()
    foreign.restore(before)
    note_foreign_changes(at_url)
    assert ["brought 2 deleted rows back" in complaint.text for complaint in noted_complaints(at_url)] == [True]
    foreign.update_incremental()
    rows = pa.table(foreign.scan(columns=["uuid"]))["uuid"].to_pylist()
    assert sorted(map(str, rows)) == ["u0", "u1", "u3", "u4"]


def test_deletion_between_batches_that_one_line_of_the_journal_names_is_counted(topics: Path, tmp_path: Path) -> None:
    """Spark has forgotten the plan of the first one: the line has the version of the second, behind the deletion."""
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    append(topics, "t", [event(number) for number in range(4)])
    table.commit({"t": 2}, [landed_event(number, f"u{number}") for number in range(2)])
    deltalake.DeltaTable(str(table.layout.landed)).delete("uuid = 'u1'")
    table.commit({"t": 4}, [landed_event(number, f"u{number}") for number in (2, 3)])
    for folder in ("commits", "offsets"):
        (table.layout.checkpoint / folder / "0").unlink()
    (line,) = Journal(table.layout).update()
    assert (line.batch, line.spans()) == (1, {"t": (0, 4)})
    assert note_foreign_changes(table.layout) == 1
    execute_deletions(table.layout, WINDOW)
    record = DeletionRecord(table.layout)
    assert [record.rows(deletion.number) for deletion in record.deletions] == [1]


def test_first_look_at_a_table_in_an_object_store_reads_a_limited_number_of_commits(
    at_url: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert at_url.store is not None
    table = HandWritten(at_url)
    table.commit({"t": 5}, [landed_event(number, f"u{number}") for number in range(5)])
    foreign = deltalake.DeltaTable(str(at_url.landed), storage_options=at_url.store.storage_options())
    for number in range(3):
        foreign.delete(f"uuid = 'u{number}'")
    monkeypatch.setattr("penstock.landing.table.table_reader.MAX_COMMITS_AT_URL", 2)
    assert note_foreign_changes(at_url) == 2
    assert note_foreign_changes(at_url) == 0
