"""Planted faults in Iceberg tables that PyIceberg wrote are found, with the snapshot that made them."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from penstock.audit.tables import equality_deletes, iceberg
from penstock.audit.tables.iceberg import IcebergTable
from penstock.audit.tables.table import TableUnreadable
from tests.audit.audited import Row, filled_topic, rows_table, run_audit
from tests.kafka.kafka_helpers import Topics


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    made.create_namespace("shop")
    return made


def write(catalog: Catalog, topic: str, *batches: Sequence[Row]) -> Table:
    """Return a table with one snapshot per batch."""
    table = catalog.create_table("shop.orders", schema=rows_table([(0, 0)]).schema)
    for rows in batches:
        table.append(rows_table(rows, topic))
    return table


def folder_of(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def audit_newest(topics: Topics, topic: str, table: Table) -> tuple[int, dict[str, object], dict[str, object]]:
    """Return the exit status, the report, and the report of partition 0."""
    status, report, errors = run_audit(topics, topic, table.refresh().metadata_location)
    assert report, errors
    return status, report, report["partitions"][0]


def test_table_of_a_catalog_and_of_its_folder_are_complete(topics: Topics, tmp_path: Path, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    table = write(catalog, topic, rows[:70], rows[70:])
    options = ("--store", "type=sql", "--store", f"uri=sqlite:///{tmp_path}/catalog.db")
    for address, store in (("iceberg://lake/shop.orders", options), (str(folder_of(table)), ())):
        status, report, errors = run_audit(topics, topic, address, *store)
        assert (status, report.get("required"), report.get("kind")) == (0, 120, "Iceberg"), errors
    current = table.refresh().current_snapshot()
    assert current is not None
    assert report["version"] == str(current.snapshot_id)


def test_table_of_a_glue_catalog_is_audited(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"glue.access-key-id": "reader", "glue.secret-access-key": "planted-word", "glue.region": "us-east-1"}
        options = {"type": "glue", "glue.endpoint": address, **keys}
        catalog = load_catalog("lake", **options, warehouse=f"file://{tmp_path}/lake")
        catalog.create_namespace("shop")
        write(catalog, topic, rows[:30], rows[31:])
        store = [word for name, text in options.items() for word in ("--store", f"{name}={text}")]
        status, report, errors = run_audit(topics, topic, "iceberg://lake/shop.orders", *store)
    finally:
        server.stop()
    assert (status, report.get("missing"), report["partitions"][0]["missing"]) == (1, 1, [[30, 31]]), errors
    assert "planted-word" not in f"{report} {errors}"


def test_delete_names_its_snapshot_and_a_compaction_that_keeps_rows_does_not(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:30], rows[30:])
    table.delete(And(GreaterThanOrEqual("kafka_offset", 40), LessThan("kafka_offset", 45)))
    culprit = table.refresh().current_snapshot()
    table.overwrite(table.scan().to_arrow())
    status, report, part = audit_newest(topics, topic, table)
    (loss,) = part["losses"]  # type: ignore[misc]
    assert (status, report["missing"], loss["ranges"]) == (1, 5, [[40, 45]])
    assert culprit is not None
    assert loss["commit"].startswith(f"snapshot {culprit.snapshot_id}, overwrite by ")


def test_rewrite_that_drops_rows_is_named(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:30], rows[30:])
    table.overwrite(rows_table([row for row in rows if row[1] not in (3, 31)], topic))
    status, _, part = audit_newest(topics, topic, table)
    assert (status, part["missing"]) == (1, [[3, 4], [31, 32]])
    losses: list[dict[str, object]] = part["losses"]  # type: ignore[assignment]
    assert [loss["ranges"] for loss in losses] == [[[3, 4], [31, 32]]]
    assert ", delete by " in str(losses[0]["commit"])


def test_file_that_two_snapshots_reference_names_the_second_one(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:30], rows[30:])
    path = next(task.file.file_path for task in table.scan().plan_files() if task.file.record_count == 30)
    table.add_files([path], check_duplicate_files=False)
    second = table.refresh().current_snapshot()
    status, report, part = audit_newest(topics, topic, table)
    assert (status, report["doubled"], report["missing"]) == (1, 30, 0)
    assert second is not None
    commits: dict[str, str] = part["doubled_in"]  # type: ignore[assignment]
    assert set(commits) == {path, f"{path} (reference 2 to this file)"}
    assert f"snapshot {second.snapshot_id}" in "".join(commits.values())


def test_orphan_file_is_found_where_a_batch_is_lost(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:40])
    orphan = folder_of(table) / "data" / "orphan.parquet"
    pq.write_table(rows_table(rows[40:50], topic), orphan)
    status, _, part = audit_newest(topics, topic, table)
    assert (status, part["missing"], part["losses"]) == (1, [[40, 60]], [])
    assert part["orphans"] == {f"file://{orphan}": 10}


def test_files_that_newer_metadata_committed_are_no_orphans(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:40])
    named = table.metadata_location
    table.append(rows_table(rows[40:], topic))
    status, report, errors = run_audit(topics, topic, named)
    (part,) = report["partitions"]
    assert (status, part["missing"], part["orphans"], report["unsearched"]) == (1, [[40, 60]], {}, []), errors
    # A writer that lost the race for the number leaves its metadata file: which of both is committed is not certain.
    newest = Path(table.refresh().metadata_location.removeprefix("file://"))
    newest.with_name(f"{newest.name[:5]}-lost-the-race.metadata.json").write_bytes(newest.read_bytes())
    status, report, errors = run_audit(topics, topic, named)
    (part,) = report["partitions"]
    assert (status, part["missing"], part["orphans"]) == (1, [[40, 60]], {}), errors
    (cause,) = report["unsearched"]
    assert cause.startswith("files of no version: the newest metadata file in file://")


def test_metadata_of_a_table_that_was_made_again_in_the_folder_is_not_taken_for_newer(
    topics: Topics, catalog: Catalog
) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:40])
    metadata = Path(table.metadata_location.removeprefix("file://"))
    document = {**json.loads(metadata.read_text()), "table-uuid": str(uuid.uuid4())}
    metadata.with_name("00009-of-another-table.metadata.json").write_text(json.dumps(document))
    status, report, errors = run_audit(topics, topic, table.metadata_location)
    assert (status, report["partitions"][0]["missing"]) == (1, [[40, 60]]), errors
    assert "is not certain; name the catalog" in str(report["unsearched"])


def test_each_manifest_list_is_read_once_and_above_the_limit_none(
    topics: Topics, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, *([row] for row in rows[:5]))
    opened = IcebergTable(table.metadata_location, {})
    read: Counter[str] = Counter()
    open_input = PyArrowFileIO.new_input

    def new_input(io: PyArrowFileIO, location: str) -> PyArrowFile:
        read[location] += 1
        return open_input(io, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", new_input)
    assert len(opened.referenced_files()) == 5
    assert {count for location, count in read.items() if location.endswith(".avro")} == {1}
    read.clear()
    monkeypatch.setattr(iceberg, "MAX_VERSIONS", 4)
    status, report, errors = run_audit(topics, topic, table.metadata_location)
    assert (status, report["missing"]) == (1, 55), errors
    oldest = list(opened.versions())[3].number
    assert report["unsearched"] == [
        f"snapshots before {oldest}: the search ends after 4",
        "files of no version: more than 4 snapshots",
    ]


def test_equality_deletes_that_are_committed_during_the_audit_end_no_search_for_files(catalog: Catalog) -> None:
    table = write(catalog, "orders", [(0, 0)])
    (task,) = table.scan().plan_files()
    opened = IcebergTable(str(folder_of(table)), {})
    append_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table({"kafka_offset": pa.array([7], pa.int64())}))
    assert opened.referenced_files() == {task.file.file_path, f"file://{folder_of(table)}/data/deletes-2.parquet"}


@pytest.mark.parametrize("folders", ["", "/of-a-partition"])
def test_more_files_than_the_limit_are_not_searched(
    topics: Topics, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, folders: str
) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:20], rows[20:40])
    orphan = folder_of(table) / f"data{folders}" / "orphan.parquet"
    orphan.parent.mkdir(exist_ok=True)
    pq.write_table(rows_table(rows[40:50], topic), orphan)
    monkeypatch.setattr(iceberg, "MAX_STORED_FILES", 3)
    _, _, part = audit_newest(topics, topic, table)
    assert part["orphans"] == {f"file://{orphan}": 10}
    monkeypatch.setattr(iceberg, "MAX_STORED_FILES", 2)
    _, report, part = audit_newest(topics, topic, table)
    assert part["orphans"] == {}
    assert report["unsearched"] == [f"files of no version: more than 2 files in {folder_of(table)}"]


def test_folder_that_cannot_be_listed_leaves_the_verdict_and_quotes_no_secret(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    location = write(catalog, topic, rows[:40]).metadata_location
    # PyIceberg's other file system lists nothing. The secret is a part of the folder, which the error quotes.
    store = ("--store", "py-io-impl=pyiceberg.io.fsspec.FsspecFileIO", "--store", "s3.secret-access-key=lake/shop")
    status, report, errors = run_audit(topics, topic, location, *store)
    assert (status, report.get("missing"), report["partitions"][0]["orphans"]) == (1, 20, {}), errors
    (cause,) = report["unsearched"]
    assert cause.startswith("files of no version: file://")
    assert "/***/orders cannot be listed with FsspecFileIO" in cause


def test_rollback_and_batch_of_a_branch_are_named_with_their_snapshots(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:30], rows[30:40])
    second = table.refresh().current_snapshot()
    assert second is not None
    assert second.parent_snapshot_id is not None
    table.manage_snapshots().create_branch(second.parent_snapshot_id, "audit").commit()
    table.append(rows_table(rows[40:50], topic), branch="audit")
    (branch,) = [ref.snapshot_id for name, ref in table.refresh().refs().items() if name == "audit"]
    complete_version = table.metadata_location
    table.manage_snapshots().rollback_to_snapshot(second.parent_snapshot_id).commit()
    status, _, part = audit_newest(topics, topic, table)
    assert (status, part["missing"], part["orphans"]) == (1, [[30, 60]], {})
    losses: list[dict[str, object]] = part["losses"]  # type: ignore[assignment]
    assert [loss["ranges"] for loss in losses] == [[[40, 50]], [[30, 40]]]
    published, rolled_back = (str(loss["commit"]) for loss in losses)
    assert published.startswith(f"the missing publication of snapshot {branch}, append by ")
    assert published.endswith(", of audit")
    assert rolled_back.startswith(f"the rollback of snapshot {second.snapshot_id}, append by ")
    status, report, errors = run_audit(topics, topic, complete_version)
    assert [loss["ranges"] for loss in report["partitions"][0]["losses"]] == [[[40, 50]]], errors


def test_files_of_an_abandoned_snapshot_that_cannot_be_planned_are_no_orphans(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:30])
    complete = table.refresh().current_snapshot()
    assert complete is not None
    table.append(rows_table(rows[30:40], topic))
    deleted = pa.table({"kafka_offset": pa.array([7], pa.int64())})
    append_deletes(table.refresh(), DataFileContent.EQUALITY_DELETES, deleted)
    table.refresh().manage_snapshots().rollback_to_snapshot(complete.snapshot_id).commit()
    status, report, part = audit_newest(topics, topic, table)
    assert (status, part["missing"], part["orphans"]) == (1, [[30, 60]], {})
    # The snapshot before it can be planned.
    assert [loss["ranges"] for loss in part["losses"]] == [[[30, 40]]]  # type: ignore[attr-defined]
    assert "equality deletes" in str(report["unsearched"])


def test_history_that_cannot_be_planned_ends_the_search_and_leaves_the_verdict(
    topics: Topics, catalog: Catalog
) -> None:
    """A compaction has applied the equality deletes of a snapshot before it, and lost other rows."""
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:30])
    append_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table({"kafka_offset": pa.array([7], pa.int64())}))
    # PyIceberg cannot plan this snapshot, and so not replace its files: the snapshot of another table does.
    metadata = Path(table.refresh().metadata_location.removeprefix("file://"))
    compacted = catalog.create_table("shop.compacted", schema=rows_table([(0, 0)]).schema)
    compacted.append(rows_table([row for row in rows if row[1] != 31], topic))
    document = json.loads(metadata.read_text())
    (snapshot,) = json.loads(Path(compacted.metadata_location.removeprefix("file://")).read_text())["snapshots"]
    document["snapshots"].append({**snapshot, "parent-snapshot-id": document["current-snapshot-id"]})
    document["current-snapshot-id"] = snapshot["snapshot-id"]
    document["refs"]["main"]["snapshot-id"] = snapshot["snapshot-id"]
    metadata.write_text(json.dumps(document))
    status, report, errors = run_audit(topics, topic, metadata)
    (part,) = report["partitions"]
    assert (status, part["missing"], part["losses"], part["orphans"]) == (1, [[31, 32]], [], {}), errors
    assert "equality deletes" in str(report["unsearched"])


def test_snapshots_that_name_themselves_as_parents_end_no_search(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:20], rows[20:30])
    metadata = Path(table.refresh().metadata_location.removeprefix("file://"))
    document = json.loads(metadata.read_text())
    for snapshot in document["snapshots"]:
        snapshot["parent-snapshot-id"] = snapshot["snapshot-id"]
    metadata.write_text(json.dumps(document))
    status, report, errors = run_audit(topics, topic, metadata)
    assert (status, report["partitions"][0]["missing"]) == (1, [[30, 60]]), errors
    assert len(list(IcebergTable(str(metadata), {}).versions())) == 1


def test_evolved_columns_and_partitions_are_read(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    table = write(catalog, topic, rows[:50])
    with table.update_schema() as schema:
        schema.rename_column("kafka_offset", "_offset")
    names = ["kafka_topic", "kafka_partition", "_offset", "total"]
    with table.update_spec() as spec:
        spec.add_field("kafka_partition", IdentityTransform(), "by_partition")
    table.append(rows_table(rows[50:100], topic).rename_columns(names))
    with table.update_spec() as spec:
        spec.remove_field("by_partition")
    table.append(rows_table([row for row in rows[100:] if row != (1, 55)], topic).rename_columns(names))
    address, options = table.refresh().metadata_location, ("--partition", "kafka_partition")
    status, report, errors = run_audit(topics, topic, address, *options)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 0), errors
    assert report["partitions"][1]["missing"] == [[55, 56]]


def test_lost_file_is_named_with_its_rows(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:40], rows[40:])
    lost = next(task.file.file_path for task in table.scan().plan_files() if task.file.record_count == 20)
    Path(lost.removeprefix("file://")).unlink()
    status, report, part = audit_newest(topics, topic, table)
    assert (status, part["missing"], report["lost_files"]) == (1, [[40, 60]], [lost])


def append_deletes(
    table: Table, content: DataFileContent, rows: pa.Table, equality_ids: list[int] | None = None
) -> None:
    path = folder_of(table) / "data" / f"deletes-{content.value}.parquet"
    pq.write_table(rows, path)
    deletes = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        equality_ids=equality_ids,
        file_size_in_bytes=path.stat().st_size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
    )
    deletes.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(deletes)


def test_rows_of_position_deletes_are_missing_and_their_snapshot_is_named(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows)
    (task,) = table.scan().plan_files()
    append_deletes(
        table,
        DataFileContent.POSITION_DELETES,
        pa.table({"file_path": [task.file.file_path] * 2, "pos": pa.array([7, 8], pa.int64())}),
    )
    deleting = table.refresh().current_snapshot()
    status, _, part = audit_newest(topics, topic, table)
    (loss,) = part["losses"]  # type: ignore[misc]
    assert (status, loss["ranges"]) == (1, [[7, 9]])
    assert deleting is not None
    assert f"snapshot {deleting.snapshot_id}" in loss["commit"]


OFFSETS = pa.schema([pa.field("kafka_offset", pa.int64(), metadata={"PARQUET:field_id": "3"})])


def deletes_of_offset_7(table: Table, content: DataFileContent) -> Path:
    """Delete the row by its offset or position, and return the delete file."""
    if content is DataFileContent.EQUALITY_DELETES:
        append_deletes(table, content, pa.table([[7]], schema=OFFSETS), [3])
    else:
        (task,) = table.scan().plan_files()
        position = pa.array([7], pa.int64())
        append_deletes(table, content, pa.table({"file_path": [task.file.file_path], "pos": position}))
    return folder_of(table) / "data" / f"deletes-{content.value}.parquet"


@pytest.mark.parametrize("content", [DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES])
def test_lost_delete_file_is_no_lost_data_file(topics: Topics, catalog: Catalog, content: DataFileContent) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows)
    (task,) = table.scan().plan_files()
    lost = deletes_of_offset_7(table, content)
    lost.unlink()
    status, report, errors = run_audit(topics, topic, table.refresh().metadata_location)
    assert (status, report) == (2, {})
    assert f"the delete file file://{lost} does not exist" in errors
    # Without the data file, its rows are lost, whatever was deleted.
    Path(task.file.file_path.removeprefix("file://")).unlink()
    status, report, part = audit_newest(topics, topic, table)
    assert (status, part["missing"], report["lost_files"]) == (1, [[0, 60]], [task.file.file_path])


@pytest.mark.parametrize("content", [DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES])
def test_delete_file_that_is_removed_during_the_audit_is_named(catalog: Catalog, content: DataFileContent) -> None:
    table = write(catalog, "orders", [(0, offset) for offset in range(10)])
    whole = table.refresh().current_snapshot()
    removed = deletes_of_offset_7(table, content)
    opened = IcebergTable(str(folder_of(table)), {})
    assert whole is not None
    table.refresh().manage_snapshots().rollback_to_snapshot(whole.snapshot_id).commit()
    removed.unlink()
    with pytest.raises(TableUnreadable, match=f"the delete file file://{removed} does not exist"):
        list(opened.batches(["kafka_offset"]))
    assert opened.lost_files == []


def test_equality_deletes_by_a_column_that_was_dropped_since_are_applied(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows)
    field_id = table.schema().find_field("total").field_id
    totals = pa.schema([pa.field("total", pa.float64(), metadata={"PARQUET:field_id": str(field_id)})])
    append_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table([[7 * 1.5]], schema=totals), [field_id])
    with table.refresh().update_schema() as schema:
        schema.delete_column("total").add_column("total", StringType())
    status, report, part = audit_newest(topics, topic, table)
    assert (status, report["missing"], part["missing"]) == (1, 1, [[7, 8]])


def test_equality_deletes_by_a_column_that_was_promoted_and_then_dropped_are_applied(
    topics: Topics, catalog: Catalog
) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows[:40])
    field_id = table.schema().find_field("kafka_partition").field_id
    with table.update_schema() as schema:
        schema.update_column("kafka_partition", LongType())
    wide = rows_table(rows[40:], topic).set_column(1, "kafka_partition", pa.array([1 << 40] * 20))
    table.refresh().append(wide)
    partitions = pa.schema([pa.field("number", pa.int64(), metadata={"PARQUET:field_id": str(field_id)})])
    append_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table([[1 << 40]], schema=partitions), [field_id])
    with table.refresh().update_schema() as schema:
        schema.delete_column("kafka_partition")
    status, report, part = audit_newest(topics, topic, table)
    assert (status, report["missing"], part["missing"]) == (1, 20, [[40, 60]])


def test_more_deleted_keys_than_the_limit_are_not_decided(
    topics: Topics, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows)
    offsets = pa.schema([pa.field("kafka_offset", pa.int64(), metadata={"PARQUET:field_id": "3"})])
    append_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table([[7, 8]], schema=offsets), [3])
    monkeypatch.setattr(equality_deletes, "MAX_DELETED_KEYS", 2)
    assert audit_newest(topics, topic, table)[2]["missing"] == [[7, 9]]
    monkeypatch.setattr(equality_deletes, "MAX_DELETED_KEYS", 1)
    status, report, errors = run_audit(topics, topic, table.refresh().metadata_location)
    assert (status, report) == (2, {})
    assert "2 rows of equality deletes in one partition exceed the limit of 1; compact the table" in errors


def test_equality_deletes_without_columns_are_refused(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    table = write(catalog, topic, rows)
    append_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table({"kafka_offset": pa.array([7], pa.int64())}))
    status, report, errors = run_audit(topics, topic, table.refresh().metadata_location)
    assert (status, report) == (2, {})
    assert "does not name the columns of its equality deletes" in errors


def test_two_newest_metadata_files_are_refused(topics: Topics, catalog: Catalog) -> None:
    topic, rows = filled_topic(topics)
    folder = folder_of(write(catalog, topic, rows))
    newest = max((folder / "metadata").glob("*.metadata.json"))
    newest.with_name(f"{newest.name[:5]}-lost-the-race.metadata.json").write_bytes(newest.read_bytes())
    status, _, errors = run_audit(topics, topic, folder)
    assert status == 2
    assert "has 2 newest metadata files; name the catalog" in errors
