"""Nine faults in tables of two formats with a history: each is found, with the commit if a commit made it.

The healthy table has three commits of 20 records each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import QueryBuilder
from deltalake.transaction import AddAction
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo

from penstock.audit.audit import audit
from penstock.audit.outcome import Request
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.audit.tables.table import open_table
from penstock.kafka.broker import Broker
from tests.audit.audited import Row, copy_file, filled_topic, rows_table, run_audit
from tests.kafka.kafka_helpers import Topics
from tests.landing.table.foreign_writer import add_without_vector, delete_by_vector, restore_after_optimize
from tests.object_store import BUCKET, S3Server

Spans = list[list[int]]


@pytest.fixture(scope="module")
def orders(kafka_broker: Broker) -> Iterator[tuple[Topics, str, list[Row]]]:
    topics = Topics(kafka_broker, "planted-faults")
    yield topics, *filled_topic(topics)
    topics.close()


class Lake(ABC):
    """A table, and what writers and accidents do to it. ``rows``: all records of the topic."""

    def __init__(self, folder: Path, topic: str, rows: Sequence[Row]) -> None:
        self.folder, self.topic, self.rows = folder, topic, rows

    @property
    @abstractmethod
    def address(self) -> str: ...

    @property
    @abstractmethod
    def catalog_address(self) -> str:
        """Return the address that leads to the newest version at any time."""

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the store or catalog."""
        return {}

    @abstractmethod
    def commit(self, rows: Sequence[Row], *, replaces: bool = False) -> None:
        """Append rows, or replace all rows by them."""

    @abstractmethod
    def delete(self, offset: int) -> None: ...

    @abstractmethod
    def reference_again(self, file: Path) -> None:
        """Commit a file whose rows the table has already."""

    @abstractmethod
    def newest(self) -> str:
        """Return the newest commit as a report names it."""

    @abstractmethod
    def data(self) -> Path:
        """Return the folder of the data files."""

    def file_of(self, offset: int) -> Path:
        """Return the file whose first row has this offset."""
        return next(path for path in self.data().rglob("*.parquet") if first_offset(path) == offset)


def first_offset(path: Path) -> int:
    offset: int = pq.ParquetFile(path).read(["kafka_offset"])["kafka_offset"][0].as_py()
    return offset


class DeltaLake(Lake):
    @property
    def address(self) -> str:
        return str(self.folder / "t")

    @property
    def catalog_address(self) -> str:
        return self.address

    def commit(self, rows: Sequence[Row], *, replaces: bool = False) -> None:
        table = rows_table(rows, self.topic)
        deltalake.write_deltalake(self.address, table, mode="overwrite" if replaces else "append")

    def delete(self, offset: int) -> None:
        deltalake.DeltaTable(self.address).delete(f"kafka_offset = {offset}")

    def reference_again(self, file: Path) -> None:
        # Delta lists a path once, so the second reference has a name of its own.
        copy_file(file, self.folder / "t" / "again.parquet")
        table = deltalake.DeltaTable(self.address)
        action = AddAction("again.parquet", file.stat().st_size, {}, 0, True, '{"numRecords": 20}')
        table.create_write_transaction([action], "append", table.schema())

    def newest(self) -> str:
        return f"version {deltalake.DeltaTable(self.address).version()},"

    def data(self) -> Path:
        return self.folder / "t"


class IcebergLake(Lake):
    def __init__(self, folder: Path, topic: str, rows: Sequence[Row]) -> None:
        super().__init__(folder, topic, rows)
        database, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/lake"
        catalog = load_catalog("lake", type="sql", uri=database, warehouse=warehouse)
        catalog.create_namespace("shop")
        self.table = catalog.create_table("shop.orders", schema=rows_table(rows).schema)

    @property
    def address(self) -> str:
        return self.table.refresh().metadata_location

    @property
    def catalog_address(self) -> str:
        return "iceberg://lake/shop.orders"

    @property
    def options(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db"}

    def commit(self, rows: Sequence[Row], *, replaces: bool = False) -> None:
        (self.table.overwrite if replaces else self.table.append)(rows_table(rows, self.topic))

    def delete(self, offset: int) -> None:
        self.table.delete(EqualTo("kafka_offset", offset))

    def reference_again(self, file: Path) -> None:
        self.table.add_files([f"file://{file}"], check_duplicate_files=False)

    def newest(self) -> str:
        # PyIceberg replaces rows in two snapshots: the first one removes them.
        snapshots = self.table.refresh().snapshots()
        named = snapshots[-2] if len(snapshots) > 4 else snapshots[-1]
        return f"snapshot {named.snapshot_id},"

    def data(self) -> Path:
        return Path(self.table.location().removeprefix("file://")) / "data"


def commit_all(lake: Lake) -> None:
    for begin in range(0, 60, 20):
        lake.commit(lake.rows[begin : begin + 20])


def lose_file(lake: Lake) -> None:
    commit_all(lake)
    lake.file_of(20).unlink()


def reference_file_twice(lake: Lake) -> None:
    commit_all(lake)
    lake.reference_again(lake.file_of(20))


def leave_orphan(lake: Lake) -> None:
    lake.commit(lake.rows[:20])
    lake.commit(lake.rows[40:])
    pq.write_table(rows_table(lake.rows[20:40], lake.topic), lake.data() / "orphan.parquet")


def drop_rows_in_rewrite(lake: Lake) -> None:
    commit_all(lake)
    lake.commit([row for row in lake.rows if row[1] not in (3, 31)], replaces=True)


def lose_batch(lake: Lake) -> None:
    lake.commit(lake.rows[:20])
    lake.commit(lake.rows[40:])


def double_batch(lake: Lake) -> None:
    commit_all(lake)
    lake.commit(lake.rows[20:40])


def reset_to_latest(lake: Lake) -> None:
    lake.commit(lake.rows[40:])


def delete_row(lake: Lake) -> None:
    commit_all(lake)
    lake.delete(17)


def lose_and_double_row(lake: Lake) -> None:
    lake.commit(lake.rows[:20])
    lake.commit([*lake.rows[20:25], lake.rows[26], *lake.rows[26:40]])
    lake.commit(lake.rows[40:])


class Fault(NamedTuple):
    plant: Callable[[Lake], None]
    missing: Spans
    doubled: Spans
    names_loss: bool = False
    names_doubling: bool = False
    orphan_rows: int = 0
    lost_files: int = 0


FAULTS = [
    Fault(lose_file, [[20, 40]], [], lost_files=1),
    Fault(reference_file_twice, [], [[20, 40]], names_doubling=True),
    Fault(leave_orphan, [[20, 40]], [], orphan_rows=20),
    Fault(drop_rows_in_rewrite, [[3, 4], [31, 32]], [], names_loss=True),
    Fault(lose_batch, [[20, 40]], []),
    Fault(double_batch, [], [[20, 40]], names_doubling=True),
    Fault(reset_to_latest, [[0, 40]], []),
    Fault(delete_row, [[17, 18]], [], names_loss=True),
    Fault(lose_and_double_row, [[25, 26]], [[26, 27]]),
]


@pytest.mark.parametrize("lake_type", [DeltaLake, IcebergLake])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
def test_planted_fault_is_found_with_its_commit(
    orders: tuple[Topics, str, list[Row]], tmp_path: Path, fault: Fault, lake_type: type[Lake]
) -> None:
    topics, topic, rows = orders
    lake = lake_type(tmp_path, topic, rows)
    fault.plant(lake)
    status, report, errors = run_audit(topics, topic, lake.address)
    assert status == 1, errors
    (part,) = report["partitions"]
    assert (part["missing"], part["doubled"]) == (fault.missing, fault.doubled)
    assert [loss["commit"].startswith(lake.newest()) for loss in part["losses"]] == [True] * fault.names_loss
    commits = sorted(part["doubled_in"].values())
    assert len(commits) == (2 if fault.names_doubling else len(fault.doubled))
    assert any(commit.startswith(lake.newest()) for commit in commits) == fault.names_doubling
    assert (sum(part["orphans"].values()), len(report["lost_files"])) == (fault.orphan_rows, fault.lost_files)


def test_file_that_is_listed_again_without_its_deletion_vector_is_doubled(
    orders: tuple[Topics, str, list[Row]], tmp_path: Path
) -> None:
    topics, topic, rows = orders
    folder = tmp_path / "t"
    deltalake.write_deltalake(str(folder), rows_table([*rows, rows[3]], topic))
    (name,) = [path.name for path in folder.glob("*.parquet")]
    delete_by_vector(folder, name, [len(rows)])
    assert run_audit(topics, topic, folder)[0] == 0
    faulty = add_without_vector(folder, name)
    status, report, errors = run_audit(topics, topic, folder)
    # Each reader reads all records twice, and the deleted row.
    reader = QueryBuilder().register("orders", deltalake.DeltaTable(str(folder)))
    read = pa.table(reader.execute("SELECT kafka_offset FROM orders").read_all())
    assert read.num_rows == 2 * len(rows) + 1
    assert (status, report.get("doubled")) == (1, len(rows)), errors
    (part,) = report["partitions"]
    assert part["doubled"] == [[0, len(rows)]]
    assert any(commit.startswith(f"version {faulty}, WRITE by ") for commit in part["doubled_in"].values())


@pytest.mark.parametrize("is_compacted", [False, True])
def test_restore_of_a_version_with_deleted_rows_is_not_named(
    orders: tuple[Topics, str, list[Row]], tmp_path: Path, is_compacted: bool
) -> None:
    topics, topic, rows = orders
    folder = tmp_path / "t"
    deltalake.write_deltalake(str(folder), rows_table(rows, topic))
    (name,) = [path.name for path in folder.glob("*.parquet")]
    deleting = delete_by_vector(folder, name, [17])
    if is_compacted:
        restore_after_optimize(folder, name, [17])
    status, report, errors = run_audit(topics, topic, folder)
    assert (status, report.get("missing")) == (1, 1), errors
    (loss,) = report["partitions"][0]["losses"]
    assert (loss["ranges"], loss["commit"].partition(" by ")[0]) == ([[17, 18]], f"version {deleting}, DELETE")


@pytest.mark.survives("audit", "foreign writer")
@pytest.mark.parametrize("lake_type", [DeltaLake, IcebergLake])
def test_table_that_changes_during_the_audit_is_read_at_the_opened_version(
    orders: tuple[Topics, str, list[Row]], tmp_path: Path, lake_type: type[Lake]
) -> None:
    topics, topic, rows = orders
    lake = lake_type(tmp_path, topic, rows)
    lake.commit(rows[:20])
    lake.commit([row for row in rows[10:50] if row[1] != 30])
    opened = open_table(lake.catalog_address, lake.options)

    def change(step: str = "partition 0") -> None:
        """Fill the gaps, double others and rewrite all files; at first before the audit reads any row."""
        if step == "partition 0":
            lake.commit(rows[30:])
            lake.delete(5)
            lake.commit(rows, replaces=True)
            lake.commit(rows[40:])

    change()
    with closing(KafkaSource(topic, {"bootstrap.servers": topics.address})) as source:
        report = audit(source, opened, lake.catalog_address, Request(grace_s=0), change)
    (part,) = report.partitions
    assert report.version == opened.version
    assert (part.rows, part.missing.tolist(), part.doubled.tolist()) == (59, [[30, 31], [50, 60]], [[10, 20]])
    # The opened version and its history name the commits, and files of newer versions are not orphans.
    assert len({commit for commit in part.doubled_in.values() if commit}) == 2
    assert (part.losses, part.orphans, report.lost_files) == ([], {}, [])
    status, now, errors = run_audit(topics, topic, lake.address)
    assert (status, now["missing"], now["partitions"][0]["doubled"]) == (1, 0, [[40, 60]]), errors


def store_delta(s3: S3Server, address: str, topic: str, batches: Sequence[Sequence[Row]]) -> str:
    for batch in batches:
        deltalake.write_deltalake(address, rows_table(batch, topic), mode="append", storage_options=s3.options())
    return address


def store_iceberg(s3: S3Server, address: str, topic: str, batches: Sequence[Sequence[Row]]) -> str:
    catalog = load_catalog("memory", type="in-memory", warehouse=address, **iceberg_options(s3))
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=rows_table(batches[0]).schema, location=address)
    for batch in batches:
        table.append(rows_table(batch, topic))
    return table.metadata_location


def iceberg_options(s3: S3Server) -> dict[str, str]:
    options = s3.options()
    keys = {"s3.access-key-id": "AWS_ACCESS_KEY_ID", "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY"}
    keys |= {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
    return {name: options[key] for name, key in keys.items()}


@pytest.mark.parametrize("store_table", [store_delta, store_iceberg])
def test_orphan_in_an_object_store_is_named(
    orders: tuple[Topics, str, list[Row]], s3: S3Server, tmp_path: Path, store_table: Callable[..., str]
) -> None:
    topics, topic, rows = orders
    name = f"{BUCKET}/{tmp_path.name}/orders"
    address = store_table(s3, f"s3://{name}", topic, [rows[:20], rows[40:]])
    pq.write_table(rows_table(rows[20:30], topic), f"{name}/data/orphan.parquet", filesystem=s3.file_system())
    settings = s3.options() if store_table is store_delta else iceberg_options(s3)
    options = [text for key, setting in settings.items() for text in ("--store", f"{key}={setting}")]
    status, report, errors = run_audit(topics, topic, address, *options)
    assert (status, report.get("missing"), report.get("unsearched")) == (1, 20, []), errors
    ((orphan, count),) = report["partitions"][0]["orphans"].items()
    assert (orphan.removeprefix(f"s3://{name}/"), count) == ("data/orphan.parquet", 10)
