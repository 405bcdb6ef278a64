"""The pipeline as system tests run it, and the rows that it landed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.landing.journal import read_journal
from penstock.landing.table_paths import Layout
from penstock.process.kernel import descendants
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import alive


class Driver:
    """A process ``penstock pipeline run``, started like by a user."""

    def __init__(self, pipe: Pipe, *further: str) -> None:
        self._pipe, self._further = pipe, further
        self.output = pipe.output.with_name("pipeline.log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", *self._pipe.options, *self._further]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self) -> None:
        assert self.process
        jvms = [pid for pid in descendants(self.process.pid) if "java" in command_of(pid)]
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in jvms), 30, "the JVM ends with its driver")

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


def command_of(pid: int) -> str:
    """Return the command of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def landed_rows(tables: Path) -> list[dict[str, Any]]:
    """Return all rows of committed files."""
    layout = Layout.for_tables(tables)
    files = [name for commit in read_journal(layout) for name in commit.files]
    return [
        {"kind": name.split("kind=")[1].split("/")[0], **row}
        for name in files
        for row in pq.read_table(layout.landed / name, columns=["offset", "uuid"]).to_pylist()
    ]
