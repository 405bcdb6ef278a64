"""Who holds a lock."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.handover.lock_holder import end_holder, lock_holder

HOLD = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 2); print('held', flush=True); time.sleep(60)"


def test_the_holder_of_a_lock_is_known(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    assert lock_holder(path) is None
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_only_a_process_of_the_module_is_ended(tmp_path: Path) -> None:
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


def test_where_it_has_to_be_stopped_a_process_that_runs_is_left_alone(tmp_path: Path) -> None:
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
