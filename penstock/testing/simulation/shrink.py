"""Shrinks a failing run: fewer faults, fewer messages, fewer steps, as long as the same promise is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.testing.simulation.outcome import Outcome
from penstock.testing.simulation.run import MESSAGES, STEPS, simulate

MAX_RUNS = 150
"""Limit for the runs of one shrinking; each takes a second or two of CPU."""


Simulate = Callable[..., Outcome]
"""``run.simulate``, or ``landing.run.simulate_landing``."""


@dataclass(frozen=True, slots=True)
class Case:
    """The arguments of a run of ``simulate``."""

    simulate: Simulate
    seed: int
    steps: int
    messages: int
    faults: tuple[int, ...]

    def run(self) -> Outcome:
        return self.simulate(self.seed, steps=self.steps, messages=self.messages, faults=self.faults)

    def as_test(self) -> str:
        """Return the line that repeats the run in ``CASES`` of the tests."""
        arguments = {"seed": self.seed, "steps": self.steps, "messages": self.messages, "faults": [*self.faults]}
        return f"{json.dumps(arguments)},"


def shrink(
    outcome: Outcome, runs: int = MAX_RUNS, simulate: Simulate = simulate, steps: int = STEPS, messages: int = MESSAGES
) -> Case:
    """Return the smallest case that fails like ``outcome``, a run of ``simulate``, within a number of runs."""
    case = Case(simulate, outcome.seed, steps, messages, tuple(fault.number for fault in outcome.faults))
    kind, budget = kind_of(outcome.broken), runs

    def still_fails(candidate: Case) -> bool:
        nonlocal budget
        budget -= 1
        return budget >= 0 and kind_of(candidate.run().broken) == kind

    case = _drop_faults(case, still_fails)
    for messages in (1, 2, 4, 8, 16):
        smaller = replace(case, messages=messages)
        if messages < case.messages and still_fails(smaller):
            case = smaller
            break
    return _drop_faults(_drop_steps(case, still_fails), still_fails)


def kind_of(broken: str) -> str:
    """Return the kind of a failure: its text without what differs between runs."""
    text = re.sub(r"b'[^']*'|\(.*?\)|\{.*\}|\[.*\]", "", broken)
    return re.sub(r"\d+", "N", text)[:60]


def _drop_faults(case: Case, still_fails: Callable[[Case], bool]) -> Case:
    size = max(len(case.faults) // 2, 1)
    while size:
        begin = 0
        while begin < len(case.faults):
            candidate = _with_faults(case, [*case.faults[:begin], *case.faults[begin + size :]])
            if still_fails(candidate):
                case = candidate
            else:
                begin += size
        size //= 2
    return case


def _with_faults(case: Case, faults: Sequence[int]) -> Case:
    return replace(case, faults=tuple(faults))


def _drop_steps(case: Case, still_fails: Callable[[Case], bool]) -> Case:
    # The schedule of the first steps does not depend on their number, so a prefix of the run is tried.
    low, high = 0, case.steps
    while high - low > max(high // 20, 1):
        middle = (low + high) // 2
        if still_fails(replace(case, steps=middle)):
            high = middle
        else:
            low = middle
    return replace(case, steps=high)
