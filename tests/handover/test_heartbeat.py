"""Heartbeats of processes."""

from __future__ import annotations

import os
import time

from penstock.handover.heartbeat import Heartbeat, take_pulse


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
