"""Killed at random moments in and between batches, merges, deletions and the removal of files: the table is exact, as
readers that are not ours see it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import polars
import pytest

from penstock.landing.requests.deletions import load_deletions
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout
from tests.upkeep.deletion.upkeep_life import uuids
from tests.upkeep.killed_life import killed, uuids_by_duckdb


def by_polars(folder: Path) -> list[str]:
    found: list[str] = polars.scan_delta(str(folder)).select("uuid").collect()["uuid"].to_list()
    return found


def expected(layout: Layout) -> list[str]:
    """Of all batches in the table, without what was deleted."""
    table = DeltaTable(layout.landed)
    done, newest = table.last_deletion(), table.newest()
    gone = {uuid for one in load_deletions(layout) if one.number <= done for uuid in one.conditions[0].values}
    return sorted({uuid for batch in range(newest + 1) for uuid in uuids(batch)} - gone)


def campaign(folder: Path, kills: int) -> tuple[int, int]:
    """How many batches and deletions came of it."""
    layout, chance = Layout.for_tables(folder), random.Random(20261122)
    readers: list[Callable[[Path], list[str]]] = [by_polars, uuids_by_duckdb]
    for kill in range(kills):
        killed("tests.upkeep.deletion.upkeep_life", folder, kill, chance)
        assert sorted(readers[kill % 2](layout.landed)) == expected(layout), f"after kill {kill + 1}"
    table = DeltaTable(layout.landed)
    return table.newest() + 1, table.last_deletion()


def test_a_table_is_exact_whatever_is_killed(tmp_path: Path) -> None:
    batches, deletions = campaign(tmp_path / "tables", 4)
    assert batches > 10
    assert deletions > 0


@pytest.mark.soak
def test_a_table_is_exact_after_fifty_kills(tmp_path: Path) -> None:
    batches, deletions = campaign(tmp_path / "tables", 50)
    assert batches > 200
    assert deletions > 20
