"""Replacements during a run of the landing: what differs between two runs of a seed, and limits that it must reach."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from penstock.landing.table import delta_table, file_entries, table_file
from penstock.landing.typed import typed_tables
from penstock.landing.writing import background_commit, part_writer, written_file
from penstock.proof import proofs_table
from penstock.spark.query import proof_worker
from penstock.spark.source import slices
from penstock.testing.simulation.landing.planner import InlinePool, SteppedCommits
from penstock.testing.simulation.machine import ROOMS, Machine, replaced

LANDING_ROOMS = (*ROOMS, "landing", "proof", "spark", "upkeep")
_LIMITS: list[tuple[ModuleType, str, int]] = [
    (slices, "TASK_ROWS", 6),
    (slices, "BATCH_ROWS", 5),
    (part_writer, "MIN_JOINED_ROWS", 8),
    (part_writer, "ROW_GROUP", 7),
    (written_file, "ROW_GROUP", 7),
    (delta_table, "CHECKPOINT_INTERVAL", 7),
    (proofs_table, "ROLL_AT_FILES", 4),
    (proof_worker, "ROLL_AT", 8),
    (proof_worker, "KEEP", 4),
]
"""Small limits: a run has a few dozen batches of a few rows."""


@contextmanager
def virtual_landing(
    machine: Machine, names: random.Random, new_pool: Callable[[int, str], SteppedCommits]
) -> Iterator[None]:
    """Give the landing the machine's time, names of files from dice, commits that take steps, and small limits."""

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=names.getrandbits(128))

    vacuum = delta_table.DeltaTable.vacuum

    def vacuum_by_virtual_time(table: Any, keep_hours: int) -> bool:
        # delta-rs reads the clock of the real machine.
        behind_h = int(time.time() - machine.clock.time()) // 3600 + 1
        return vacuum(table, max(keep_hours + behind_h, 0))

    with ExitStack() as stack:
        stack.enter_context(machine.running(LANDING_ROOMS))
        stack.enter_context(replaced(background_commit, "ThreadPoolExecutor", new_pool))
        stack.enter_context(replaced(typed_tables, "ThreadPoolExecutor", InlinePool))
        for module in (written_file, proofs_table, table_file, file_entries):
            stack.enter_context(replaced(module, "uuid4", new_uuid))
        stack.enter_context(replaced(delta_table.DeltaTable, "vacuum", vacuum_by_virtual_time))
        for module, name, limit in _LIMITS:
            stack.enter_context(replaced(module, name, limit))
        yield
