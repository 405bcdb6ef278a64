"""Processes that a test observes and stops."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process.kernel import descendants
from penstock.testing.processes import (
    alive,
    anonymous,
    cpu,
    cpu_of_all,
    memory_of_all,
    resident,
    stopped,
)

COUNT = """
import sys, threading
numbers = [0, 0, 0]
def run(at):
    while True:
        numbers[at] += 1
        open(f"{sys.argv[1]}/{at}", "w").write(str(numbers[at]))
for at in range(3):
    threading.Thread(target=run, args=(at,)).start()
print(flush=True)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def written_files(folder: Path) -> list[tuple[str, int]]:
    return sorted((file.read_text(), file.stat().st_mtime_ns) for file in folder.iterdir())


def test_no_thread_of_a_stopped_process_runs(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    for _ in range(20):
        with stopped(process.pid):
            before = written_files(tmp_path)
            time.sleep(0.02)
            assert written_files(tmp_path) == before
        time.sleep(0.01)
    deadline = time.monotonic() + 10
    while written_files(tmp_path) == before:
        assert time.monotonic() < deadline


def test_stopped_process_can_be_killed(process: subprocess.Popen[bytes]) -> None:
    with stopped(process.pid):
        process.kill()
        process.wait()
    assert not alive(process.pid)
    with pytest.raises(ProcessLookupError), stopped(process.pid):
        pass


def test_cpu_and_descendants_are_reported(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while cpu(process.pid) < 0.05:
        assert time.monotonic() < deadline
    with subprocess.Popen(["sh", "-c", "sleep 30 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout
        shell.stdout.readline()
        (child,) = descendants(shell.pid)
        assert alive(child)
        subprocess.run(["kill", str(child)], check=True)


def test_cpu_of_all_includes_children() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            while cpu(child.pid) < 0.2:
                time.sleep(0.01)
            own_seconds = cpu(os.getpid())
            assert cpu_of_all(os.getpid()) >= own_seconds + 0.2
        finally:
            child.kill()


def test_memory_of_all_includes_children() -> None:
    hold = "import sys; held = bytes(range(256)) * (1 << 17); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        assert resident(child.pid) > anonymous(child.pid) > 32 << 20
        for kind in (resident, anonymous):
            assert memory_of_all(os.getpid(), kind) > kind(child.pid) + (8 << 20)
        child.communicate()


def test_zombie_has_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert (resident(child.pid), anonymous(child.pid)) == (0, 0)
