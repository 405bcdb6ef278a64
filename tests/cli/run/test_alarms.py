"""Texts of ``penstock alarms list``, and ``penstock alarms test``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock.cli.run.alarms import state_lines
from penstock.testing.pipe import Pipe
from tests.cli.command_line import run
from tests.console.pages.test_alarms import RULE

PENSTOCK = (sys.executable, "-m", "penstock.cli.main")


def test_each_destination_gets_a_test_alarm_and_its_end(tmp_path: Path) -> None:
    script = tmp_path / "hook"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/alarms; echo >> {tmp_path}/alarms\n")
    script.chmod(0o755)
    completed = run("alarms", "test", "-o", f"alarms.command={script}", folder=tmp_path)
    assert completed.output.splitlines() == ["command: begins: delivered", "command: ends: delivered"]
    alarms = [json.loads(line) for line in (tmp_path / "alarms").read_text().splitlines()]
    assert [(alarm["alarm"], alarm["state"]) for alarm in alarms] == [
        ("PenstockTest", "begins"),
        ("PenstockTest", "ends"),
    ]


def test_alarms_without_a_command_are_listed(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, "alarms.disk_free=0")  # a full disk here is an alarm, and a status of its own
    pipe.start()
    try:
        lines = pipe.run(*PENSTOCK, "alarms").splitlines()
        assert lines == pipe.run(*PENSTOCK, "alarms", "list").splitlines()
    finally:
        pipe.stop()
    assert "PenstockKernelDrops" in [line.split()[0] for line in lines]


def test_failing_destination_is_an_error(tmp_path: Path) -> None:
    completed = run("alarms", "test", "-o", "alarms.command=/bin/false", folder=tmp_path)
    assert (completed.status, completed.output.splitlines()[0]) == (1, "command: begins: status 1")


def test_missing_destination_is_an_error(tmp_path: Path) -> None:
    completed = run("alarms", "test", folder=tmp_path)
    assert completed.status == 1
    assert "no destination: set webhook, command, slack, pagerduty or smtp in [alarms]" in completed.errors


def test_alarm_whose_delivery_was_given_up_is_listed_so() -> None:
    lines = list(state_lines({"alarms": [RULE]}))
    assert [line.split(": ")[1] for line in lines if "firing since" in line] == ["3 of <a>", "4 of b"]
    assert lines[-2] == "    delivery given up by a destination: see the log"
    assert len([line for line in lines if "given up" in line]) == 1
