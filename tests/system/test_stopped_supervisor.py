"""A stopped supervisor continues its work later, and stopped children end like others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.process.kernel import has_stopped
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import stopped

UDP = "events-udp"
EVENTS = [b'{"type": "a", "data": {"number": %d}}' % number for number in range(50)]


@pytest.mark.survives("supervisor", "SIGSTOP")
def test_supervisor_that_continues_restarts_its_children_and_ends_stopped_ones(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    pipe.start()
    try:
        assert pipe.process is not None
        pids = pipe.endpoints()["pids"]
        with stopped(pipe.process.pid):
            os.kill(pids[f"receiver {UDP}"], signal.SIGKILL)
            pipe.datagrams(*EVENTS)
            assert pipe.answers()
        wait_until(lambda: pipe.counts(UDP)["accepted"] == len(EVENTS))
        wait_until(lambda: pipe.endpoints()["pids"][f"receiver {UDP}"] not in (None, pids[f"receiver {UDP}"]))
        changed = {name for name, pid in pipe.endpoints()["pids"].items() if pids[name] != pid}
        assert changed == {f"receiver {UDP}"}
        for name in (f"receiver {UDP}", "log daemon"):
            os.kill(pid := pipe.pid(name), signal.SIGSTOP)
            wait_until(lambda pid=pid: has_stopped(pid))
        pipe.datagrams(*EVENTS)
        pipe.stop()
        assert pipe.process.returncode == 0
        assert "did not end within shutdown_time" not in pipe.output.read_text()
        pipe.start()
        assert pipe.settled()["unaccounted"] == 0
        assert pipe.counts(UDP)["accepted"] == 2 * len(EVENTS)
    finally:
        pipe.stop()
