"""Signals to a process, and the outcome of a reload."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given

from penstock.config.reloadable import APART
from penstock.supervise import reload
from penstock.supervise.endpoints import ENDPOINTS, endpoints
from penstock.supervise.installation import Installation
from penstock.supervise.instances import NotRunning, running_supervisor
from penstock.supervise.reload import (
    OUTCOME,
    NoAnswer,
    Outcome,
    Signals,
    read_outcome,
    request_reload,
    request_restart,
)
from penstock.supervise.succession import report_step
from tests.fuzzed import json_texts


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers of this process."""
    previous = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
    }
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_sighup_requests_one_reload_and_sigterm_the_end() -> None:
    signals = Signals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert (signals.take_reload(), signals.take_reload(), signals.stop) == (True, False, False)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert (signals.take_restart(), signals.take_restart(), signals.take_reload()) == (True, False, False)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.stop


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("nohup", [False, True])
def test_closing_terminal_stops_the_process_unless_nohup(
    nohup: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = tmp_path / "tty"
    terminal.touch()
    monkeypatch.setattr(reload, "TERMINAL", str(terminal))
    if nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = Signals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert (signals.take_reload(), signals.stop) == (True, False)
    terminal.unlink()
    os.kill(os.getpid(), signal.SIGHUP)
    assert signals.stop is not nohup


def test_outcome_has_lines_of_sentences() -> None:
    bad = Outcome(1, error="a.b: bad\nc: worse")
    assert bad.lines == ["a.b: bad", "c: worse", "the configuration is not reloaded; the previous one stays in force"]
    good = Outcome(1, applied=["listener 'a' is added", "log.max_topics"], waiting=["log.http"])
    assert good.lines == [
        "the configuration is reloaded: listener 'a' is added, log.max_topics",
        "log.http: takes effect with `penstock restart`: the daemon's servers open their ports and limits once",
    ]
    keys = [*(f"pipeline.{name}" for name in ("topics", "tables", "fixes")), "export.a", "sql.postgres", "console.http"]
    keys.append("log.http")
    steps = [line.split(": ")[1] for line in Outcome(1, waiting=keys, apart=APART).lines[1:]]
    assert steps == [
        "takes effect with the next start of `penstock pipeline run`",
        "takes effect with `penstock restart` and the next start of `penstock pipeline run`",
        "takes effect with the next start of `penstock console`",
        "takes effect with the next start of `penstock pipeline run`",
        "takes effect with the next start of `penstock postgres`",
        "takes effect with the next start of `penstock console`",
        "takes effect with `penstock restart`",
    ]
    assert all("with `penstock restart`:" in line for line in Outcome(1, waiting=keys).lines[1:])
    without_spark = Outcome(1, waiting=["pipeline.topics", "console.http"], apart=["penstock pipeline run"])
    assert [line.split(": ")[1] for line in without_spark.lines[1:]] == [steps[0], steps[-1]]
    refused = Outcome(1, error="a.b: bad", restart=True)
    assert refused.lines == ["a.b: bad", "nothing is restarted; the previous processes continue"]
    assert Outcome(1).lines == ["the configuration is reloaded: no key differs"]


def test_only_the_holder_of_the_lock_is_signalled(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="no penstock runs on"):
        request_reload(tmp_path, 1)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    (tmp_path / "endpoints.json").write_text(json.dumps({"supervisor": os.getpid(), "pids": {}, "listeners": {}}))
    assert running_supervisor(tmp_path) is None
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert running_supervisor(tmp_path) == os.getpid()
    for stranger in (os.getppid(), 2**22 + 1):  # the file was left by a killed supervisor
        (tmp_path / "endpoints.json").write_text(json.dumps({"supervisor": stranger, "pids": {}, "listeners": {}}))
        with pytest.raises(NotRunning, match="still starting"):
            request_reload(tmp_path, 1)
    os.close(lock)


@pytest.mark.usefixtures("handlers")
def test_process_that_does_not_answer_is_named(tmp_path: Path) -> None:
    signals = Signals()
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (tmp_path / "endpoints.json").write_text(json.dumps({"supervisor": os.getpid(), "pids": {}, "listeners": {}}))
    (tmp_path / "reloaded.json").write_text(json.dumps(asdict(Outcome(1, error="of an earlier one"))))
    with pytest.raises(NoAnswer, match=f"process {os.getpid()} has not reported the outcome"):
        request_reload(tmp_path, 0.1)
    assert signals.take_reload()
    os.close(lock)


@pytest.mark.usefixtures("handlers")
def test_request_waits_as_long_as_steps_are_reported(tmp_path: Path) -> None:
    signals = Signals()
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    installation = asdict(Installation("1", "/a", "/a/python"))
    document = {"supervisor": os.getpid(), "pids": {}, "listeners": {}, "installation": installation}
    (tmp_path / "endpoints.json").write_text(json.dumps(document))
    steps: list[str] = []

    def work() -> None:
        for number in range(30):
            report_step(tmp_path, f"step {number}")
            time.sleep(0.1)

    worker = threading.Thread(target=work)
    worker.start()
    version = r"listeners and log daemon \(process \d+\) run version 1 \(/a\)"
    with pytest.raises(NoAnswer, match=rf"within 2 s since it reported: step 29; {version}; it may still finish"):
        request_reload(tmp_path, 2, steps.append)
    worker.join()
    assert steps[-1] == "step 29"
    assert signals.take_reload()
    os.close(lock)


@given(json_texts("began", "error", "applied", "waiting", "restart"))
def test_random_bytes_are_an_outcome_or_none(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("data") / OUTCOME
    path.write_bytes(data)
    outcome = read_outcome(path)
    assert outcome is None or all(isinstance(line, str) for line in outcome.lines)


@given(json_texts("supervisor", "pids", "listeners"))
def test_random_bytes_are_endpoints_or_empty(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / ENDPOINTS).write_bytes(data)
    document = endpoints(folder)
    assert document == {} or type(document["supervisor"]) in (int, bool)


def test_outcome_of_a_restart_names_both_versions() -> None:
    outcome = Outcome(1, applied=["4 sockets were kept open"], restart=True, replaced="1 (/a)", running="2 (/b)")
    assert outcome.lines == [
        "penstock is restarted, 4 sockets were kept open",
        "version: 1 (/a) was replaced by 2 (/b)",
    ]


def test_restart_of_a_penstock_that_cannot_change_its_program_is_refused(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (tmp_path / "endpoints.json").write_text(json.dumps({"supervisor": os.getpid(), "pids": {}, "listeners": {}}))
    with pytest.raises(NoAnswer, match="cannot change to another installation: stop penstock and start it with the"):
        request_restart(tmp_path, 1)
    os.close(lock)
