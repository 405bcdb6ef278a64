"""The simulated landing keeps its promises for each seed, and notices bugs that are put back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from penstock.testing.simulation.landing.run import simulate_landing
from tests.testing.simulation.landing.bugs import BUGS, Bug

CASES: list[dict[str, Any]] = [{"seed": 12}, {"seed": 10}, {"seed": 4002}, {"seed": 5002}]
"""Shrunk runs of faults that the simulation has found, as it prints them."""


@pytest.mark.parametrize("seed", range(4))
def test_landing_keeps_every_promise(seed: int) -> None:
    assert not simulate_landing(seed).broken


@pytest.mark.parametrize("case", CASES, ids=str)
def test_landing_that_failed_once_keeps_every_promise(case: dict[str, Any]) -> None:
    assert not simulate_landing(**case).broken


def traces(hash_seed: str) -> str:
    command = [sys.executable, "-m", "penstock.testing.simulation", "--landing", "--trace", "--seeds", "1"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout


def test_seed_gives_the_same_trace_in_every_process() -> None:
    first = traces("1")
    assert "everything is kept" in first
    assert first == traces("2")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_the_landing_that_is_put_back(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert simulate_landing(BUGS[bug]).broken
