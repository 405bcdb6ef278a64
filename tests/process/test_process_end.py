"""The end of a process with threads in native code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.process.process_end import INTERRUPTED, exit_status, flush_output, stop_thread

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
BUSY = """
import sys, threading, time
from deltalake import DeltaTable, write_deltalake
import pyarrow
from penstock.process.process_end import end_process, exit_status

write_deltalake("table", pyarrow.table({"a": range(1000)}))

def busy():
    while True:
        DeltaTable("table").get_add_actions()

for _ in range(2):
    threading.Thread(target=busy, daemon=True).start()
time.sleep(0.5)
print("written")
END
"""
"""Crashes most of the time when END is the interpreter's end."""


def test_process_with_native_threads_ends_with_its_status_and_output(tmp_path: Path) -> None:
    program = BUSY.replace("END", "end_process(exit_status(lambda: sys.exit(3)))")
    process = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env=BUFFERED,
    )
    assert (process.returncode, process.stdout, process.stderr) == (3, "written\n", "")


def test_status_is_what_main_returns() -> None:
    assert (exit_status(lambda: 3), exit_status(lambda: None)) == (3, 0)


@pytest.mark.parametrize(
    ("code", "status", "output"), [(None, 0, ""), (3, 3, ""), (-1, 255, ""), ("no such file", 1, "no such file\n")]
)
def test_status_of_sys_exit_is_that_of_the_interpreter(
    code: object, status: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(lambda: sys.exit(code)) == status  # type: ignore[arg-type]
    assert capsys.readouterr().err == output


def test_exception_is_printed_and_gives_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(lambda: 1 // 0) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_flush_ignores_closed_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    flush_output()


def test_stop_thread_waits_only_in_the_first_call() -> None:
    stop, release = threading.Event(), threading.Event()
    thread = threading.Thread(target=release.wait)
    assert stop_thread(thread, stop, 60), "it was never started"
    thread.start()
    assert not stop_thread(thread, stop, 0.01)
    begin = time.monotonic()
    assert not stop_thread(thread, stop, 60)
    assert (stop.is_set(), time.monotonic() - begin < 30) == (True, True)
    release.set()
    thread.join(20)
    assert stop_thread(thread, stop, 0)


def test_interrupt_before_a_process_has_a_handler_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert exit_status(interrupted) == INTERRUPTED
    assert capsys.readouterr().err == ""
