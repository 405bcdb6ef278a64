"""Trino reads Penstock's tables and writes to them, between Penstock's commits, merges and deletions."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from penstock.config.keys.pipeline import IcebergConfig
from penstock.config.syntax.tables_url import TablesUrl
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import FOREIGN, REQUESTED, DeletionRecord, load_deletions, request_deletion
from penstock.landing.table_paths import Layout
from penstock.proof.commit_notes import noted_complaints
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.iceberg.mirror import IcebergMirror, catalog_properties
from tests.engines.test_foreign_writers import EARLIEST, LATEST, ROW, Shared
from tests.engines.trino_server import VERSION, Trino
from tests.landing.typed.typed_life import WINDOW, Life
from tests.object_store import BUCKET, S3Server
from tests.proof.proof_sql import documented_sql
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message
from tests.upkeep.iceberg.test_mirrored_table import land, uuids

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def trino(s3: S3Server) -> Iterator[Trino]:
    with Trino(f"s3://{BUCKET}", s3.options()) as server:
        yield server


class TrinoTable(Shared):
    """A table in S3 that Trino and Penstock write."""

    def __init__(self, layout: Layout, trino: Trino) -> None:
        self.life, self._trino = Life(layout), trino
        self.layout, self.uuids, self._batches = layout, set(), 0
        self._name = trino.register(f"t{next(NUMBERS)}", str(layout.landed))

    def spark(self, statement: str, *deleted: str) -> list[dict[str, Any]]:
        """Run a statement in Trino, in which ``{}`` is the table."""
        self.uuids -= {*deleted}
        return self._trino.sql(statement.replace("{}", self._name))

    def check(self) -> None:
        """Trino and Penstock see the same rows, each once, with exact times."""
        rows = self.spark("SELECT uuid, cast(to_unixtime(event_time) * 1000 AS bigint) AS millis FROM {}")
        assert sorted(str(row["uuid"]) for row in rows) == sorted(self.uuids)
        assert all(row["millis"] == [EARLIEST, LATEST, 5][int(row["uuid"][2:]) % 3] for row in rows)


@pytest.fixture
def table(at_url: Layout, trino: Trino) -> TrinoTable:
    written = TrinoTable(at_url, trino)
    written.land(3)
    return written


def enable_vectors(s3: S3Server, table: TrinoTable) -> None:
    """Commit the feature, which Trino enables for new tables only."""
    log = f"{table.layout.landed}/_delta_log".removeprefix("s3://")
    files = s3.file_system()
    with files.open_input_stream(f"{log}/{0:020}.json") as first:
        actions = [json.loads(line) for line in first.read().decode().splitlines()]
    metadata = next(action for action in actions if "metaData" in action)
    metadata["metaData"]["configuration"]["delta.enableDeletionVectors"] = "true"
    features = {
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
    }
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    with files.open_output_stream(f"{log}/{table.life.table.version() + 1:020}.json") as commit:
        commit.write("\n".join(map(json.dumps, (protocol, metadata))).encode())


def test_rows_are_read_through_merges_deletions_and_checkpoints(table: TrinoTable) -> None:
    table.check()
    table.delete("a-001")
    table.compact()
    table.check()
    table.land(105)
    table.check()


@pytest.mark.parametrize("has_vectors", [False, True])
def test_rows_that_trino_deletes_are_counted_and_stay_deleted(
    s3: S3Server, table: TrinoTable, has_vectors: bool
) -> None:
    note_foreign_changes(table.layout)
    if has_vectors:
        enable_vectors(s3, table)
    table.spark("DELETE FROM {} WHERE uuid = 'a-011'", "a-011")
    table.land()
    table.delete("a-012")
    table.spark("DELETE FROM {} WHERE uuid = 'a-013'", "a-013")
    note_foreign_changes(table.layout)
    table.check()
    table.spark("ALTER TABLE {} EXECUTE optimize")
    table.land()
    note_foreign_changes(table.layout)
    execute_deletions(table.layout, WINDOW)
    table.compact()
    table.check()
    record = DeletionRecord(table.layout)
    foreign = [row for row in load_deletions(table.layout) if row.why == FOREIGN]
    assert sum(record.rows(deletion.number) for deletion in foreign) == 2
    assert all(f"trino-{VERSION}" in row.engine for row in foreign)
    assert noted_complaints(table.layout) == []


def test_rows_that_trino_changes_inserts_and_brings_back(table: TrinoTable) -> None:
    before = table.life.table.version()
    table.delete("a-001")
    note_foreign_changes(table.layout)
    table.spark("UPDATE {} SET host = 'changed' WHERE uuid = 'a-005'")
    note_foreign_changes(table.layout)
    assert noted_complaints(table.layout) == []
    columns = ", ".join(f'"{row["Column"]}"' for row in table.spark("SHOW COLUMNS FROM {}"))
    table.spark(
        f"INSERT INTO {{}} ({columns}) SELECT {columns} FROM {{}} FOR VERSION AS OF {before} WHERE uuid = 'a-001'"
    )
    note_foreign_changes(table.layout)
    execute_deletions(table.layout, WINDOW)
    (complaint,) = noted_complaints(table.layout)
    assert "brought 1 deleted rows back" in complaint.text
    assert f"trino-{VERSION}" in complaint.text
    table.land()
    table.compact()
    table.check()
    assert [row["host"] for row in table.spark("SELECT host FROM {} WHERE uuid = 'a-005'")] == ["changed"]


def test_documented_sql_finds_an_altered_row(s3: S3Server, trino: Trino, topics: Path, at_url: Layout) -> None:
    proved = HandWritten(at_url, hashed=True)
    events = [landed_event(n, f"u{n}", **row) for n, row in enumerate((ROW, {}, {"annotations": []}))]
    proved.commit({"t": 3, "k/1": 2}, [*events, *(landed_message(n, "k", partition=1) for n in range(2))])
    url = TablesUrl(str(at_url.landed).removesuffix("/landed"), at_url.tables, s3.options())
    assert ProofWorker(Landing(topics, url), None).stop(0)
    number = next(NUMBERS)
    landed = trino.register(f"landed{number}", str(at_url.landed))
    proofs = trino.register(f"proofs{number}", str(at_url.proof_table))
    sql = documented_sql("Trino").replace("from landed", f"from {landed}").replace("from proofs", f"from {proofs}")
    assert trino.sql(sql) == []
    trino.sql(f"UPDATE {landed} SET uuid = 'altered' WHERE uuid = 'u1'")
    (difference,) = trino.sql(sql)
    assert (difference["topic"], difference["offset"], difference["rows"]) == ("t", "1", 0)
    trino.sql(f"UPDATE {landed} SET uuid = 'u1' WHERE uuid = 'altered'")
    assert trino.sql(sql) == []
    trino.sql(f"UPDATE {landed} SET data = '{{}}' WHERE topic = 'k' AND \"offset\" = 1")
    (difference,) = trino.sql(sql)
    assert (difference["topic"], difference["partition"], difference["offset"]) == ("k", 1, "1")


def test_iceberg_tables_have_the_same_rows_through_deletions_and_merges(
    trino: Trino, at_url: Layout, tmp_path: Path
) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    config = IcebergConfig(catalog="lake", options=options)
    mirror, life = IcebergMirror(at_url, config, lambda hours: time.time()), Life(at_url)
    catalog = load_catalog("lake", **catalog_properties(at_url, config))

    def place(table: str) -> str:
        return catalog.load_table(f"penstock.{table}").location()

    def by_trino() -> list[str]:
        mirror.step()
        typed, landed = (
            trino.register(f"{table}{next(NUMBERS)}", place(table), "iceberg") for table in ("events_click", "landed")
        )
        rows = [str(row["uuid"]) for row in trino.sql(f"SELECT uuid FROM {landed} WHERE kind = 'event'")]
        assert sorted(str(row["uuid"]) for row in trino.sql(f"SELECT uuid FROM {typed}")) == sorted(rows)
        return sorted(rows)

    for batch in range(4):
        land(life, batch)
    assert by_trino() == uuids(0, 1, 2, 3)
    request_deletion(at_url, REQUESTED, parse_conditions("uuid = '1-1'"))
    execute_deletions(at_url, WINDOW)
    compact_table(at_url.landed)
    assert by_trino() == [uuid for uuid in uuids(0, 1, 2, 3) if uuid != "1-1"]
