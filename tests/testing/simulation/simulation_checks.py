"""Checks that the tests of both simulations, of the pipe and of the landing, share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.testing.simulation.outcome import Outcome

Bug = Callable[[pytest.MonkeyPatch], None]
Simulate = Callable[..., Outcome]


def check_promises(simulate: Simulate, **case: Any) -> None:
    """Run a seed, or a shrunk run as the simulation prints it, and check that nothing is broken."""
    assert not simulate(**case).broken


def check_that_bug_is_noticed(simulate: Simulate, bug: Bug, seed: int) -> None:
    """Put a bug back and check that a seed notices it."""
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        assert simulate(seed).broken


def check_same_trace(simulate: Simulate, *options: str) -> None:
    """Check that seed 0 keeps every promise, with the same trace in another process, which orders sets differently."""
    outcome = simulate(0)
    assert not outcome.broken
    command = [sys.executable, "-m", "penstock.testing.simulation", *options, "--trace", "--seeds", "1"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert "everything is kept" in run.stdout
    assert run.stdout.splitlines() == [*outcome.trace, f"seed 0: {outcome.digest}"]
