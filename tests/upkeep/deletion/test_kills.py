"""Kills at random moments in and between batches, merges, deletions and sweeps: independent readers find exact
tables.
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


def uuids_by_polars(folder: Path) -> list[str]:
    uuid_list: list[str] = polars.scan_delta(str(folder)).select("uuid").collect()["uuid"].to_list()
    return uuid_list


def expected_uuids(layout: Layout) -> list[str]:
    """Return the uuids of all batches in the table without the deleted ones."""
    table = DeltaTable(layout.landed)
    last_deletion, newest = table.last_deletion(), table.newest()
    deleted_uuids = {
        uuid
        for request in load_deletions(layout)
        if request.number <= last_deletion
        for uuid in request.conditions[0].values
    }
    return sorted({uuid for batch in range(newest + 1) for uuid in uuids(batch)} - deleted_uuids)


def campaign(folder: Path, kills: int, batches: int, deletions: int) -> None:
    """Kill the process ``kills`` times, and more often until it has done more: on a busy machine a life does little."""
    layout, chance = Layout.for_tables(folder), random.Random(20261122)
    readers: list[Callable[[Path], list[str]]] = [uuids_by_polars, uuids_by_duckdb]
    finished, kill = (0, 0), 0
    while kill < kills or finished[0] <= batches or finished[1] <= deletions:
        killed("tests.upkeep.deletion.upkeep_life", folder, kill, chance)
        assert sorted(readers[kill % 2](layout.landed)) == expected_uuids(layout), f"after kill {kill + 1}"
        table = DeltaTable(layout.landed)
        finished, kill = (table.newest() + 1, table.last_deletion()), kill + 1


def test_table_is_exact_after_kills(tmp_path: Path) -> None:
    campaign(tmp_path / "tables", 4, batches=10, deletions=0)


@pytest.mark.soak
def test_table_is_exact_after_fifty_kills(tmp_path: Path) -> None:
    campaign(tmp_path / "tables", 50, batches=200, deletions=20)
