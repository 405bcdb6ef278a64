"""The error that ends a run is its outcome, and its folder goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.simulation import outcome
from penstock.testing.simulation.machine import Killed
from penstock.testing.simulation.outcome import Outcome, run_folder
from penstock.testing.simulation.promises import Broken


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (Broken("a row is lost"), "a row is lost"),
        (Killed(), "a process died outside of its steps"),
        (ValueError("odd"), "ValueError: odd, in test_outcome.py:"),
    ],
)
def test_error_that_ends_a_run_is_its_outcome(error: BaseException, broken: str) -> None:
    end = Outcome(7)
    with end.ending():
        raise error
    assert end.broken.startswith(broken)


def test_folder_of_a_run_is_removed_also_if_it_fails() -> None:
    with Outcome(7).ending(), run_folder() as folder:
        (folder / "file").write_bytes(b"x")
        raise Broken
    assert not folder.exists()


def test_run_has_a_folder_where_memory_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even root can create a folder in /proc, as in a read-only file system."""
    monkeypatch.setattr(outcome, "MEMORY", Path("/proc"))
    with run_folder() as folder:
        (folder / "file").write_bytes(b"x")
    assert not folder.exists()
