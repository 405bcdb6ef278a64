"""Processes that act by age ask the running daemon whether the clock is plausible."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.drill.faults import VARIABLE, Faults
from penstock.drill.pipe import INJECTED
from penstock.landing.table_paths import Layout
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.testing.pipe import Pipe, wait_until
from penstock.upkeep.believed_clock import BelievedClock
from tests.upkeep.clocks import Later

TWO_YEARS = 730 * 86_400.0


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


@pytest.fixture
def pipe(tmp_path: Path, faults: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """A pipe whose clock is off by the seconds in a file."""
    Faults().write(faults)
    paths = [str(INJECTED), os.environ.get("PYTHONPATH", str(Path.cwd()))]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv(VARIABLE, str(faults))
    running = Pipe(tmp_path)
    running.start()
    yield running
    running.stop()


def test_daemon_vouches_for_the_clock_until_it_jumps_or_the_daemon_is_away(
    pipe: Pipe, faults: Path, tmp_path: Path
) -> None:
    layout, daemon = Layout.for_tables(tmp_path / "tables"), LedgerClient(pipe.http)
    assert BelievedClock(layout, daemon).now() is not None
    assert BelievedClock(layout, daemon, Later(TWO_YEARS)).now() is None, "only this process has a wrong clock"
    Faults(clock=TWO_YEARS).write(faults)
    wait_until(lambda: not daemon.clock()["right"], what="the daemon notices the jump")
    assert BelievedClock(layout, daemon, Later(TWO_YEARS)).now() is None, "both have"
    pipe.run(sys.executable, "-m", "penstock.cli.main", "clock", "--accept")
    assert BelievedClock(layout, daemon, Later(TWO_YEARS)).now() is not None, "an operator accepted it"
    pipe.stop()
    assert BelievedClock(layout, daemon, Later(TWO_YEARS)).now() is None
