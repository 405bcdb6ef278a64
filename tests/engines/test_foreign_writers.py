"""Delta's own Spark writes to Penstock's tables, between Penstock's commits, merges and deletions.

Spark is the judge, too: what it reads in the end is what both did, each once, and nothing that was deleted came back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import penstock.tables
from penstock.landing.md5_columns import text_hashes
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import FOREIGN, REQUESTED, load_deletions, request_deletion
from penstock.landing.table.deletion_vectors import read_mask
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.features import FeatureNotWritten
from penstock.landing.table_paths import Layout
from penstock.proof.rows_of_batches import SnapshotRows
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from tests.engines.foreign_spark import ForeignSpark
from tests.landing.table.foreign_writer import add_without_vector, commit, latest_add
from tests.landing.typed.typed_life import CLICK, WINDOW, Life
from tests.landing.writing.messages import source
from tests.proof.proof_sql import documented_sql
from tests.spark.spark_helpers import HandWritten, landed_event, landed_message

pytestmark = pytest.mark.spark
ROWS = 10
EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds: the first of the year 1 and the last of the year 9999, which no nanoseconds hold."""


class Shared:
    """A table that both write; ``uuids``: what must be in it."""

    def __init__(self, folder: Path, spark: ForeignSpark) -> None:
        self.life, self._spark = Life(Layout.for_tables(folder)), spark
        self.layout, self.landed = self.life.layout, self.life.layout.tables / "landed"
        self.uuids: set[str] = set()
        self._batches = 0

    def land(self, batches: int = 2) -> None:
        for _ in range(batches):
            numbers = range(self._batches * ROWS, self._batches * ROWS + ROWS)
            times = [EARLIEST, LATEST, 5]
            events = [
                {"type": "click", "uuid": f"a-{n:03}", "timestamp": times[n % 3], "host": "h", "data": {"ms": n}}
                for n in numbers
            ]
            self.life.land(
                self._batches, [source([(n, json.dumps(e).encode()) for n, e in zip(numbers, events, strict=True)])]
            )
            self.uuids |= {str(event["uuid"]) for event in events}
            self._batches += 1

    def spark(self, statement: str, *deleted: str) -> list[dict[str, object]]:
        self.uuids -= {*deleted}
        return self._spark.sql(statement, self.landed)

    def delete(self, uuid: str) -> None:
        """Delete a row with Penstock."""
        request_deletion(self.layout, REQUESTED, parse_conditions(f"uuid = '{uuid}'"))
        note_foreign_changes(self.layout)
        execute_deletions(self.layout, WINDOW)
        self.uuids.discard(uuid)

    def compact(self) -> None:
        compact_all(self.layout)

    def check(self) -> None:
        """Spark and Penstock see the same rows, each once, with exact times."""
        rows = self.spark("SELECT uuid, unix_millis(event_time) AS millis FROM {}")
        assert sorted(str(row["uuid"]) for row in rows) == sorted(self.uuids)
        assert all(row["millis"] == [EARLIEST, LATEST, 5][int(str(row["uuid"])[2:]) % 3] for row in rows)
        with Query(Tables(self.layout, typed=(CLICK,)), "SELECT uuid FROM landed ORDER BY 1") as query:
            assert query.answer()["uuid"].to_pylist() == sorted(self.uuids)
        dataset = penstock.tables.open(self.layout.tables, "events").to_table()
        assert sorted(map(str, dataset["uuid"].to_pylist())) == sorted(self.uuids)


@pytest.fixture
def table(tmp_path: Path, foreign_spark: ForeignSpark) -> Shared:
    written = Shared(tmp_path / "tables", foreign_spark)
    written.land(3)
    return written


VECTORS = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
DELETE = "DELETE FROM {} WHERE uuid = 'a-011'"
UPDATE = "UPDATE {} SET host = 'changed' WHERE uuid IN ('a-005', 'a-012')"
MERGE = (
    "MERGE INTO {} AS t USING (SELECT explode(array('a-003', 'a-021')) AS u) AS s ON t.uuid = s.u "
    "WHEN MATCHED AND t.uuid = 'a-003' THEN DELETE WHEN MATCHED THEN UPDATE SET host = 'merged'"
)


def test_deletion_vectors_hold_through_everything(table: Shared) -> None:
    table.spark(VECTORS)
    table.spark(DELETE, "a-011")
    DeltaTable(table.layout.landed).vacuum(0)
    table.check()
    table.delete("a-012")
    table.check()
    table.spark(UPDATE.replace("a-012", "a-013"))
    table.land()
    table.compact()
    table.check()
    table.spark(MERGE, "a-003")
    table.delete("a-004")
    table.compact()
    table.check()
    assert [row["host"] for row in table.spark("SELECT host FROM {} WHERE uuid = 'a-005'")] == ["changed"]


ROW = {
    "data": '{"\u00e9":1}',
    "payload": b"\xff\x00",
    "key": b"",
    "annotations": [("a", "1"), ("b", "")],
    "received": datetime(1969, 12, 31, 23, 59, 59, 999500, UTC),
    "event_time": datetime(9999, 12, 31, tzinfo=UTC),
}


def test_documented_sql_finds_an_altered_row_in_spark(
    foreign_spark: ForeignSpark, topics: Path, tmp_path: Path
) -> None:
    proved = HandWritten(Layout.for_tables(tmp_path / "proved"), hashed=True)
    events = [landed_event(n, f"u{n}", **row) for n, row in enumerate((ROW, {}, {"annotations": []}))]
    proved.commit({"t": 3, "k/1": 2}, [*events, *(landed_message(n, "k", partition=1) for n in range(2))])
    assert ProofWorker(Landing(topics, proved.layout.tables), None).stop(0)
    landed = proved.layout.tables / "landed"
    sql = documented_sql("Spark").replace("from landed", "from {}")
    sql = sql.replace("from proofs", f"from delta.`{proved.layout.proof_table}`")
    assert foreign_spark.sql(sql, landed) == []
    foreign_spark.sql("UPDATE {} SET uuid = 'altered' WHERE uuid = 'u1'", landed)
    (difference,) = foreign_spark.sql(sql, landed)
    assert (difference["topic"], difference["slice"], difference["rows"]) == ("t", 0, 0)
    assert difference["uuid_hashes"] == str(uuid_hash("altered") - uuid_hash("u1"))
    foreign_spark.sql("UPDATE {} SET uuid = 'u1' WHERE uuid = 'altered'", landed)
    assert foreign_spark.sql(sql, landed) == []
    foreign_spark.sql("UPDATE {} SET data = '{{}}' WHERE topic = 'k' AND `offset` = 1", landed)
    (difference,) = foreign_spark.sql(sql, landed)
    assert (difference["topic"], difference["partition"], difference["offset"]) == ("k", 1, "1")


def uuid_hash(text: str) -> int:
    return int(text_hashes(pa.array([text]))[0])


def test_rows_deleted_updated_and_merged_without_vectors(table: Shared) -> None:
    note_foreign_changes(table.layout)
    table.spark(DELETE, "a-011")
    table.spark(UPDATE)
    table.land()
    table.spark(MERGE, "a-003")
    table.compact()
    table.delete("a-012")
    table.check()
    foreign = [row for row in load_deletions(table.layout) if row.why == FOREIGN]
    assert [row.operation for row in foreign] == ["DELETE", "MERGE"]
    assert all("Apache-Spark" in row.engine for row in foreign)


def test_columns_of_others_are_carried_through_every_rewrite(table: Shared) -> None:
    def teams() -> dict[object, object]:
        rows = table.spark("SELECT uuid, team, scores FROM {} WHERE team IS NOT NULL")
        return {row["uuid"]: (row["team"], row["scores"]) for row in rows}

    table.spark("ALTER TABLE {} ADD COLUMNS (team STRING, scores ARRAY<STRUCT<n: INT, t: TIMESTAMP>>)")
    table.spark(
        "UPDATE {} SET team = 'blue', scores = array(named_struct('n', 1, 't', timestamp'2026-01-01T00:00:00Z')) "
        "WHERE uuid IN ('a-005', 'a-014')"
    )
    before = teams()
    assert len(before) == 2
    table.compact()
    assert teams() == before
    table.land()
    table.delete("a-006")
    table.compact()
    assert teams() == before
    table.check()


def test_files_that_spark_optimized_are_read_merged_and_deleted_from(table: Shared) -> None:
    table.spark("OPTIMIZE {}")
    table.check()
    assert len(SnapshotRows(table.layout)._files) == 1
    table.land()
    table.compact()
    table.check()
    table.spark("OPTIMIZE {} ZORDER BY (uuid)")
    table.delete("a-005")
    table.check()


def test_vector_on_times_beyond_nanoseconds_is_applied(table: Shared) -> None:
    table.spark("OPTIMIZE {}")
    table.spark(VECTORS)
    table.spark(DELETE, "a-011")
    table.land()
    table.check()
    table.delete("a-012")
    assert all(file.is_plain for file in table.life.table.active())
    table.check()
    table.compact()
    table.check()


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("has_two_vectors", [False, True])
def test_file_that_is_listed_twice_is_rewritten_once_for_all(table: Shared, has_two_vectors: bool) -> None:
    """trinodb/trino#31253, #24648: Spark has both entries, too, until Penstock removes them."""
    note_foreign_changes(table.layout)
    table.spark(VECTORS)
    table.spark(DELETE, "a-011")
    (marked,) = [file for file in table.life.table.active() if file.live is not None]
    assert marked.live is not None
    before, live = latest_add(table.landed, marked), marked.live
    read = read_mask(table.layout.landed, before["deletionVector"], ROWS)
    assert read.tolist() == [*live.tolist(), *[True] * (ROWS - len(live))], "as delta-rs reads the vector of Spark"
    if has_two_vectors:
        table.spark(DELETE.replace("a-011", "a-012"), "a-012")
        commit(table.landed, [{"add": before}])
    else:
        add_without_vector(table.landed, marked)
    assert len(table.spark("SELECT uuid FROM {}")) > len(table.uuids)
    table.land()
    table.delete("a-013")
    table.check()
    table.compact()
    table.check()
    assert len(table.spark("DESCRIBE HISTORY {}")) == table.life.table.version() + 1


@pytest.mark.parametrize(
    ("statement", "named", "undo"),
    [
        (
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
            "rowTracking",
            [
                "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')",
                "ALTER TABLE {} DROP FEATURE rowTracking",
                "ALTER TABLE {} DROP FEATURE domainMetadata",
            ],
        ),
        (
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5', "
            "'delta.columnMapping.mode' = 'name')",
            "columnMapping",
            [],
        ),
        ("ALTER TABLE {} ADD CONSTRAINT small CHECK (host < 'm')", "small", ["ALTER TABLE {} DROP CONSTRAINT small"]),
        (
            "ALTER TABLE {} ADD COLUMNS (v VARIANT)",
            "variantType",
            [
                "SET spark.databricks.delta.restore.protocolDowngradeAllowed = true",
                "RESTORE TABLE {} TO VERSION AS OF {before}",
                "RESET spark.databricks.delta.restore.protocolDowngradeAllowed",
            ],
        ),
    ],
)
def test_feature_that_is_not_written_stops_the_landing_with_one_line(
    table: Shared, statement: str, named: str, undo: list[str]
) -> None:
    attempts: list[Callable[[], object]] = [table.life.table.begin, table.land, table.compact]
    before = table.life.table.version()
    table.spark(statement)
    for attempt in attempts:
        with pytest.raises(FeatureNotWritten, match=named):
            attempt()
    for row in undo:
        table.spark(row.replace("{before}", str(before)))
    if undo:
        table.land()
        table.compact()
        table.check()


def test_change_data_feed_and_properties_are_left_alone(table: Shared) -> None:
    table.spark(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', "
        "'delta.logRetentionDuration' = 'interval 30 days')"
    )
    table.life.table.begin()
    table.land()
    table.delete("a-005")
    table.compact()
    table.check()
    properties = {row["key"]: row["value"] for row in table.spark("SHOW TBLPROPERTIES {}")}
    assert properties["delta.logRetentionDuration"] == "interval 30 days"
    assert properties["delta.enableChangeDataFeed"] == "true"


@pytest.mark.parametrize("name", ["landed", "events_click"])
def test_change_data_feed_has_each_insert_and_delete_once(table: Shared, name: str) -> None:
    folder = table.layout.tables / name
    table.spark(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    first = deltalake.DeltaTable(str(folder)).version()
    earlier = {*table.uuids}
    table.land()
    table.delete("a-005")
    table.compact()
    table.delete("a-031")
    table.spark(f"DELETE FROM delta.`{folder}` WHERE uuid = 'a-012'")
    table.land(1)
    table.delete("a-014")
    table.compact()
    removed = {"a-005", "a-031", "a-012", "a-014"}
    expected = sorted([("insert", uuid) for uuid in {*table.uuids, *removed} - earlier])
    expected += sorted(("delete", uuid) for uuid in removed)
    feed = deltalake.DeltaTable(str(folder)).load_cdf(starting_version=first)
    by_delta_rs = [(row["_change_type"], row["uuid"]) for row in pa.table(feed).to_pylist()]
    rows = table.spark(f"SELECT _change_type, uuid FROM table_changes_by_path('{folder}', {first})")
    by_spark = [(row["_change_type"], row["uuid"]) for row in rows]
    assert sorted(by_delta_rs) == sorted(by_spark) == sorted(expected)


def test_change_data_feed_after_a_deletion_vector_has_no_copied_row(table: Shared) -> None:
    table.spark("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    table.spark(VECTORS)
    first = deltalake.DeltaTable(str(table.landed)).version()
    table.spark(DELETE, "a-011")
    note_foreign_changes(table.layout)
    table.delete("a-012")
    table.check()
    rows = table.spark(f"SELECT _change_type, uuid FROM table_changes_by_path('{table.landed}', {first})")
    assert sorted((row["_change_type"], row["uuid"]) for row in rows) == [("delete", "a-011"), ("delete", "a-012")]


PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.fixture
def documented() -> list[str]:
    """The tests that the page names."""
    return re.findall(r"\| `(test_\w+)` \|$", PAGE.read_text(), re.MULTILINE)


def test_page_names_each_of_these_tests_once(documented: list[str]) -> None:
    here = [
        name for name in globals() if name.startswith("test_") and not name.startswith(("test_page", "test_documented"))
    ]
    assert sorted(documented) == sorted(here)
