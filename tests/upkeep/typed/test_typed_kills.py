"""Killed at random moments in and between the commits of two tables, merges, deletions and fillings: in the end both
have the same rows, each once, as readers that are not ours see it.
"""

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
from tests.upkeep.killed_life import killed, uuids_by_duckdb
from tests.upkeep.typed.typed_upkeep_life import EVENTS, payload, uuids


def by_polars(folder: Path) -> list[tuple[str, int | None]]:
    rows = polars.scan_delta(str(folder)).filter(polars.col("type") == "click").select("uuid", "ms").collect()
    return sorted(rows.iter_rows())


def by_duckdb(folder: Path) -> list[str]:
    return uuids_by_duckdb(folder, "type = 'click'")


def brought_in_order(layout: Layout) -> None:
    """What the next start does: the batch that was under way; and what was asked for."""
    life = Life(layout)
    batch = life.table.newest() + 1
    rows = list(enumerate(map(payload, uuids(batch)), batch * (EVENTS + 1)))
    life.land(batch, [source(rows)])
    execute_deletions(layout, WINDOW)
    fill(layout, CLICK)


def campaign(folder: Path, kills: int) -> int:
    """How many batches came of it."""
    layout, chance = Layout.for_tables(folder), random.Random(20261122)
    for kill in range(kills):
        killed("tests.upkeep.typed.typed_upkeep_life", folder, kill, chance)
        if read_starts(layout).get("click", 0) == -1 and chance.random() < 0.5:
            _at_most_one_batch_ahead(layout)
            continue
        brought_in_order(layout)
        assert by_duckdb(layout.typed("click")) == by_duckdb(layout.landed), f"after kill {kill + 1}"
        assert [uuid for uuid, _ in by_polars(layout.typed("click"))] == by_duckdb(layout.landed)
    brought_in_order(layout)
    values = by_polars(layout.typed("click"))
    assert all(ms == (number if number % 3 else None) for uuid, ms in values for number in [int(uuid.split("-")[1])])
    assert len({uuid for uuid, _ in values}) == len(values)
    return DeltaTable(layout.landed).newest() + 1


def _at_most_one_batch_ahead(layout: Layout) -> None:
    """Of a batch that the table has, they agree but for a deletion that is under way."""
    newest = DeltaTable(layout.landed).newest()
    typed = [uuid for uuid in by_duckdb(layout.typed("click")) if int(uuid.split("-")[0]) <= newest]
    landed = by_duckdb(layout.landed)
    assert len(set(typed)) == len(typed)
    assert {*typed} <= {*landed}
    assert len(landed) - len(typed) <= 3


def test_a_typed_table_agrees_whatever_is_killed(tmp_path: Path) -> None:
    assert campaign(tmp_path / "tables", 5) > 2


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_typed_table_agrees_after_fifty_kills(tmp_path: Path) -> None:
    assert campaign(tmp_path / "tables", 50) > 50
