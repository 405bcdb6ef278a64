"""The simulated pipe keeps its promises for each seed, and notices bugs that are put back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.testing.simulation import simulate
from tests.testing.simulation.bugs import BUGS
from tests.testing.simulation.simulation_checks import (
    Bug,
    check_promises,
    check_same_trace,
    check_that_bug_is_noticed,
)

CASES: list[dict[str, Any]] = [
    {"seed": 91000109, "steps": 93, "messages": 25, "faults": [3000, 3001, 3002]},
    {"seed": 8, "steps": 240, "messages": 25, "faults": [22]},
    {"seed": 20040, "steps": 300, "messages": 25, "faults": [0, 1, 2, 3, 4, 5, 6]},
    {"seed": 50042, "faults": [*range(11)]},
    {"seed": 50162},
    {"seed": 268},
    {"seed": 900002351},
    {"seed": 1400000531, "steps": 97, "messages": 16, "faults": [3000, 3001, 3002, 1]},
    {"seed": 100009, "faults": [*range(24)]},
    {"seed": 100579, "steps": 262, "messages": 25, "faults": [0, 1, 2]},
    {"seed": 100396, "steps": 70, "messages": 1, "faults": [0, 4, 7]},
    {"seed": 100345, "steps": 93, "messages": 4, "faults": [1, 2]},
    {"seed": 100321, "steps": 107, "messages": 16, "faults": [0, 1, 2]},
    {"seed": 70079},
    {"seed": 70079, "steps": 60, "messages": 1, "faults": [3, 4]},
    {"seed": 325411, "steps": 77, "messages": 8, "faults": [3, 5]},
    {"seed": 339063, "steps": 65, "messages": 8, "faults": [4, 5]},
    {"seed": 312929, "steps": 288, "messages": 8, "faults": [12, 13]},
    {"seed": 70113, "steps": 160, "faults": [0, 1, 2, 3]},
    {"seed": 100181, "steps": 72, "messages": 8, "faults": [3, 4, 5, 6, 7]},
    {"seed": 200047},
    {"seed": 910328, "steps": 107, "messages": 4, "faults": [1, 2, 3, 8, 9, 11, 13, 14]},
    {"seed": 8300190, "steps": 271, "messages": 25, "faults": [0, 1]},
    {"seed": 8300469},
    {"seed": 1066},
    {"seed": 1073},
    {"seed": 1333},
    {"seed": 1546},
    {"seed": 1107},
    {"seed": 8310477, "steps": 27, "messages": 1, "faults": [1000, 1002, 1001, 1]},
    {"seed": 1267},
    {"seed": 9000037},
    {"seed": 9000076},
    {"seed": 20001448},
    {"seed": 20001437, "steps": 281, "messages": 16, "faults": [0, 1, *range(3, 7), *range(8, 12), 14, 18, 21, 23, 30]},
    {"seed": 20001651},
    {"seed": 20000836},
    {"seed": 20001318},
    {"seed": 30001436},
    {"seed": 532},
    {"seed": 30001476},
    {"seed": 60000761},
    {
        "seed": 91000339,
        "steps": 290,
        "messages": 25,
        "faults": [1, 2, 3, 5, 6, *range(10, 16), *range(21, 28), 33, 34, 35],
    },
    {"seed": 93002051, "steps": 97, "messages": 16, "faults": [0, 1, 2, 4, 5, 6]},
    {"seed": 93002437, "steps": 225, "messages": 25, "faults": [0]},
    {"seed": 93001540, "steps": 163, "messages": 16, "faults": [1, 2, 3, 5, 6, 7, 8, 10, 12, 13, 14, 15]},
    {"seed": 94000326, "steps": 140, "messages": 16, "faults": [0, 1, 2, 4, 6]},
    {"seed": 93002632},
    {"seed": 100000462},
    {
        "seed": 93002374,
        "steps": 281,
        "messages": 16,
        "faults": [*range(9), 10, 13, 14, 15, 16, 21, 22, 3000, 3001],
    },
]
"""Shrunk runs of faults that the simulation has found, as it prints them."""


@pytest.mark.parametrize("seed", range(1, 100))
def test_run_keeps_every_promise(seed: int) -> None:
    check_promises(simulate, seed=seed)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_run_that_failed_once_keeps_every_promise(case: dict[str, Any]) -> None:
    check_promises(simulate, **case)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate, bug, BUGS[bug])
