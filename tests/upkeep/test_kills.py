"""Kills in and between commits, merges, deletions, mirror, exports and work of other programs, without a JVM.

Afterwards independent readers of the table and of all its copies have the same rows, and the documented SQL of the
proof finds no difference, until a row is altered.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from penstock.landing.requests.deletions import load_deletions
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_reader import APPLICATION
from penstock.landing.table_paths import Layout
from tests.proof.proof_sql import differences, documented_sql, offsets_never_proved, run_sql
from tests.upkeep.export.exported import postgresql_server
from tests.upkeep.killed_life import killed_lives
from tests.upkeep.whole_life import BATCH_ROWS, WholeLife, uuid_of

CLICKHOUSE_EVERY = 15
"""Kills of which one is of a process that exports to ClickHouse most of its time."""
Rows = list[tuple[int, str]]
"""Offset and uuid of each row."""


def by_delta_rs(layout: Layout) -> Rows:
    return _pairs(deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table(columns=["offset", "uuid"]))


def by_duckdb(layout: Layout) -> Rows:
    return [(row["offset"], row["uuid"]) for row in run_sql(layout, 'select "offset", uuid from landed')]


def by_polars(layout: Layout) -> Rows:
    return _pairs(polars.scan_delta(str(layout.landed)).select("offset", "uuid").collect().to_arrow())


def by_pyiceberg(layout: Layout) -> Rows:
    return _pairs(_iceberg(layout, "landed").scan(selected_fields=("offset", "uuid")).to_arrow())


def _iceberg(layout: Layout, name: str) -> Table:
    return load_catalog("lake", type="sql", uri=f"sqlite:///{layout.tables}.db").load_table(f"penstock.{name}")


def differences_in_iceberg(layout: Layout) -> list[dict[str, Any]]:
    """Run the documented SQL over the tables of the Iceberg catalog."""
    with duckdb.connect() as connection:
        for name in ("landed", "proofs"):
            connection.register(name, _iceberg(layout, name).scan().to_arrow())
        rows: list[dict[str, Any]] = connection.sql(documented_sql("DuckDB")).to_arrow_table().to_pylist()
        return rows


READERS: list[Callable[[Layout], Rows]] = [by_delta_rs, by_duckdb, by_polars, by_pyiceberg]


def _pairs(rows: Any) -> Rows:
    return list(zip(rows["offset"].to_pylist(), rows["uuid"].to_pylist(), strict=True))


def expected_rows(layout: Layout) -> Rows:
    """Return the rows of all batches without rows that were deleted, on request or by another program."""
    table = table_of(layout)
    requested = {
        uuid
        for deletion in load_deletions(layout)
        if deletion.number <= table.last_deletion() and deletion.conditions
        for uuid in deletion.conditions[0].values
    }
    gone = offsets_gone(layout)
    offsets = range((table.newest() + 1) * BATCH_ROWS)
    return [(offset, uuid_of(offset)) for offset in offsets if offset not in gone and uuid_of(offset) not in requested]


def offsets_gone(layout: Layout) -> frozenset[int]:
    """Return the offsets that other programs took away, from the commits of the table's log."""
    gone, batches = [frozenset[int]()], [-1]
    """After each version: the offsets, and the newest batch."""
    for path in sorted((layout.landed / "_delta_log").glob("*.json"))[1:]:  # type: ignore[arg-type]
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        numbers = [action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == APPLICATION]
        missing, parameters = gone[-1], info.get("operationParameters", {})
        if info.get("operation") == "DELETE":
            missing |= {int(uuid) for uuid in re.findall(r"u(\d+)", parameters["predicate"])}
        elif info.get("operation") == "RESTORE":
            version = int(parameters["version"])
            missing = gone[version] | {*range((batches[version] + 1) * BATCH_ROWS, (batches[-1] + 1) * BATCH_ROWS)}
        gone.append(missing)
        batches.append(max([batches[-1], *numbers]))
    return gone[-1]


def check(life: WholeLife) -> None:
    """Check that all readers of all copies have the expected rows."""
    life.catch_up()
    expected = expected_rows(life.layout)
    copies = {reader.__name__: reader(life.layout) for reader in READERS}
    exports = [*life.exports, life.clickhouse]
    copies |= {e.config.scheme: [(offset, uuid) for _, offset, uuid in e.read()] for e in exports}
    assert {name: sorted(rows) for name, rows in copies.items()} == dict.fromkeys(copies, expected)
    assert differences(life.layout) == offsets_never_proved(life.layout) == differences_in_iceberg(life.layout) == []


def check_that_an_altered_row_is_found(layout: Layout) -> None:
    offset = expected_rows(layout)[-1][0]
    for name in table_of(layout).active():
        rows = pq.read_table(layout.landed / name, partitioning=None)
        altered = pc.if_else(pc.equal(rows["offset"], offset), "{}", rows["data"])
        pq.write_table(rows.set_column(rows.schema.get_field_index("data"), "data", altered), layout.landed / name)
    for find in (differences, differences_in_iceberg):
        (difference,) = find(layout)
        assert (difference["topic"], difference["rows"], difference["offset"]) == ("t", 0, offset)


def campaign(folder: Path, kills: int, check_every: int, server: str = "") -> None:
    chance = random.Random(20261127)
    with killed_lives("tests.upkeep.whole_life") as lives:
        for kill in range(kills):
            # ClickHouse takes 0.25 s to load.
            with_clickhouse = kill % CLICKHOUSE_EVERY == 0
            cpu_s = chance.uniform(0.02, 0.3) + with_clickhouse * 0.3
            lives.kill(cpu_s, str(folder), server, kill, with_clickhouse)
            if kill % check_every == check_every - 1:
                check(WholeLife(folder, server))
    layout = Layout.for_tables(folder / "tables")
    # On a busy machine most lives end before their first batch.
    assert table_of(layout).newest() > kills // 20
    assert table_of(layout).last_deletion() > 0
    check_that_an_altered_row_is_found(layout)


@pytest.mark.survives("merge, deletion, restore", "SIGKILL")
@pytest.mark.timeout(900)
def test_table_and_copies_are_exact_after_fifty_kills(tmp_path: Path) -> None:
    campaign(tmp_path, 50, check_every=25)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_table_and_copies_are_exact_after_a_thousand_kills(tmp_path: Path) -> None:
    with postgresql_server() as server:
        campaign(tmp_path, 1000, check_every=50, server=server)
