"""The table as other software reads it, without Penstock: as many rows, and the same uuids, as the proofs say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
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
from penstock.spark.extensions import package_settings
from penstock.upkeep.compaction.compaction import compact_table
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
        """Land batches; each one repeats an event of the batch before and has a row that is no event."""
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


@pytest.fixture(params=[10, 110])
def landed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Landed]:
    layout = Layout.for_tables(tmp_path / "tables")
    table = begin_table(layout)
    commit = BatchCommit(table, layout.keys, WINDOW)
    written = Landed(layout, commit, Job(table.folder, layout.keys, WINDOW), set())
    written.land(range(request.param))
    return written


def read_with(engine: str, landed: Landed, output: Path) -> list[str]:
    environment = dict(os.environ)
    if engine.startswith("spark"):
        jars = {name: value for name, value in package_settings(["delta"]).items() if name == "spark.jars"}
        settings = {
            name: v for name, v in session_settings(landed.layout).items() if name != "spark.jars.packages"
        } | jars
        warehouse = {"spark.sql.warehouse.dir": str(output.parent / "warehouse"), "spark.ui.enabled": "false"}
        quick = {"spark.databricks.delta.snapshotPartitions": "2", "spark.sql.shuffle.partitions": "2"}
        environment["SPARK_SETTINGS"] = json.dumps({**settings, **warehouse, **quick})
        environment["SPARK_STATEMENTS"] = json.dumps(statements(landed.layout))
    command = [sys.executable, str(SCRIPT), engine, str(landed.layout.landed), str(output)]
    subprocess.run(command, check=True, timeout=240, env=environment, cwd=output.parent)
    uuids_read: list[str] = json.loads(output.read_text())
    return uuids_read


def total(uuids: list[str]) -> int:
    return int(np.sum(hashes(uuids), dtype=np.uint64))


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_each_engine_reads_each_event_once(engine: str, landed: Landed, tmp_path: Path) -> None:
    uuids_read = read_with(engine, landed, tmp_path / "uuids.json")
    assert len(uuids_read) == len(landed.uuids)
    assert total(uuids_read) == total(sorted(landed.uuids))


@pytest.mark.parametrize("engine", ["duckdb", "polars", "pyarrow"])
def test_each_engine_reads_the_same_after_a_merge(engine: str, landed: Landed, tmp_path: Path) -> None:
    removed, added = compact_table(landed.layout.landed)
    assert removed > added
    assert sorted(read_with(engine, landed, tmp_path / "uuids.json")) == sorted(landed.uuids)


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
