"""A process that lands into a table and a typed one, merges, deletes, fills and removes old files, in random order,
until somebody kills it. Now and then it runs without the typed table, which then has to be filled.
"""

from __future__ import annotations

import random
import sys

from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables, read_starts
from penstock.upkeep.checkpoint_repair import sweep
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.compaction.typed_compaction import compact_typed
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed.fill import fill
from tests.landing.typed.typed_life import CLICK, WINDOW, Life, event
from tests.landing.writing.messages import source

EVENTS = 10
"""In a batch, of two types in turn; the first of each batch comes again in the next one."""


def uuids(batch: int) -> list[str]:
    """Of the events that a batch lands."""
    return [f"{batch}-{n}" for n in range(EVENTS)]


def payload(uuid: str) -> bytes:
    """The event."""
    number = int(uuid.partition("-")[2])
    return event(uuid, "click" if number % 2 else "view", path=uuid, ms=number if number % 3 else "x")


def main() -> None:
    layout, chance = Layout.for_tables(sys.argv[1]), random.Random(int(sys.argv[2]))
    life = Life(layout, () if chance.random() < 0.2 else (CLICK,))
    sweep(layout)
    print("ready", flush=True)
    while True:
        batch = life.table.newest() + 1
        again = [f"{batch - 1}-0"] if batch else []
        rows = list(enumerate(map(payload, [*uuids(batch), *again]), batch * (EVENTS + 1)))
        life.land(batch, [source(rows[:6])], [source(rows[6:])])
        what = chance.random()
        if what < 0.15:
            compact_table(layout.landed)
        elif what < 0.3:
            compact_typed(layout)
        elif what < 0.45:
            wanted = tuple(chance.sample(uuids(chance.randint(max(0, batch - 5), batch)), 3))
            request_deletion(layout, REQUESTED, [Condition("uuid", IN, wanted)])
        elif what < 0.6:
            execute_deletions(layout, WINDOW)
        elif what < 0.7 and "click" in read_starts(layout):
            fill(layout, CLICK)
        elif what < 0.75:
            for table in existing_typed_tables(layout):
                table.vacuum(0)


if __name__ == "__main__":
    main()
