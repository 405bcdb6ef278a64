"""Faults that a file switches on in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.drill.faults import VARIABLE, Faults
from penstock.drill.pipe import INJECTED

WRITES = """
import os, sys, time
for folder in ("data", "other"):
    file = os.open(f"{folder}/file", os.O_RDWR | os.O_CREAT)
    for call in (lambda: os.pwritev(file, [b"x"], 0), lambda: os.fdatasync(file)):
        try:
            call()
            print(folder, "ok")
        except OSError as error:
            print(folder, error.strerror)
"""


def output_of(folder: Path, faults: Faults, script: str = WRITES) -> list[str]:
    for name in ("data", "other"):
        (folder / name).mkdir(exist_ok=True)
    faults.write(folder / "faults.json")
    environment = {**os.environ, "PYTHONPATH": f"{INJECTED}:{Path(__file__).parents[2]}"}
    environment[VARIABLE] = str(folder / "faults.json")
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return process.stdout.splitlines()


@pytest.mark.parametrize(
    ("faults", "first", "second"),
    [
        (Faults(), "ok", "ok"),
        (Faults(full=True), "No space left on device", "ok"),
        (Faults(failing=True), "ok", "Input/output error"),
    ],
)
def test_only_writes_and_syncs_of_the_data_directory_fail(
    tmp_path: Path, faults: Faults, first: str, second: str
) -> None:
    assert output_of(tmp_path, faults) == [f"data {first}", f"data {second}", "other ok", "other ok"]


def test_wall_clock_jumps_and_returns(tmp_path: Path) -> None:
    script = """
import json, pathlib, time
def ahead(): return round((time.time() - time.clock_gettime(time.CLOCK_REALTIME)) / 100)
before = ahead(), round((time.time_ns() - time.clock_gettime_ns(time.CLOCK_REALTIME)) / 1e11)
pathlib.Path("faults.json").write_text(json.dumps({}))
time.sleep(0.2)
print(before, ahead())
"""
    assert output_of(tmp_path, Faults(clock=1000), script) == ["(10, 10) 0"]
