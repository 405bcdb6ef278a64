"""The table as other software reads it, without Penstock: as many rows, and the same uuids, as the proofs say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock.tables
from penstock.landing.from_kafka.rows import ROW
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table.plain_session import session_settings, statements
from penstock.landing.table_paths import Layout
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, write_part
from penstock.proof.uuid_sums import hashes
from penstock.testing.spark_extensions import package_settings
from penstock.upkeep.compaction.compaction import compact_table
from tests.engines.foreign_spark import ForeignSpark
from tests.engines.read_uuids import ENGINES
from tests.spark.spark_helpers import event

SCRIPT = Path(__file__).with_name("read_uuids.py")
WINDOW = 600_000_000
ROWS = 20
LANDED_AT = 1_700_000_100_000_000


@dataclass
class Landed:
    """A table that batches are landed into, and the uuids that are in it."""

    layout: Layout
    commit: BatchCommit
    job: Job
    uuids: set[str]

    def land(self, batches: range) -> None:
        """Land batches; each one repeats an event of the batch before and has a row that is not an event."""
        for batch in batches:
            numbers = [*range(batch * ROWS - 1, batch * ROWS + ROWS)]
            payloads = [*(event(number) for number in numbers if number >= 0), b"{no json"]
            self.uuids |= {f"u{number}" for number in numbers if number >= 0}
            part = write_part([MessageBatch(messages(payloads, batch))], self.job, LANDED_AT)
            self.commit.land(batch, partial(list, [part]))


def messages(payloads: list[bytes], batch: int) -> pa.RecordBatch:
    stamp = LANDED_AT + batch * 1_000_000
    rows = [
        {
            "topic": "events",
            "offset": batch * 100 + moment,
            "timestamp": stamp,
            "received": stamp,
            "bucket": LANDED_AT,
            "source": "udp",
            "codec": "plog",
            "payload": payload,
        }
        for moment, payload in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROW)


@pytest.fixture(scope="module", params=[10, 110])
def landed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Landed:
    """A table before and after Delta's first checkpoint; tests share it and do not write."""
    layout = Layout.for_tables(tmp_path_factory.mktemp("landed") / "tables")
    table = begin_table(layout)
    commit = BatchCommit(table, layout.keys, WINDOW)
    written = Landed(layout, commit, Job(table.folder, layout.keys, WINDOW), set())
    written.land(range(request.param))
    return written


def read_with(engine: str, layout: Layout, output: Path) -> list[str]:
    environment = dict(os.environ)
    if engine == "spark-connect":
        jars = {name: value for name, value in package_settings(["delta"]).items() if name == "spark.jars"}
        settings = {name: v for name, v in session_settings(layout).items() if name != "spark.jars.packages"} | jars
        warehouse = {"spark.sql.warehouse.dir": str(output.parent / "warehouse"), "spark.ui.enabled": "false"}
        quick = {"spark.databricks.delta.snapshotPartitions": "2", "spark.sql.shuffle.partitions": "2"}
        environment["SPARK_SETTINGS"] = json.dumps({**settings, **warehouse, **quick})
        environment["SPARK_STATEMENTS"] = json.dumps(statements(layout))
    command = [sys.executable, str(SCRIPT), engine, str(layout.landed), str(output)]
    subprocess.run(command, check=True, timeout=240, env=environment, cwd=output.parent)
    uuids_read: list[str] = json.loads(output.read_text())
    return uuids_read


def total(uuids: list[str]) -> int:
    return int(np.sum(hashes(uuids), dtype=np.uint64))


@pytest.mark.parametrize("engine", sorted({*ENGINES} - {"spark-connect"}))
def test_each_engine_reads_each_event_once(engine: str, landed: Landed, tmp_path: Path) -> None:
    assert_all_read(read_with(engine, landed.layout, tmp_path / "uuids.json"), landed)


@pytest.mark.spark
@pytest.mark.parametrize("landed", [110], indirect=True)  # a server of its own for each run
def test_spark_connect_reads_each_event_once(landed: Landed, tmp_path: Path) -> None:
    assert_all_read(read_with("spark-connect", landed.layout, tmp_path / "uuids.json"), landed)


@pytest.mark.spark
def test_spark_reads_each_event_once(foreign_spark: ForeignSpark, landed: Landed) -> None:
    foreign_spark.use_tables(statements(landed.layout))
    uuids = [str(row["uuid"]) for row in foreign_spark.sql("SELECT uuid FROM events")]
    assert_all_read(uuids, landed)
    (counts,) = foreign_spark.sql("SELECT count(*) AS rows FROM {} WHERE kind = 'event'", landed.layout.landed)
    assert counts == {"rows": len(uuids)}


def assert_all_read(uuids: list[str], landed: Landed) -> None:
    assert (len(uuids), total(uuids)) == (len(landed.uuids), total(sorted(landed.uuids)))


def test_each_engine_reads_the_same_after_a_merge(landed: Landed, tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    shutil.copytree(landed.layout.tables, layout.tables)
    removed, added = compact_table(layout.landed)
    assert removed > added
    for engine in ("duckdb", "polars", "pyarrow"):
        assert sorted(read_with(engine, layout, tmp_path / "uuids.json")) == sorted(landed.uuids), engine


def test_dataset_of_penstock_has_the_same_rows(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    table = begin_table(layout)
    written = Landed(layout, BatchCommit(table, layout.keys, WINDOW), Job(table.folder, layout.keys, WINDOW), set())
    assert penstock.tables.open(tmp_path, "events").count_rows() == 0
    written.land(range(3))
    assert penstock.tables.open(tmp_path).count_rows() == len(written.uuids) + 3
    assert set(penstock.tables.open(tmp_path, "events").to_table()["uuid"].to_pylist()) == written.uuids
    assert penstock.tables.open(tmp_path, "quarantine").count_rows() == 3
    with pytest.raises(penstock.tables.NoSuchView):
        penstock.tables.open(tmp_path, "nothing")
    for read in (penstock.tables.open, penstock.tables.changes):
        with pytest.raises(FileNotFoundError, match=f"no folder of tables at {tmp_path}/tabls"):
            read(tmp_path / "tabls", "events")
