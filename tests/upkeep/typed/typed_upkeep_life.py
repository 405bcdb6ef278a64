"""A process that lands into two tables, merges, deletes, fills, refills and sweeps in random order until it is killed.

Now and then it runs without the typed table, which a later life fills.
"""

from __future__ import annotations

import random
from pathlib import Path

from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables, read_starts
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.compaction.typed_compaction import compact_typed
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.repair.checkpoint_repair import sweep
from penstock.upkeep.typed.fill import fill
from penstock.upkeep.typed.refill import refill
from tests.landing.typed.typed_life import CLICK, WINDOW, Life, event
from tests.landing.writing.messages import source

EVENTS = 10
"""Events per batch, of two types in turn; the next batch repeats the first event."""


def uuids(batch: int) -> list[str]:
    """Return the uuids of the events that a batch lands."""
    return [f"{batch}-{n}" for n in range(EVENTS)]


def payload(uuid: str) -> bytes:
    number = int(uuid.partition("-")[2])
    return event(uuid, "click" if number % 2 else "view", path=uuid, ms=number if number % 3 else "x")


def main(folder: str, seed: int) -> None:
    """Live until the end of the process."""
    layout, chance = Layout.for_tables(Path(folder)), random.Random(seed)
    life = Life(layout, () if chance.random() < 0.2 else (CLICK,))
    sweep(layout)
    while True:
        batch = life.table.newest() + 1
        repeated = [f"{batch - 1}-0"] if batch else []
        rows = list(enumerate(map(payload, [*uuids(batch), *repeated]), batch * (EVENTS + 1)))
        life.land(batch, [source(rows[:6])], [source(rows[6:])])
        choice = chance.random()
        if choice < 0.15:
            compact_table(layout.landed)
        elif choice < 0.3:
            compact_typed(layout)
        elif choice < 0.45:
            deleted_uuids = tuple(chance.sample(uuids(chance.randint(max(0, batch - 5), batch)), 3))
            request_deletion(layout, REQUESTED, [Condition("uuid", IN, deleted_uuids)])
        elif choice < 0.6:
            execute_deletions(layout, WINDOW)
        elif choice < 0.7 and "click" in read_starts(layout):
            fill(layout, CLICK)
        elif choice < 0.75 and "click" in read_starts(layout):
            refill(layout, CLICK)
        elif choice < 0.8:
            for table in existing_typed_tables(layout):
                table.vacuum(0)
