"""A process that works on tables and is killed at a random moment, and independent readers of these tables."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import duckdb
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

ROOT = Path(__file__).parents[2]


class KilledLives:
    """Processes that run ``main`` of one module, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def kill(self, cpu_s: float, *arguments: str | int) -> None:
        """Run ``main`` with these arguments until it has used ``cpu_s`` seconds of CPU. A failure of it is one here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([cpu_s, *arguments]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == f"{-signal.SIGPROF}\n", "it ended by itself"


@contextmanager
def killed_lives(module: str) -> Iterator[KilledLives]:
    """Load a module for processes that are killed."""
    command = [sys.executable, "-m", "tests.upkeep.forked_life", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield KilledLives(process)
        finally:
            process.kill()


def uuids_by_duckdb(folder: Path, condition: str = "true") -> list[str]:
    """Return the sorted uuids of the rows that match a condition of SQL."""
    system = SubTreeFileSystem(str(folder), LocalFileSystem())
    rows = deltalake.DeltaTable(str(folder)).to_pyarrow_dataset(filesystem=system)
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        matches = connection.execute(f"select uuid from rows where {condition} order by 1").fetchall()
        return [uuid for (uuid,) in matches]
