"""Faults that delta-spark itself writes are found by an audit, with the commit; its maintenance is not a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.audit.audited import RECORDS, run_audit, write_parquet
from tests.engines.foreign_spark import ForeignSpark

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
COLUMNS = "'orders' AS kafka_topic, 0 AS kafka_partition, id AS kafka_offset, id * 1.5 AS total"


def audited(source: Path, table: Path) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Return the exit status, the report, and the report of the only partition."""
    status, report, errors = run_audit("", str(source), table)
    assert report, errors
    return status, report, report["partitions"][0]


def test_faults_of_delta_spark_are_found_with_their_commit(foreign_spark: ForeignSpark, tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "source", [(0, offset) for offset in range(RECORDS)])
    table = tmp_path / "t"
    foreign_spark.sql(
        "CREATE TABLE {} USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = true, 'delta.checkpointInterval' = 2)"
        f" AS SELECT {COLUMNS} FROM range(30)",
        table,
    )
    for begin in (30, 50):
        foreign_spark.sql(f"INSERT INTO {{}} SELECT {COLUMNS} FROM range({begin}, {RECORDS})", table)
    status, report, part = audited(source, table)
    assert (status, report["missing"], part["doubled"]) == (1, 0, [[50, RECORDS]])
    assert sorted(commit.partition(" by ")[0] for commit in part["doubled_in"].values()) == [
        "version 1, WRITE",
        "version 2, WRITE",
    ]
    # A deletion vector removes one row of a file; the file stays until it is compacted.
    foreign_spark.sql("DELETE FROM {} WHERE kafka_offset = 7", table)
    foreign_spark.sql("OPTIMIZE {}", table)
    status, report, part = audited(source, table)
    assert (status, part["missing"], part["doubled"]) == (1, [[7, 8]], [[50, RECORDS]])
    assert [(loss["ranges"], loss["commit"].partition("/")[0]) for loss in part["losses"]] == [
        ([[7, 8]], "version 3, DELETE by Apache-Spark")
    ]


@pytest.mark.parametrize("layout", ["", "PARTITIONED BY (part)"])
def test_renamed_columns_are_read(foreign_spark: ForeignSpark, tmp_path: Path, layout: str) -> None:
    source = write_parquet(tmp_path / "source", [(row % 2, row // 2) for row in range(2 * RECORDS)])
    table = tmp_path / "t"
    foreign_spark.sql(
        "CREATE TABLE {} (kafka_topic STRING, part INT, number BIGINT) USING delta "
        f"{layout} TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        table,
    )
    rows = "'orders', CAST(id % 2 AS INT), id DIV 2"
    foreign_spark.sql(f"INSERT INTO {{}} SELECT {rows} FROM range({2 * RECORDS}) WHERE id <> 35", table)
    foreign_spark.sql("ALTER TABLE {} RENAME COLUMN part TO kafka_partition", table)
    foreign_spark.sql("ALTER TABLE {} RENAME COLUMN number TO kafka_offset", table)
    status, report, _ = audited(source, table)
    assert (status, report["missing"], report["doubled"]) == (1, 1, 0)
    assert report["partitions"][1]["missing"] == [[17, 18]]
