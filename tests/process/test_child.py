"""Children are restarted when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.process.child import OUT_OF_MEMORY_HINT, Child
from penstock.testing import wait_until
from penstock.testing.processes import alive


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a module ``task`` that stores its task and waits, and a module ``quick`` that ends at once."""
    code = "import json, pathlib, sys, time\ntask = json.load(sys.stdin)\n"
    (tmp_path / "task.py").write_text(
        code + "pathlib.Path(task['file']).write_text(task['text'])\nprint('hello', flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "quick.py").write_text(code + "sys.exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_child_receives_its_task_and_writes_to_its_output_file(module: Path) -> None:
    task = {"file": str(module / "stored"), "text": "x"}
    child = Child("task", "task", task, output=module / "output")
    child.start()
    wait_until(lambda: (module / "output").read_bytes() == b"hello\n")
    assert (module / "stored").read_text() == "x"
    child.stop()
    assert child.wait(time.monotonic() + 10)
    assert child.pid is None


def test_killed_child_is_restarted(module: Path) -> None:
    child = Child("task", "task", {"file": str(module / "stored"), "text": "x"})
    child.start()
    pid = child.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    lines: list[str] = []
    wait_until(lambda: lines.append(line) if (line := child.check()) else child.pid not in (None, pid))
    assert lines == [f"task was killed by signal 9; restarting it{OUT_OF_MEMORY_HINT}"]
    assert child.restarts == 1
    child.stop()
    child.wait(time.monotonic() + 10)


# Forked by a process of its own: where tests run, there are threads.
PREPARED = """
import os, sys, time
from pathlib import Path
from penstock.process.child import Child
child = Child("prepared", "prepared", {}, forked=True)
child.prepare(time.monotonic() + 60)
print(Path("loaded").exists(), Path("run").exists(), child.pid, flush=True)
if sys.argv[1] == "parent":
    os._exit(0)
if sys.argv[1] == "child":
    pid = int(Path("loaded").read_text())
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
child.start()
print(child.wait(time.monotonic() + 60), Path("run").read_text() == Path("loaded").read_text())
"""


@pytest.mark.parametrize("killed", ["nobody", "child", "parent"])
def test_prepared_child_runs_once_it_is_started(killed: str, tmp_path: Path) -> None:
    (tmp_path / "prepared.py").write_text(
        "import os\nfrom pathlib import Path\nPath('loaded').write_text(str(os.getpid()))\n"
        "def main():\n    Path('run').write_text(str(os.getpid()))\n"
    )
    command = [sys.executable, "-c", PREPARED, killed]
    process = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    started = [] if killed == "parent" else ["True True"]
    assert (process.stdout.splitlines(), process.stderr) == (["True False None", *started], "")
    if killed == "parent":
        wait_until(lambda: not alive(int((tmp_path / "loaded").read_text())))
        assert not (tmp_path / "run").exists()


# In a process of its own, which may close its standard input.
FAILING = """
import os, time
from penstock.process.child import Child
os.close(0)
child = Child("failing", "failing", {})
child.start()
while not child.start_failure and not child.restarts:
    child.check()
    time.sleep(0.01)
print(child.start_failure)
"""


def test_reason_of_a_failed_start_arrives_without_a_standard_input(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "from penstock.process.reporting import starting\n"
        "with starting('cannot start'):\n    raise OSError(28, 'No space left')\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-c", FAILING]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    assert process.stdout.startswith("cannot start: No space left")


def test_restart_delay_grows(module: Path) -> None:
    child = Child("quick", "quick", {})
    child.start()
    pauses: list[float] = []
    died_at, end = 0.0, time.monotonic() + 60
    while len(pauses) < 3:
        assert time.monotonic() < end
        before = time.monotonic()
        if child.check():
            died_at = before
        elif child.restarts > len(pauses):
            pauses.append(time.monotonic() - died_at)
        time.sleep(0.005)
    assert all(pause > 0.09 * 2**number for number, pause in enumerate(pauses))
    child.wait(time.monotonic() + 10)
