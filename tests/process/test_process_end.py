"""A process that ends while its threads are in native code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.process.process_end import exit_status, flush_output

BUSY = """
import sys, threading, time
import pyarrow, pyarrow.compute
from penstock.process.process_end import end_process, exit_status

numbers = pyarrow.array(range(100_000))

def busy():
    while True:
        pyarrow.compute.sort_indices(numbers)

for _ in range(4):
    threading.Thread(target=busy, daemon=True).start()
time.sleep(0.1)
print("written")
end_process(exit_status(lambda: sys.exit(3)))
"""


def test_it_ends_with_its_status_and_what_it_printed() -> None:
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "written\n", "")


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
    assert exit_status(lambda: None) == 0


def test_output_that_was_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    flush_output()
