"""A process that ends while its threads are in native code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.process.process_end import ends, exit_status, flush_output

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
"""Most often a crash, where END is the interpreter's end."""


def test_it_ends_with_its_status_and_what_it_printed(tmp_path: Path) -> None:
    program = BUSY.replace("END", "end_process(exit_status(lambda: sys.exit(3)))")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env=BUFFERED,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "written\n", "")


def test_the_status_that_main_returns_is_the_process_s() -> None:
    assert (exit_status(lambda: 3), exit_status(lambda: None)) == (3, 0)


@pytest.mark.parametrize(
    ("code", "status", "said"), [(None, 0, ""), (3, 3, ""), (-1, 255, ""), ("no such file", 1, "no such file\n")]
)
def test_the_status_is_what_the_interpreter_would_give(
    code: object, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(lambda: sys.exit(code)) == status  # type: ignore[arg-type]
    assert capsys.readouterr().err == said


def test_an_exception_is_printed_and_ends_it_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(lambda: 1 // 0) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_output_that_was_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    flush_output()


def test_a_thread_is_told_to_end_and_one_that_does_not_is_waited_for_once() -> None:
    stop, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=go_on.wait)
    assert ends(thread, stop, 60), "it was never started"
    thread.start()
    assert not ends(thread, stop, 0.01)
    begin = time.monotonic()
    assert not ends(thread, stop, 60)
    assert (stop.is_set(), time.monotonic() - begin < 30) == (True, True)
    go_on.set()
    thread.join(20)
    assert ends(thread, stop, 0)
