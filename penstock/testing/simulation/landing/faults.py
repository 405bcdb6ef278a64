"""The faults of a run of the landing, drawn from its seed before it starts, so that any of them can be left out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import StrEnum

from penstock.testing.simulation.faults import Fault, by_step


class LandingKind(StrEnum):
    """Kinds of faults; ``amount`` of a fault is explained at each."""

    KILL_PIPELINE = "kill the pipeline after so many lines of code"
    KILL_TASK = "kill a task's worker after so many lines of code"
    KILL_DAEMON = "kill the log daemon"
    STOP_PIPELINE = "stop the pipeline"
    FULL_DISK = "fail so many writes for lack of space"
    LOST_COMMIT = "fail so many commits of tables"
    LOST_ANSWER = "lose the answers to so many commits of tables"
    OTHER_WRITER = "let another program change the table within so many commits"
    LOST_POST = "lose so many of the ledger's answers"
    LOST_LEDGER = "remove the books of the log daemon"
    CLOCK_JUMP = "set the clock forward or back by so many seconds"
    PAUSE = "let so many seconds pass"
    INTERLEAVE = "let other threads of the pipeline work after so many calls that read or write tables"


_WEIGHTS = {
    LandingKind.KILL_PIPELINE: 14,
    LandingKind.KILL_TASK: 5,
    LandingKind.KILL_DAEMON: 3,
    LandingKind.STOP_PIPELINE: 3,
    LandingKind.FULL_DISK: 5,
    LandingKind.LOST_COMMIT: 3,
    LandingKind.LOST_ANSWER: 5,
    LandingKind.OTHER_WRITER: 5,
    LandingKind.LOST_POST: 3,
    LandingKind.CLOCK_JUMP: 2,
    LandingKind.PAUSE: 8,
}
_JUMPS_S = (-86_400, -3_000, -5, 5, 500, 3_000, 90_000)
_PAUSES_S = (30, 70, 130, 700, 30_000, 200_000)
MAX_LINES, MAX_CALLS = 10_000, 300
LOST_LEDGER_SHARE, FIRST_OF_LOST_LEDGERS = 0.15, 1_000
"""Share of seeds that lose the ledger, and the number of this fault, which has draws of its own."""
INTERLEAVED_SHARE, INTERLEAVINGS_PER_STEP, FIRST_OF_INTERLEAVINGS = 0.5, 0.3, 2_000
"""Share of seeds whose threads interleave, how often, and the first number, with draws of their own."""


def draw_landing_faults(seed: int, steps: int, only: Iterable[int] | None = None) -> list[Fault]:
    """Return the faults of a seed within ``steps``, or those with the numbers ``only``, by step."""
    dice = random.Random(f"{seed} landing faults")
    kinds = [kind for kind in _WEIGHTS if dice.random() < 0.6] or [LandingKind.KILL_PIPELINE]
    rate = dice.choice([0.02, 0.05, 0.1])
    faults: list[Fault] = []
    for step in range(steps):
        if dice.random() < rate:
            kind = dice.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]
            faults.append(Fault(len(faults), step, kind, _draw_amount(kind, dice)))
    dice = random.Random(f"{seed} lost ledger")
    if dice.random() < LOST_LEDGER_SHARE:
        faults.append(Fault(FIRST_OF_LOST_LEDGERS, dice.randrange(steps), LandingKind.LOST_LEDGER, 1))
    dice = random.Random(f"{seed} interleaved threads")
    if dice.random() < INTERLEAVED_SHARE:
        for step in range(steps):
            if dice.random() < INTERLEAVINGS_PER_STEP:
                calls = int(MAX_CALLS ** dice.random()) - 1
                faults.append(Fault(FIRST_OF_INTERLEAVINGS + step, step, LandingKind.INTERLEAVE, calls))
    return by_step(faults, only)


def _draw_amount(kind: LandingKind, dice: random.Random) -> int:
    if kind in (LandingKind.KILL_PIPELINE, LandingKind.KILL_TASK):
        return int(MAX_LINES ** dice.random())
    if kind is LandingKind.CLOCK_JUMP:
        return dice.choice(_JUMPS_S)
    if kind is LandingKind.PAUSE:
        return dice.choice(_PAUSES_S)
    return dice.choice([1, 1, 2, 3, 5])
