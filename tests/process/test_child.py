"""Children: started again when they die, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.process.child import Child


def until(done: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module ``task`` that writes what it was told, and waits; ``quick`` ends at once."""
    code = "import json, pathlib, sys, time\ntask = json.load(sys.stdin)\n"
    (tmp_path / "task.py").write_text(
        code + "pathlib.Path(task['file']).write_text(task['text'])\nprint('hello', flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "quick.py").write_text(code + "sys.exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_child_gets_its_task_and_its_output_a_file(module: Path) -> None:
    task = {"file": str(module / "told"), "text": "x"}
    child = Child("task", "task", task, output=module / "output")
    child.start()
    until(lambda: (module / "output").read_bytes() == b"hello\n")
    assert (module / "told").read_text() == "x"
    child.stop()
    assert child.wait(time.monotonic() + 10)
    assert child.pid is None


def test_a_killed_child_is_started_again(module: Path) -> None:
    child = Child("task", "task", {"file": str(module / "told"), "text": "x"})
    child.start()
    pid = child.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    said: list[str] = []
    until(lambda: said.append(line) if (line := child.check()) else child.pid not in (None, pid))
    assert said == ["task was killed by signal 9; it is started again"]
    assert child.restarts == 1
    child.stop()
    child.wait(time.monotonic() + 10)


def test_a_child_that_keeps_dying_is_started_more_and_more_seldom(module: Path) -> None:
    child = Child("quick", "quick", {})
    child.start()
    pauses: list[float] = []
    died, end = 0.0, time.monotonic() + 60
    while len(pauses) < 3:
        assert time.monotonic() < end
        if child.check():
            died = time.monotonic()
        elif child.restarts > len(pauses):
            pauses.append(time.monotonic() - died)
        time.sleep(0.005)
    assert all(pause > 0.09 * 2**number for number, pause in enumerate(pauses))
    child.wait(time.monotonic() + 10)


PARENT = """
import sys, time
from penstock.process.child import Child
child = Child("c", "grandchild", {})
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_dies_with_its_parent(module: Path) -> None:
    (module / "grandchild.py").write_text(
        "import time\nfrom penstock.process.parent_death import die_with_parent\ndie_with_parent()\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        until(lambda: b"grandchild" in Path(f"/proc/{pid}/cmdline").read_bytes())
        time.sleep(0.5)  # until it has said so to the kernel
        parent.kill()
    until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
