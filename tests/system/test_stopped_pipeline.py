"""A pipeline that is stopped (SIGSTOP) is shown everywhere within seconds."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from penstock.testing.pipe import Pipe, wait_until
from tests.system.browser import browser
from tests.system.console_process import WAIT, opened, running_console
from tests.system.landing import Driver


@pytest.mark.survives("landing from the log", "SIGSTOP")
@pytest.mark.spark
def test_stopped_pipeline_is_shown_by_console_status_alarms_and_timeline(pipe: Pipe) -> None:
    pipe.datagrams(b"x")
    driver = Driver(pipe)
    driver.start()
    assert driver.process
    try:
        wait_until(lambda: "running" in pipeline_status(pipe), 180, "the pipeline runs")
        wait_until(lambda: (pipe.data_dir / "pipeline.state").exists(), 180, "its heartbeat is published")
        driver.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: pipe.balance()["silent"], what="it counts as stopped")
        assert "pipeline stopped for" in pipeline_status(pipe)
        wait_until(lambda: "PenstockPipelineStopped" in firing(pipe), 180, "the alarm fires")
        assert "pipeline is stopped" in timeline(pipe)
        with running_console(pipe) as console, browser() as chromium:
            page, wrong = opened(chromium, console)
            expect(page.locator(".warn", has_text="pipeline stopped for")).to_be_visible(timeout=WAIT)
            expect(page.get_by_text("its messages wait in the log")).to_be_visible(timeout=WAIT)
            assert wrong == []
        driver.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not pipe.balance()["silent"], what="it runs again")
        wait_until(lambda: any("pipeline was stopped for" in text for text in timeline(pipe)), what="it is recorded")
    finally:
        driver.process.send_signal(signal.SIGCONT)
        driver.stop()


def pipeline_status(pipe: Pipe) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "status", *pipe.options]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def firing(pipe: Pipe) -> list[str]:
    return [rule["alarm"] for rule in pipe.get("/alarms")["alarms"] if rule["firing"]]


def timeline(pipe: Pipe) -> list[str]:
    return [event["text"] for event in pipe.get("/events")["events"]]
