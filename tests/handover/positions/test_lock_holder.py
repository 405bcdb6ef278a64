"""The holder of a lock."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.handover.positions.lock_holder import end_holder, lock_holder

ROOT = Path(__file__).parents[3]
HOLD = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 2); print('held', flush=True); time.sleep(60)"


def test_lock_holder_is_identified(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    assert lock_holder(path) is None
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_only_a_process_of_the_module_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path), "my.module"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert lock_holder(path) == process.pid
        assert not end_holder(path, "other.module")
        assert end_holder(path, "my.module")
        assert process.wait(10) == -9
    assert not end_holder(path, "my.module")


def test_running_process_is_not_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path), "my.module"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert not end_holder(path, "my.module", only_stopped=True)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert end_holder(path, "my.module", only_stopped=True)
        assert process.wait(10) == -9


FORKED = """
import sys
from penstock.process.forked import Forked
child = Forked("penstock.holds", [sys.argv[1]], {}, [], None, "t" * 500)
print(child.wait(20))
"""


@pytest.mark.parametrize("environment", [{}, {"ROOM": "x" * 2000}], ids=["title without room", "title with room"])
def test_forked_process_is_identified_by_its_short_name(tmp_path: Path, environment: dict[str, str]) -> None:
    """With an empty environment the title has only the room of the command line."""
    (tmp_path / "holds.py").write_text(
        "import fcntl, sys, time\ndef main():\n    file = open(sys.argv[1])\n    fcntl.flock(file, 2)\n"
        "    open(sys.argv[1] + '.held', 'w')\n    time.sleep(60)\n"
    )
    path = tmp_path / "lock"
    path.touch()
    code = f"import sys, penstock; penstock.__path__.append({str(tmp_path)!r})\n{FORKED}"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as parent:
        assert parent.stdout
        while not path.with_name("lock.held").exists():
            time.sleep(0.01)
        assert not end_holder(path, "penstock.other")
        assert end_holder(path, "penstock.holds")
        assert parent.stdout.read() == b"-9\n"
