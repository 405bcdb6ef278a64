"""The simulated landing keeps its promises for each seed, and notices bugs that are put back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.testing.simulation.landing.run import simulate_landing
from tests.testing.simulation.landing.bugs import BUGS
from tests.testing.simulation.simulation_checks import (
    Bug,
    check_promises,
    check_same_trace,
    check_that_bug_is_noticed,
)

CASES: list[dict[str, Any]] = [
    {"seed": 12, "faults": [*range(13)]},
    {"seed": 10, "faults": [1000, 0, 1]},
    {"seed": 4002, "faults": [0, 1, 2, 1000, 3, 4, 5]},
    {"seed": 5002},
    {"seed": 113},
    {"seed": 3000000004, "steps": 86, "faults": [3, 4]},
]
"""Shrunk runs of faults that the simulation has found, as it prints them."""


@pytest.mark.parametrize("seed", range(1, 4))
def test_landing_keeps_every_promise(seed: int) -> None:
    check_promises(simulate_landing, seed=seed)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_landing_that_failed_once_keeps_every_promise(case: dict[str, Any]) -> None:
    check_promises(simulate_landing, **case)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate_landing, "--landing")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_the_landing_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate_landing, bug, BUGS[bug])
