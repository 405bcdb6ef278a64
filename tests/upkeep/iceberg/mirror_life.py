"""A process that mirrors tables in a catalog and ends when it moves the catalog's pointer."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from penstock.config.keys.pipeline import IcebergConfig
from penstock.landing.table_paths import Layout
from penstock.upkeep.iceberg.mirror import IcebergMirror

BEFORE, AFTER = "before", "after"
"""Moments of the end: the catalog's pointer is not moved yet, or it is."""
DEAD = 9


def mirror_of(
    folder: Path, now_if_steady: Callable[[float], float | None] = lambda hours: time.time()
) -> IcebergMirror:
    """Return the mirror of a folder of tables, with a catalog in a file next to it."""
    options = {"type": "sql", "uri": f"sqlite:///{folder}.db"}
    return IcebergMirror(Layout.for_tables(folder), IcebergConfig(catalog="lake", options=options), now_if_steady)


def die_at_pointer(is_committed: bool) -> None:
    """End the process immediately before or after it moves the catalog's pointer."""
    commit = SqlCatalog.commit_table

    def commit_and_die(*arguments: Any) -> None:
        if is_committed:
            commit(*arguments)
        os._exit(DEAD)

    SqlCatalog.commit_table = commit_and_die  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    folder, moment = sys.argv[1:]
    die_at_pointer(moment == AFTER)
    mirror_of(Path(folder)).step()
