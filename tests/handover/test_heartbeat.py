"""Heartbeats of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.handover.heartbeat import STOPPED_AFTER_S, Heartbeat, publish_heartbeat, take_pulse
from penstock.handover.state_page import PIPELINE_TEXTS, STATISTICS, StatePage
from penstock.testing.pipe import wait_until


def test_pulse_shows_the_silence_and_takes_the_heartbeat_out() -> None:
    statistics = {"total": 5, **Heartbeat(lambda: time.monotonic() - 12.4).beat()}
    pulse = take_pulse(statistics)
    assert (round(pulse.silent_s, 1), pulse.is_stopped, statistics) == (12.4, True, {"total": 5})


def test_process_that_beats_is_not_stopped() -> None:
    assert not take_pulse(Heartbeat().beat()).is_stopped
    assert not take_pulse({"total": 5}).is_stopped, "statistics of an earlier version"


def test_heartbeat_reports_its_last_pause() -> None:
    moments = iter((100.0, 102.9, 115.3, 115.8))
    heartbeat = Heartbeat(lambda: next(moments))
    pauses = [
        (pulse.paused_at_s, round(pulse.pause_s, 1)) for pulse in (take_pulse(heartbeat.beat()) for _ in range(4))
    ]
    assert pauses == [(0.0, 0.0), (0.0, 0.0), (102.9, 12.4), (102.9, 12.4)]


def test_process_that_has_ended_is_not_stopped() -> None:
    beat = Heartbeat(lambda: time.monotonic() - 12.4).beat()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    beat["heartbeat"]["pid"] = child
    assert not take_pulse(beat).is_stopped


def test_heartbeat_of_an_earlier_boot_is_no_negative_silence() -> None:
    assert take_pulse(Heartbeat(lambda: time.monotonic() + 1e6).beat()).silent_s == 0


def test_stopped_process_is_silent_until_it_continues_and_reports_the_pause(tmp_path: Path) -> None:
    path = tmp_path / "new" / "pipeline.state"
    program = "import sys, time; from pathlib import Path; from penstock.handover.heartbeat import publish_heartbeat\n"
    program += "with publish_heartbeat(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        page = StatePage(path, PIPELINE_TEXTS)
        wait_until(lambda: page.read(STATISTICS), what="the first beat")
        assert not take_pulse(page.read(STATISTICS)).is_stopped
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: take_pulse(page.read(STATISTICS)).is_stopped, what="it is seen as stopped")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: take_pulse(page.read(STATISTICS)).pause_s > STOPPED_AFTER_S, what="it reports its pause")
        process.communicate()
    assert page.read(STATISTICS) == {}, "a process that has ended is not stopped"


def test_heartbeat_is_removed_at_the_end_of_the_block(tmp_path: Path) -> None:
    with publish_heartbeat(tmp_path / "state"):
        pass
    assert StatePage(tmp_path / "state", PIPELINE_TEXTS).read(STATISTICS) == {}
