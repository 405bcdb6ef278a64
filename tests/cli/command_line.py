"""The command ``penstock`` in a process of its own, as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """
import atexit, sys
for name in sys.argv.pop(1).split():
    sys.modules[name] = None
atexit.register(lambda: print("MODULES", *sys.modules, file=sys.stderr))
sys.argv[0] = "penstock"
from penstock.cli.main import main
main()
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its status, what it printed and its errors, the modules it imported."""

    status: int
    output: str
    errors: str
    modules: frozenset[str]

    @property
    def said(self) -> str:
        return self.output + self.errors


def run(*arguments: str, folder: Path, without: Sequence[str] = (), seconds: float = 60, **variables: str) -> Ended:
    """Run it in ``folder``, as where the modules ``without`` are not installed."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | variables
    command = [sys.executable, "-c", SCRIPT, " ".join(without), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=told,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
    errors, _, modules = done.stderr.rpartition("MODULES ")
    return Ended(done.returncode, done.stdout, errors, frozenset(modules.split()))
