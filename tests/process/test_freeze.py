"""Processes that use a folder stand still, and continue in every case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.process.freeze import FreezeTooLong, freeze_users
from penstock.testing.pipe import wait_until


def test_processes_continue_when_a_freeze_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code = "import sys, time; file = open(sys.argv[1]); print('open', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "file")], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")

        def is_stopped() -> bool:
            return stat.read_text().rpartition(")")[2].split()[0] == "T"

        def outlast_the_limit() -> None:
            with freeze_users([tmp_path], 0.2) as pids:
                assert pids == [process.pid]
                assert is_stopped()
                wait_until(lambda: not is_stopped(), what="the guard lets it continue")

        with pytest.raises(FreezeTooLong, match="continued after"):
            outlast_the_limit()
        process.kill()
