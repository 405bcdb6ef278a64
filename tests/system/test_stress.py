"""The commands that talk to a listener, with a real ``penstock serve``."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import split_address
from penstock.supervise.sd_notify import listens
from penstock.testing.pipe import Pipe, wait_until


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path_factory.mktemp("stress"), "listener.events-udp.kill=true", "buffer.slots=256")
    pipe.start()
    yield pipe
    pipe.stop()


def run(pipe: Pipe, *arguments: str, input_text: str = "", status: int = 0) -> str:
    """Return the output of a command that ends with ``status``, or its errors if that is not 0."""
    command = [sys.executable, "-m", "penstock.cli.main", *arguments, *pipe.options]
    completed = subprocess.run(command, input=input_text, capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == status, completed.stderr + completed.stdout
    return completed.stderr if status else completed.stdout


@pytest.mark.parametrize("listener", ["events-udp", "events-tcp"])
def test_listener_answers_by_datagram_and_by_line(pipe: Pipe, listener: str) -> None:
    options = ("--listener", listener, "--timeout", "20")
    assert json.loads(run(pipe, "ctl", "ping", "--json", *options))["listener"] == listener
    assert json.loads(run(pipe, "ctl", "stat", "--json", *options))["v0_commands"] >= 1
    assert "v0_fragments" in run(pipe, "ctl", "stat", *options)
    assert json.loads(run(pipe, "ctl", "envi", *options))["name"] == listener


def test_kill_reports_success_and_failure(pipe: Pipe) -> None:
    assert "is back" in run(pipe, "ctl", "kill", "--listener", "events-udp", "--timeout", "20")
    errors = run(pipe, "ctl", "kill", "--listener", "events-tcp", "--timeout", "20", status=1)
    assert "allow it with kill = true" in errors


def test_no_answer_is_one_line(pipe: Pipe) -> None:
    errors = run(pipe, "ctl", "ping", "--listener", "syslog-udp", "--timeout", "0.2", status=1)
    assert errors.count("\n") == 1
    assert "no answer from udp" in errors
    assert "no listener is named 'nobody'" in run(pipe, "ctl", "stat", "--listener", "nobody", status=2)


def test_balance_has_the_network_loss_of_a_counting_sender(pipe: Pipe) -> None:
    before = pipe.counts("syslog-udp")["taken"]
    lines = "".join(f"<13>line {number}\n" for number in range(50))
    assert "50 messages" in run(pipe, "send", "--listener", "syslog-udp", "--report", input_text=lines)
    wait_until(lambda: pipe.counts("syslog-udp")["taken"] == before + 50, what="all is received")
    (entry,) = (each for each in pipe.balance()["listeners"] if each["name"] == "syslog-udp")
    assert entry["sent"]["datagrams"] == 50
    assert entry["network_lost"] == (None if before else 0)  # not every sender counted


def test_lines_of_files_are_sent_unchanged(pipe: Pipe, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\r\ntwo\n\nlast")
    assert "4 lines" in run(pipe, "send", str(file), "--listener", "events-tcp")
    wait_until(lambda: pipe.counts("events-tcp")["accepted"] >= 4, what="all is received")
    file.write_bytes(b"\0reserved\n")
    assert "sending failed: a line holds" in run(pipe, "send", str(file), "--listener", "events-tcp", status=1)


def test_stress_ends_with_the_balance_of_its_run(pipe: Pipe) -> None:
    output = run(pipe, "stress", "--json", "--stop-after", "2000", "--rate", "4000", "--loss", "0.1", "--threads", "2")
    document = json.loads(output)
    sent, received = document["sent"], document["received"]
    assert (sent["messages"], document["closed"], document["unaccounted"]) == (4000, True, 0)
    assert sent["lost"] > 0
    assert sent["datagrams"] == received["taken"] + received.get("kernel_dropped", 0)
    assert received["accepted"] < 4000
    assert any(name.startswith("incomplete") for name in received)


def test_stress_needs_a_listener_that_accepts_fragments(pipe: Pipe) -> None:
    assert "takes no fragments" in run(pipe, "stress", "--listener", "syslog-udp", status=2)
    assert "loss must be from 0 to 1" in run(pipe, "stress", "--loss", "2", status=2)


def test_run_waits_for_a_log_daemon_that_is_restarted(pipe: Pipe) -> None:
    before = pipe.counts("events-udp")["taken"]
    load = ["--rate", "500", "--stop-after", "1000", "--max-size", "200", "--json"]
    command = [sys.executable, "-m", "penstock.cli.main", "stress", *load, *pipe.options]
    supervisor = pipe.endpoints()["supervisor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stress:
        wait_until(lambda: pipe.counts("events-udp")["taken"] > before, what="the load has begun")
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(pipe.endpoints()["pids"]["log daemon"], signal.SIGKILL)
            wait_until(lambda: not listens(split_address(pipe.http)), what="no daemon answers")
            errors = run(pipe, "topics", status=2)
            with socket.create_server(split_address(pipe.http)) as server:
                server.accept()[0].close()  # the run has ended, and its balance is requested
        finally:
            os.kill(supervisor, signal.SIGCONT)
        output, stress_errors = stress.communicate(timeout=120)
    assert f"process {supervisor} on {pipe.data_dir} is starting or stopping it; try again" in errors
    assert (stress.returncode, stress_errors) == (0, "")
    assert json.loads(output)["received"]["accepted"] == 1000
