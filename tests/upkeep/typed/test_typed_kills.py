"""Kills at random moments in and between commits of two tables: in the end both have the same rows, each once."""

from __future__ import annotations

import random
from pathlib import Path

import polars
import pytest

from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import read_starts
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed.fill import fill
from tests.landing.typed.typed_life import CLICK, WINDOW, Life
from tests.landing.writing.messages import source
from tests.upkeep.killed_life import killed_lives, uuids_by_duckdb
from tests.upkeep.typed.typed_upkeep_life import EVENTS, payload, uuids


def values_by_polars(folder: Path) -> list[tuple[str, int | None]]:
    rows = polars.scan_delta(str(folder)).filter(polars.col("type") == "click").select("uuid", "ms").collect()
    return sorted(rows.iter_rows())


def click_uuids_by_duckdb(folder: Path) -> list[str]:
    return uuids_by_duckdb(folder, "type = 'click'")


def start_and_recover(layout: Layout) -> None:
    """Land the interrupted batch and execute pending requests, as the next start does."""
    life = Life(layout)
    batch = life.table.newest() + 1
    rows = list(enumerate(map(payload, uuids(batch)), batch * (EVENTS + 1)))
    life.land(batch, [source(rows)])
    execute_deletions(layout, WINDOW)
    fill(layout, CLICK)


def campaign(folder: Path, kills: int) -> int:
    """Kill the process ``kills`` times; return the number of batches."""
    layout, chance = Layout.for_tables(folder), random.Random(20261122)
    with killed_lives("tests.upkeep.typed.typed_upkeep_life") as lives:
        for kill in range(kills):
            lives.kill(chance.uniform(0.05, 0.6), str(folder), kill)
            if read_starts(layout).get("click", 0) < 0 and chance.random() < 0.5:
                check_typed_table_lags_one_deletion(layout)
                continue
            start_and_recover(layout)
            landed = click_uuids_by_duckdb(layout.landed)
            assert click_uuids_by_duckdb(layout.typed("click")) == landed, f"after kill {kill + 1}"
            assert [uuid for uuid, _ in values_by_polars(layout.typed("click"))] == landed
    start_and_recover(layout)
    values = values_by_polars(layout.typed("click"))
    assert all(ms == (number if number % 3 else None) for uuid, ms in values for number in [int(uuid.split("-")[1])])
    assert len({uuid for uuid, _ in values}) == len(values)
    return DeltaTable(layout.landed).newest() + 1


def check_typed_table_lags_one_deletion(layout: Layout) -> None:
    """Check that both tables agree on committed batches, except for a running deletion."""
    newest = DeltaTable(layout.landed).newest()
    typed = [uuid for uuid in click_uuids_by_duckdb(layout.typed("click")) if int(uuid.split("-")[0]) <= newest]
    landed = click_uuids_by_duckdb(layout.landed)
    assert len(set(typed)) == len(typed)
    assert {*typed} <= {*landed}
    assert len(landed) - len(typed) <= 3


@pytest.mark.survives("typed tables and contracts", "SIGKILL")
def test_typed_table_agrees_after_kills(tmp_path: Path) -> None:
    assert campaign(tmp_path / "tables", 5) > 2


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_typed_table_agrees_after_fifty_kills(tmp_path: Path) -> None:
    assert campaign(tmp_path / "tables", 50) > 50
