"""Small files of a Delta table merged into large ones, while readers and the pipeline go on.

It changes no data: the rows stay, under other files. The old files stay for readers that are at them, until they are
removed as nobody can need them any more.
"""

from __future__ import annotations

from pathlib import Path

from penstock.landing.landing_lock import alone_at_upkeep
from penstock.landing.table.delta_table import KEEP_HOURS, DeltaTable
from penstock.landing.table_paths import Layout

TARGET_BYTES = 128 << 20


def compact_table(folder: Path) -> tuple[int, int]:
    """Merge what is small, and remove what was merged long ago; how many files became how many."""
    with alone_at_upkeep(Layout(folder.parent)):
        return DeltaTable(folder).compact(TARGET_BYTES, KEEP_HOURS)
