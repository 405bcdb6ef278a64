"""A program becomes its successor, and what it hands over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError
from penstock.supervise.installation import Installation
from penstock.supervise.succession import (
    STEP,
    VARIABLE,
    Inheritance,
    Program,
    read_step,
    report_step,
    take_inheritance,
    unless_stopping,
)

SUCCEED = """
import os, signal, subprocess, sys, time
from penstock.supervise.succession import Inheritance, Program, accept_requests, take_inheritance
inheritance = take_inheritance()
if inheritance is None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    lock = os.open(sys.argv[1], os.O_RDWR)
    os.kill(os.getpid(), signal.SIGCONT)
    try:
        # The request to stop arrives after the last moment at which it would be seen.
        stop = lambda: os.kill(os.getpid(), signal.SIGTERM)
        Program.of_command_line().replace_process(Inheritance({"child": child.pid}, os.getpid(), True, lock), stop)
    finally:
        print("not reached")
signal.signal(signal.SIGUSR2, lambda *_: print("requested"))
signal.signal(signal.SIGTERM, lambda *_: print("stopped"))
os.kill(os.getpid(), signal.SIGUSR2)
print("pending")
accept_requests()
print(inheritance.began == os.getpid(), inheritance.may_hang_up, os.get_inheritable(inheritance.lock))
os.write(inheritance.lock, b"locked")
started_at = time.monotonic()
inheritance.end_children(["child"], 20)
print("ended" if time.monotonic() - started_at < 20 else "killed")
"""


def test_successor_has_the_process_id_descriptors_children_and_pending_signals(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    output = subprocess.run([sys.executable, "-c", SUCCEED, str(lock)], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines() == ["pending", "requested", "stopped", "True True False", "ended"], output.stderr
    assert lock.read_text() == "locked"


def test_program_that_cannot_be_run_leaves_everything_as_it_was() -> None:
    with pytest.raises(OSError, match="No such file"):
        Program(["/nowhere/python"]).replace_process(Inheritance({}, 0, may_hang_up=False), lambda: False)


def test_process_that_is_being_stopped_has_no_successor() -> None:
    program = Program([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(ConfigError, match=r"^penstock is being stopped$"):
        program.replace_process(Inheritance({}, 0, may_hang_up=False), lambda: True)
    with pytest.raises(ConfigError, match=r"^penstock is being stopped$"):
        program.rehearse(unless_stopping(lambda: None, lambda: True))


def test_rehearsal_reads_the_task_and_reports_its_reason() -> None:
    code = f"import os, sys; sys.exit('penstock: ' + os.environ['{VARIABLE}'] + sys.stdin.read() + sys.argv[1])"
    program = Program([sys.executable, "-c", code, str(os.getppid())], {"key": 1})
    ticks: list[int] = []
    with pytest.raises(ConfigError, match=f'^rehearsal{{"key": 1}}{os.getpid()}$'):
        program.rehearse(lambda: ticks.append(1))
    Program([sys.executable, "-c", "import sys; sys.argv"]).rehearse(lambda: None)


@given(st.dictionaries(st.text(max_size=40), st.integers(min_value=1)), st.booleans())
def test_inheritance_survives_the_environment(pids: dict[str, int], may_hang_up: bool) -> None:
    os.environ[VARIABLE] = json.dumps({"pids": pids, "began": 7, "may_hang_up": may_hang_up})
    assert take_inheritance() == Inheritance(pids, 7, may_hang_up)
    assert take_inheritance() is None


def test_program_of_another_installation_has_its_python_and_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "penstock").touch()
    script, other = str(tmp_path / "a" / "penstock"), Installation("2", "/b", str(tmp_path / "b" / "python"))
    monkeypatch.setattr(sys, "argv", [script, "serve"])
    by_script = Program(["/a/python", "-X", "dev", script, "serve"]).run_by(other)
    assert by_script.command == [other.executable, "-X", "dev", str(tmp_path / "b" / "penstock"), "serve"]
    by_module = Program(["/a/python", "-m", "penstock.cli.main", "serve"], {"key": 1}).run_by(other)
    assert by_module == Program([other.executable, "-m", "penstock.cli.main", "serve"], {"key": 1})


def test_rehearsal_of_a_broken_or_unexpected_installation_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^\S+ does not start: ModuleNotFoundError: No module named 'missing'$"):
        Program([sys.executable, "-c", "import missing"]).rehearse(lambda: None)
    report = "from penstock.supervise.succession import report_rehearsal; report_rehearsal()"
    program, own = Program([sys.executable, "-c", report]), Installation.current()
    for expected in (None, own):
        program.rehearse_succession(lambda: None, expected)
    other = Installation("2", "/b", sys.executable)
    with pytest.raises(ConfigError, match=f"loads {own.package} here, as by PYTHONPATH, not /b: stop penstock and"):
        program.rehearse_succession(lambda: None, other)
    with pytest.raises(ConfigError, match="does not report what it loads, not /b: stop penstock"):
        Program([sys.executable, "-c", ""]).rehearse_succession(lambda: None, other)


@pytest.mark.survives("supervisor", "other format")
@pytest.mark.parametrize("report", ["", '"/a/penstock"', '{"package": "/a", "inherits": ["pids", "began"]}', "[" * 9])
def test_version_that_does_not_report_what_it_takes_over_is_refused(report: str) -> None:
    program = Program([sys.executable, "-c", f"print({report!r})"])
    with pytest.raises(ConfigError, match="runs a version that cannot take over the running processes: stop penstock"):
        program.rehearse_succession(lambda: None, None)


def test_step_is_read_if_it_is_newer_than_the_request(tmp_path: Path) -> None:
    assert read_step(tmp_path, 0) == ""
    report_step(tmp_path, "trying")
    assert read_step(tmp_path, 0) == "trying"
    assert read_step(tmp_path, time.monotonic_ns()) == ""
    (tmp_path / STEP).write_bytes(b"\xff")
    assert read_step(tmp_path, 0) == ""
