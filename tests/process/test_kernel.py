"""The limit of open files, and the death of a child with its parent."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.process.kernel import boot_id, file_shortage, limit_connections, raise_file_limit
from penstock.process.reporting import ATTEMPTS_PER_REPORT
from penstock.testing.pipe import wait_until
from penstock.testing.processes import alive


def test_boot_id_is_stable() -> None:
    assert boot_id() == boot_id() != ""


def test_file_limit_becomes_the_hard_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert raise_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


PARENT = """
import sys, time
from penstock.process.child import Child
child = Child("c", "grandchild", {})
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""
GRANDCHILD = """
import pathlib, time
from penstock.process.kernel import die_with_parent
die_with_parent()
pathlib.Path(__file__).with_name("asked").touch()
time.sleep(600)
"""


def test_connections_are_limited_by_open_files_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert limit_connections(100, 100, "log.max_connections") == 100
    assert caplog.messages == []
    assert limit_connections(1000, 64, "log.max_connections") == 64
    assert limit_connections(1000, -36, "log.max_connections") == 1
    assert caplog.messages[0] == "log.max_connections is 1000, but RLIMIT_NOFILE allows only 64"


def test_limit_of_connections_is_not_logged_by_each_attempt_to_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in range(ATTEMPTS_PER_REPORT + 1):
        monkeypatch.setattr("sys.argv", ["x", "1", str(attempt), "5"])
        assert limit_connections(1000, 64, "listener.in.max_connections") == 64
    assert len(caplog.messages) == 2, "of the first attempt, and a minute later"


def test_only_a_lack_of_descriptors_is_a_shortage_of_files() -> None:
    assert "RLIMIT_NOFILE (ulimit -n, LimitNOFILE) is " in file_shortage(OSError(errno.ENFILE, "full"))
    assert file_shortage(OSError(errno.ENOSPC, "full")) == file_shortage(ValueError("24")) == ""


PARENT_OF_MODULE = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-m", sys.argv[1], str(os.getpid())])
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.parametrize("module", ["sql.servers", "console.main", "client.relay.relay", "cli.tables.pipeline"])
def test_process_that_waits_for_its_settings_dies_with_its_parent(module: str) -> None:
    """The standard input stays open, so that only the kernel's signal ends the process."""
    command = [sys.executable, "-c", PARENT_OF_MODULE, f"penstock.{module}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        wait_until(lambda: Path(f"/proc/{pid}/syscall").read_text().split()[1:2] == ["0x0"], 60)  # reads descriptor 0
        parent.kill()
        wait_until(lambda: not alive(pid))


def test_child_dies_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grandchild.py").write_text(GRANDCHILD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        wait_until((tmp_path / "asked").exists, what="it has asked the kernel")
        assert b"grandchild" in Path(f"/proc/{pid}/cmdline").read_bytes()
        parent.kill()
    wait_until(lambda: not alive(pid))
