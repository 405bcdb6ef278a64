"""A process that works on tables and is killed at a random moment, and independent readers of these tables."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import duckdb
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

ROOT = Path(__file__).parents[2]


def killed(module: str, folder: Path, seed: int, chance: random.Random) -> None:
    """Run ``module`` and kill it after a random time."""
    command = [sys.executable, "-m", module, str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 1.5))
        child.kill()


def uuids_by_duckdb(folder: Path, condition: str = "true") -> list[str]:
    """Return the sorted uuids of the rows that match a condition of SQL."""
    system = SubTreeFileSystem(str(folder), LocalFileSystem())
    rows = deltalake.DeltaTable(str(folder)).to_pyarrow_dataset(filesystem=system)
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        matches = connection.execute(f"select uuid from rows where {condition} order by 1").fetchall()
        return [uuid for (uuid,) in matches]
