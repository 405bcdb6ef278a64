"""The command ``penstock`` as a user runs it: in a process of its own, or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli.main import main

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
class CompletedCommand:
    """The status, output, errors and imported modules of a command that has ended."""

    status: int
    output: str
    errors: str
    modules: frozenset[str]

    @property
    def text(self) -> str:
        return self.output + self.errors


def run(
    *arguments: str, folder: Path, without: Sequence[str] = (), seconds: float = 60, **variables: str
) -> CompletedCommand:
    """Run the command in ``folder``, as if the modules ``without`` were not installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | variables
    command = [sys.executable, "-c", SCRIPT, " ".join(without), *arguments]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
    errors, _, modules = process.stderr.rpartition("MODULES ")
    return CompletedCommand(process.returncode, process.stdout, errors, frozenset(modules.split()))


def run_in_process(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Run the command in this process, and return its status, output and errors."""
    monkeypatch.setattr(sys, "argv", ["penstock", *words])
    with pytest.raises(SystemExit) as completed:
        main()
    return int(completed.value.code or 0), *capsys.readouterr()
