"""A process that lands, merges, deletes and sweeps in random order until it is killed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, write_part
from penstock.upkeep.checkpoint_repair import sweep
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.removal import execute_deletions
from tests.landing.writing.messages import AT, event, source

WINDOW = 600_000_000
EVENTS = 20
"""Events per batch; the next batch repeats the first event."""


def uuids(batch: int) -> list[str]:
    """Return the uuids of the events that a batch lands."""
    return [f"{batch}-{n}" for n in range(EVENTS)]


def live(layout: Layout, chance: random.Random, after_batch: Callable[[], object] = lambda: None) -> None:
    """Work on the tables of a layout without an end."""
    table = begin_table(layout)
    sweep(layout)
    commit = BatchCommit(table, layout.keys, WINDOW, lambda: DeletionRecord(layout).keys())
    job = Job(table.folder, layout.keys, WINDOW)
    print("ready", flush=True)
    while True:
        batch = table.newest() + 1
        repeated = [f"{batch - 1}-0"] if batch else []
        rows = list(enumerate(map(event, [*uuids(batch), *repeated]), batch * (EVENTS + 1)))
        commit.land(batch, lambda rows=rows, batch=batch: [write_part([source(rows)], job, AT + batch)])  # type: ignore[misc]
        choice = chance.random()
        if choice < 0.2:
            compact_table(layout.landed)
        elif choice < 0.4:
            deleted_uuids = tuple(chance.sample(uuids(chance.randint(max(0, batch - 5), batch)), 3))
            request_deletion(layout, REQUESTED, [Condition("uuid", IN, deleted_uuids)])
        elif choice < 0.6:
            execute_deletions(layout, WINDOW)
        elif choice < 0.7:
            DeltaTable(layout.landed).vacuum(0)
        after_batch()


if __name__ == "__main__":
    live(Layout.for_tables(sys.argv[1]), random.Random(int(sys.argv[2])))
