"""Heartbeats of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.handover.heartbeat import STOPPED_AFTER_S, Heartbeat, publish_heartbeat, take_pulse
from penstock.handover.state_page import PIPELINE_TEXTS, STATISTICS, StatePage, is_claimed
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


PUBLISHER = """
import sys, time; from pathlib import Path; from penstock.handover.heartbeat import publish_heartbeat
with publish_heartbeat(map(Path, sys.argv[1:])): print(flush=True); sys.stdin.read()
"""


@contextmanager
def publishing(*paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that publishes its heartbeat as the pipeline does."""
    command = [sys.executable, "-c", PUBLISHER, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        page = StatePage(next(path for path in reversed(paths) if path.exists()), PIPELINE_TEXTS)
        wait_until(lambda: page.read(STATISTICS), what="the first beat")
        try:
            yield process
        finally:
            process.communicate()


def test_page_that_a_killed_process_left_is_no_stopped_process_if_its_id_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.state"
    with publishing(path) as process:
        process.kill()
    page = StatePage(path, PIPELINE_TEXTS)
    statistics = page.read(STATISTICS)
    heartbeat = statistics["heartbeat"]
    assert heartbeat["pid"] == process.pid
    # The id belongs to a process that lives, this one, and the beat is so old that silence counts.
    page.write(STATISTICS, {"heartbeat": heartbeat | {"pid": os.getpid(), "at_s": time.monotonic() - 60}})
    pulse = take_pulse(page.read(STATISTICS), path)
    assert (pulse.silent_s > 59, pulse.is_running, pulse.is_stopped) == (True, False, False)


def test_page_of_an_earlier_boot_is_no_stopped_process(tmp_path: Path) -> None:
    page = StatePage(tmp_path / "pipeline.state", PIPELINE_TEXTS)
    for at_s in (1.0, time.monotonic() + 1e6):
        heartbeat = {"pid": os.getpid(), "at_s": at_s, "paused_at_s": 0.0, "pause_s": 0.0}
        page.write(STATISTICS, {"heartbeat": heartbeat})
        assert not take_pulse(page.read(STATISTICS), tmp_path / "pipeline.state").is_stopped


def test_stopped_process_whose_id_is_not_visible_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.state"
    with publishing(path) as process:
        process.send_signal(signal.SIGSTOP)
        page = StatePage(path, PIPELINE_TEXTS)
        # A process in another container has an id that means nothing here.
        page.write(STATISTICS, {"heartbeat": page.read(STATISTICS)["heartbeat"] | {"pid": 2**22 + 1, "at_s": 1.0}})
        assert take_pulse(page.read(STATISTICS), path).is_stopped
        process.send_signal(signal.SIGCONT)


def test_two_pipelines_have_a_page_each_and_a_free_one_is_used_again(tmp_path: Path) -> None:
    first, second = pages = (tmp_path / "pipeline.state", tmp_path / "pipeline-2.state")
    with publishing(*pages) as one:
        with publishing(*pages) as other:
            pids = [StatePage(path, PIPELINE_TEXTS).read(STATISTICS)["heartbeat"]["pid"] for path in pages]
            assert pids == [one.pid, other.pid]
            with pytest.raises(OSError, match="too many pipelines"), publish_heartbeat(pages):
                pass
        one.kill()
        wait_until(lambda: not is_claimed(first), what="the claim ends")
        with publish_heartbeat(pages):
            assert is_claimed(first)
            assert not is_claimed(second)


def test_heartbeat_of_an_earlier_boot_is_no_negative_silence() -> None:
    assert take_pulse(Heartbeat(lambda: time.monotonic() + 1e6).beat()).silent_s == 0


def test_stopped_process_is_silent_until_it_continues_and_reports_the_pause(tmp_path: Path) -> None:
    path = tmp_path / "new" / "pipeline.state"
    with publishing(path) as process:
        page = StatePage(path, PIPELINE_TEXTS)
        assert not take_pulse(page.read(STATISTICS), path).is_stopped
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: take_pulse(page.read(STATISTICS), path).is_stopped, what="it is seen as stopped")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: take_pulse(page.read(STATISTICS)).pause_s > STOPPED_AFTER_S, what="it reports its pause")
    assert page.read(STATISTICS) == {}, "a process that has ended is not stopped"


def test_heartbeat_is_removed_at_the_end_of_the_block(tmp_path: Path) -> None:
    with publish_heartbeat([tmp_path / "state"]):
        pass
    assert StatePage(tmp_path / "state", PIPELINE_TEXTS).read(STATISTICS) == {}
