"""The timeline reports incidents and outlives every process."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.testing.pipe import Pipe, wait_until


def command(pipe: Pipe, *words: str) -> str:
    return pipe.run(sys.executable, "-m", "penstock.cli.main", *words)


def happened(pipe: Pipe) -> str:
    events: list[dict[str, Any]] = pipe.get("/events")["events"]
    return "\n".join(event["text"] for event in events)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    running = Pipe(tmp_path, "listener.events-udp.so_rcvbuf=64KiB")
    running.start()
    yield running
    running.stop()


def test_timeline_outlives_every_process(pipe: Pipe) -> None:
    pipe.kill("log daemon")
    wait_until(lambda: "log daemon was killed by SIGKILL, back after" in happened(pipe), what="the daemon is back")
    pipe.kill_all()
    pipe.start()
    wait_until(lambda: "penstock started: the previous run was killed" in happened(pipe))
    pipe.stop()
    pipe.start()
    wait_until(lambda: len(pipe.get("/events")["events"]) >= 5, what="the start is told")
    lines = [line.split(" ", 1)[1] for line in command(pipe, "events").splitlines()]
    assert lines[0] == "penstock started"
    assert lines[1].startswith("log daemon was killed by SIGKILL, back after ")
    assert lines[2:] == [
        "penstock started: the previous run was killed",
        "penstock stopped",
        "penstock started",
    ]


def test_reload_is_recorded_with_its_changes(pipe: Pipe) -> None:
    assert pipe.process
    pipe.process.send_signal(signal.SIGHUP)
    text = "the configuration is reloaded: no key differs"
    wait_until(lambda: text in happened(pipe), what="the reload is told")


@pytest.mark.survives("datagrams", "SIGSTOP")
def test_stopped_receiver_is_visible_and_named_as_the_cause_of_its_loss(pipe: Pipe) -> None:
    def silent_s() -> float:
        return float(pipe.get("/stat")["listeners"]["events-udp"]["silent_s"])

    pipe.datagrams(b"x")
    wait_until(lambda: pipe.counts("events-udp").get("accepted") == 1, what="it runs")
    assert silent_s() < 3
    with pipe.paused("receiver events-udp"):
        pipe.datagrams(*[b"x" * 1000] * 500)
        wait_until(lambda: silent_s() > 3, what="the receiver is silent")
        assert "receiver events-udp stopped for" in command(pipe, "pipeline", "status")
        metrics = httpx.get(f"http://{pipe.http}/metrics").text.splitlines()
        sample = 'penstock_receiver_silent_seconds{listener="events-udp"} '
        assert [float(line.removeprefix(sample)) > 3 for line in metrics if line.startswith(sample)] == [True]
        wait_until(lambda: "receiver events-udp is stopped" in happened(pipe), what="the stop is recorded")
    wait_until(lambda: "receiver events-udp was stopped for" in happened(pipe), what="the return is recorded")
    dropped = r"[0-9,]+ dropped by the kernel while receiver events-udp was stopped for [0-9.]+ s"
    wait_until(lambda: re.search(dropped, happened(pipe)) is not None, what="the loss is part of it")
    wait_until(lambda: silent_s() < 3, what="it runs again")
