"""A process that works on tables and exports them after each batch until it is killed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from penstock.landing.table_paths import Layout
from tests.upkeep.deletion.upkeep_life import live
from tests.upkeep.export.exported import Exported, exported

KINDS = ("duckdb", "delta", "postgresql")


def exports_of(folder: Path, server: str) -> list[Exported]:
    """Return the exports of the tables in a folder; the targets are next to it."""
    layout = Layout.for_tables(folder)
    return [exported(kind, layout, folder.parent, server, name=kind) for kind in KINDS]


if __name__ == "__main__":
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    exports = exports_of(folder, (folder.parent / "server").read_text())
    for export in exports:
        export.step()  # also imports the drivers, so that a kill strikes the work
    live(Layout.for_tables(folder), random.Random(seed), lambda: [export.step() for export in exports])
