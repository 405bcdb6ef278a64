"""Iceberg tables over the files of Delta tables: the same rows for independent readers, each file once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.table import Table

from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.row_sums import RowSums
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.writing import written_file
from penstock.landing.writing.part_writer import write_part
from penstock.proof.proofs_table import ProofsTable
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.iceberg import mirrored_table
from penstock.upkeep.iceberg.mirrored_table import BATCH, FIRST_BATCH, SUMS, NotMirrored
from tests.landing.table.foreign_writer import commit, delete_by_vector, latest_add
from tests.landing.typed import typed_life
from tests.landing.writing.messages import AT, source
from tests.upkeep.iceberg.mirror_life import AFTER, BEFORE, DEAD, mirror_of
from tests.upkeep.killed_life import ROOT

WINDOW = 600_000_000
EVENTS = 4


@pytest.fixture
def life(tmp_path: Path) -> typed_life.Life:
    """A table with a typed table of clicks, and two batches."""
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    land(life, 0)
    land(life, 1)
    return life


def land(life: typed_life.Life, batch: int) -> None:
    """Land a batch of clicks, and a message."""
    payloads = [*(typed_life.event(f"{batch}-{n}", path=f"/{n}", ms=n) for n in range(EVENTS)), b"text"]
    life.land(batch, [source(list(enumerate(payloads, batch * 10)))])


def uuids(*batches: int) -> list[str]:
    return sorted(f"{batch}-{n}" for batch in batches for n in range(EVENTS))


def iceberg(layout: Layout, name: str = "landed") -> Table:
    """Return a table as other programs open it."""
    return load_catalog("lake", type="sql", uri=f"sqlite:///{layout.tables}.db").load_table(f"penstock.{name}")


def by_pyiceberg(table: Table) -> list[str]:
    return sorted(table.scan(row_filter="kind = 'event'").to_arrow()["uuid"].to_pylist())


def by_polars(table: Table) -> list[str]:
    rows = polars.scan_iceberg(table).filter(polars.col("kind") == "event")
    return sorted(rows.select("uuid").collect()["uuid"].to_list())


def by_clickhouse(layout: Layout) -> list[str]:
    """Read with ClickHouse's own code, in a process of its own: it reads below the folder in which it starts."""
    query = "select uuid from icebergLocal('_iceberg/landed/') where kind = 'event' order by uuid"
    program = f"import chdb; print(chdb.query({query!r}, 'TSV'), end='')"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=layout.tables, capture_output=True, text=True, check=True).stdout.split()


def files_of(table: Table) -> list[str]:
    return sorted(task.file.file_path.rpartition("/landed/")[2] for task in table.scan().plan_files())


def test_readers_of_iceberg_see_batches_merges_and_deletions(life: typed_life.Life) -> None:
    mirror, layout = mirror_of(life.layout.tables), life.layout
    steps: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: None, uuids(0, 1)),
        (lambda: land(life, 2), uuids(0, 1, 2)),
        (lambda: compact_table(layout.landed), uuids(0, 1, 2)),
        (lambda: delete(layout, "uuid = '1-2'"), [uuid for uuid in uuids(0, 1, 2) if uuid != "1-2"]),
    ]
    for change, expected in steps:
        change()
        assert mirror.step() > 0
        table = iceberg(layout)
        assert by_pyiceberg(table) == by_polars(table) == expected
        assert files_of(table) == table_of(layout).active()
        assert mirror.step() == 0, "nothing is left to do"
    assert by_clickhouse(layout) == expected
    rows = table.scan().to_arrow()
    delta = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table()
    assert sorted(map(str, rows.select(["offset", "kind", "date", "timestamp", "payload"]).to_pylist())) == sorted(
        map(str, delta.select(["offset", "kind", "date", "timestamp", "payload"]).to_pylist())
    )
    assert len(table.snapshots()) == len(steps), "one snapshot each"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 15 + "\ud7ffb", id="apache/iceberg-python#3880"),
        pytest.param("\ud7ff" * 20, id="apache/iceberg-go#1645"),
        pytest.param("\U0010ffff" * 20, id="databendlabs/databend#18506"),
        pytest.param("a" * 15 + "\U0001f600b", id="apache/iceberg#11161"),
        pytest.param("a" * 15 + "\0", id="a NUL at the cut"),
    ],
)
def test_filter_finds_a_text_that_is_cut_in_the_bounds(life: typed_life.Life, text: str) -> None:
    payloads = [typed_life.event("long", path=text), typed_life.event("short", path="a")]
    life.land(2, [source(list(enumerate(payloads, 20)))])
    mirror_of(life.layout.tables).step()
    clicks = iceberg(life.layout, "events_click")
    assert clicks.scan(row_filter=EqualTo("path", text)).to_arrow()["uuid"].to_pylist() == ["long"]
    assert clicks.scan(row_filter=GreaterThan("path", "b")).to_arrow()["uuid"].to_pylist() == ["long"] * (text > "b")
    assert uuids(0, 1) == [uuid for uuid in by_pyiceberg(iceberg(life.layout)) if "-" in uuid]


@pytest.mark.parametrize("text", ["a" * 5000, "z" * 5000])
def test_filter_finds_a_text_without_bounds_in_one_of_several_row_groups(
    life: typed_life.Life, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_file, "ROW_GROUP", 2)
    paths = ["m", "n", text, "m", "n", "m"]
    payloads = [typed_life.event(f"u{number}", path=path) for number, path in enumerate(paths)]
    life.land(2, [source(list(enumerate(payloads, 20)))])
    mirror_of(life.layout.tables).step()
    clicks = iceberg(life.layout, "events_click")
    assert clicks.scan(row_filter=EqualTo("path", text)).to_arrow()["uuid"].to_pylist() == ["u2"]
    (scan,) = clicks.scan(row_filter=EqualTo("uuid", "u2")).plan_files()
    field = clicks.schema().find_field
    assert {field("path").field_id, field("uuid").field_id} & {*scan.file.upper_bounds} == {field("uuid").field_id}


def delete(layout: Layout, conditions: str) -> None:
    request_deletion(layout, REQUESTED, parse_conditions(conditions))
    assert execute_deletions(layout, WINDOW) == 1


def test_snapshot_names_batches_and_their_sums(life: typed_life.Life) -> None:
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    land(life, 2)
    land(life, 3)
    mirror.step()
    first, second = ((snapshot.summary or {}) for snapshot in iceberg(life.layout).snapshots())
    assert (first[FIRST_BATCH], first[BATCH], second[FIRST_BATCH], second[BATCH]) == ("0", "1", "2", "3")
    described = RowSums()
    for batch in table_of(life.layout).batches(2):
        described.absorb(RowSums.from_document(batch.description["sums"]))
    assert described.rows == 2 * (EVENTS + 1)
    assert RowSums.from_document(json.loads(str(second[SUMS]))["sums"]) == described


def test_typed_tables_and_proofs_are_mirrored(life: typed_life.Life) -> None:
    ProofsTable(life.layout).begin()
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    assert iceberg(life.layout, "proofs").schema().find_type("uuid_hashes").precision == 38  # type: ignore[attr-defined]
    clicks = iceberg(life.layout, "events_click").scan(row_filter="ms = 3").to_arrow()
    assert sorted(zip(clicks["uuid"].to_pylist(), clicks["path"].to_pylist(), strict=True)) == [
        ("0-3", "/3"),
        ("1-3", "/3"),
    ]
    delete(life.layout, "uuid = '0-3'")
    mirror.step()
    assert clicks_of(life.layout) == [uuid for uuid in uuids(0, 1) if uuid != "0-3"]


def clicks_of(layout: Layout) -> list[str]:
    listed: list[str] = iceberg(layout, "events_click").scan().to_arrow()["uuid"].to_pylist()
    return sorted(listed)


def test_batch_that_only_typed_tables_have_is_not_mirrored(life: typed_life.Life) -> None:
    # A pipeline that is killed there repeats the batch, and replaces these rows.
    part = write_part([source([(20, typed_life.event("2-0", path="/", ms=0))])], life.job, AT)
    life.typed.commit(2, part.files)
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    assert clicks_of(life.layout) == uuids(0, 1)
    land(life, 2)
    mirror.step()
    assert clicks_of(life.layout) == uuids(0, 1, 2)


@pytest.mark.survives("Iceberg mirror", "foreign writer")
def test_columns_of_other_programs_are_added(life: typed_life.Life) -> None:
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    table = deltalake.DeltaTable(str(life.layout.landed))
    table.alter.add_columns(list(deltalake.Schema.from_arrow(pa.schema({"team": pa.string()})).fields))
    table.update({"team": "'blue'"}, predicate="uuid = '0-1'")
    mirror.step()
    rows = iceberg(life.layout).scan(selected_fields=("uuid", "team")).to_arrow().to_pylist()
    assert [row["uuid"] for row in rows if row["team"] == "blue"] == ["0-1"]
    assert len(rows) == 2 * (EVENTS + 1)
    assert mirror.step() == 0, "files of another program are rewritten once"


def test_times_of_spark_are_read_after_the_file_is_rewritten(life: typed_life.Life) -> None:
    landed = life.layout.tables / "landed"
    name = next(name for name in table_of(life.layout).active() if name.startswith("kind=event"))
    optimized = name.replace(".parquet", "-int96.parquet")
    rows = pq.ParquetFile(landed / name).read()
    pq.write_table(rows, landed / optimized, use_deprecated_int96_timestamps=True, store_schema=False)
    added = {**latest_add(landed, name), "dataChange": False}
    removal = {key: added[key] for key in ("path", "partitionValues", "size", "dataChange")}
    new_file = {**added, "path": optimized, "size": (landed / optimized).stat().st_size}
    commit(landed, [{"remove": {**removal, "deletionTimestamp": 1}}, {"add": new_file}], "OPTIMIZE")
    mirror_of(life.layout.tables).step()
    table = iceberg(life.layout)
    assert by_pyiceberg(table) == by_polars(table) == uuids(0, 1)
    times = table.scan(row_filter="kind = 'event'").to_arrow()["timestamp"]
    assert {*rows["timestamp"].to_pylist()} <= {*times.to_pylist()}


def test_rows_deleted_by_vector_do_not_come_back(life: typed_life.Life) -> None:
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    name = next(name for name in table_of(life.layout).active() if name.startswith("kind=event"))
    delete_by_vector(life.layout.tables / "landed", name, [0, 1])
    mirror.step()
    remaining = sorted(table_uuids(life.layout))
    assert len(remaining) == 2 * EVENTS - 2
    assert by_pyiceberg(iceberg(life.layout)) == by_polars(iceberg(life.layout)) == remaining


def table_uuids(layout: Layout) -> list[str]:
    rows = polars.scan_delta(str(layout.landed)).filter(polars.col("kind") == "event")
    listed: list[str] = rows.select("uuid").collect()["uuid"].to_list()
    return listed


def test_table_of_somebody_else_is_left_alone(life: typed_life.Life) -> None:
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{life.layout.tables}.db")
    catalog.create_namespace("penstock")
    rows = pa.table({"order": ["a", "b"]})
    other = catalog.create_table("penstock.landed", rows.schema, location=f"file://{life.layout.tables}-other")
    other.append(rows)
    with pytest.raises(NotMirrored, match=r"penstock\.landed was not made from .*, but from other data"):
        mirror_of(life.layout.tables).step()
    assert catalog.load_table("penstock.landed").scan().to_arrow() == rows


def test_replaced_snapshots_expire_with_their_metadata(life: typed_life.Life, monkeypatch: pytest.MonkeyPatch) -> None:
    def step() -> None:
        mirror_of(life.layout.tables).step()

    step()
    land(life, 2)
    step()
    assert len(iceberg(life.layout).snapshots()) == 2, "a reader may still use it"
    monkeypatch.setattr(mirrored_table, "SNAPSHOT_HOURS", -1.0)
    mirror_of(life.layout.tables, lambda hours: None).step()
    assert len(iceberg(life.layout).snapshots()) == 2, "the clock is not believed"
    step()
    table = iceberg(life.layout)
    assert len(table.snapshots()) == 1
    assert by_pyiceberg(table) == uuids(0, 1, 2)
    folder = life.layout.tables / "_iceberg" / "landed" / "metadata"
    (snapshot,) = table.snapshots()
    used = {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    assert {f"file://{path}" for path in folder.glob("*.avro")} == used


def test_metadata_that_another_program_removed_is_no_damage(
    life: typed_life.Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_of(life.layout.tables).step()
    replaced = mirrored_table._metadata_files(table := iceberg(life.layout), table.snapshots())
    compact_table(life.layout.landed)
    mirror_of(life.layout.tables).step()
    table = iceberg(life.layout)
    snapshot = table.current_snapshot()
    assert snapshot
    obsolete = replaced - mirrored_table._metadata_files(table, [snapshot])
    (manifest,) = obsolete - {snapshot.manifest_list for snapshot in table.snapshots()}
    Path(manifest.removeprefix("file://")).unlink()
    monkeypatch.setattr(mirrored_table, "SNAPSHOT_HOURS", -1.0)
    mirror_of(life.layout.tables).step()
    assert [snapshot.snapshot_id for snapshot in iceberg(life.layout).snapshots()] == [snapshot.snapshot_id]
    assert not any(Path(path.removeprefix("file://")).exists() for path in obsolete)


@pytest.mark.survives("Iceberg mirror", "SIGKILL")
@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_step_after_kill_at_the_pointer_adds_no_file_twice(life: typed_life.Life, moment: str) -> None:
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    land(life, 2)
    command = [sys.executable, "-m", "tests.upkeep.iceberg.mirror_life", str(life.layout.tables), moment]
    assert subprocess.run(command, cwd=ROOT, timeout=240, check=False).returncode == DEAD
    assert files_of(iceberg(life.layout)) == (table_of(life.layout).active() if moment == AFTER else files_before(life))
    mirror.step()
    assert files_of(iceberg(life.layout)) == table_of(life.layout).active()
    assert by_pyiceberg(iceberg(life.layout)) == uuids(0, 1, 2)


def test_late_commit_of_a_killed_process_adds_no_file_twice(
    life: typed_life.Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, other = mirror_of(life.layout.tables), mirror_of(life.layout.tables)
    mirror.step()
    land(life, 2)
    commit_files = mirrored_table._commit

    def commit_behind_other(*arguments: Any) -> None:
        monkeypatch.setattr(mirrored_table, "_commit", commit_files)
        other.step()
        commit_files(*arguments)

    monkeypatch.setattr(mirrored_table, "_commit", commit_behind_other)
    with pytest.raises(CommitFailedException):
        mirror.step()
    mirror.step()
    assert files_of(iceberg(life.layout)) == life.table.active()
    assert by_pyiceberg(iceberg(life.layout)) == uuids(0, 1, 2)


def files_before(life: typed_life.Life) -> list[str]:
    """Return the files without the ones of the newest batch."""
    newest = {name for _, names in life.table.files(2) for name in names}
    return [name for name in table_of(life.layout).active() if name not in newest]


@pytest.mark.survives("Iceberg mirror", "foreign writer")
@pytest.mark.parametrize("operation", ["rollback", "delete", "overwrite", "expire"])
def test_step_takes_maintenance_of_another_program_back(life: typed_life.Life, operation: str) -> None:
    mirror = mirror_of(life.layout.tables)
    mirror.step()
    snapshot = iceberg(life.layout).current_snapshot()
    assert snapshot
    delete(life.layout, "uuid = '0-1'")
    land(life, 2)
    mirror.step()
    remaining = [uuid for uuid in uuids(0, 1, 2) if uuid != "0-1"]
    table = iceberg(life.layout)
    if operation == "rollback":
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
        assert "0-1" in by_pyiceberg(iceberg(life.layout))
    elif operation == "delete":
        table.delete("uuid = '1-1'")
        assert "1-1" not in by_pyiceberg(iceberg(life.layout))
    elif operation == "overwrite":
        # As a rewrite of data files: the same rows in one file of the other program.
        table.overwrite(table.scan().to_arrow())
    else:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    mirror.step()
    assert by_pyiceberg(iceberg(life.layout)) == remaining
    assert sorted(by_polars(iceberg(life.layout))) == remaining
    assert files_of(iceberg(life.layout)) == life.table.active()
