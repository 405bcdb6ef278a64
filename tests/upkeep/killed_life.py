"""A process that works on tables, killed at a random moment; and what a reader that is not ours finds then."""

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
    """Lets ``module`` live for a while."""
    command = [sys.executable, "-m", module, str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 1.5))
        child.kill()


def uuids_by_duckdb(folder: Path, which: str = "true") -> list[str]:
    """Of the rows of a table that a condition of SQL is true of, sorted."""
    system = SubTreeFileSystem(str(folder), LocalFileSystem())
    rows = deltalake.DeltaTable(str(folder)).to_pyarrow_dataset(filesystem=system)
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        found = connection.execute(f"select uuid from rows where {which} order by 1").fetchall()
        return [uuid for (uuid,) in found]
