"""The faults of a run with sockets, drawn from its seed before it starts."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

from penstock.testing.simulation.faults import MAX_CALLS, MAX_LINES, Fault

RATES = (0.04, 0.1, 0.25)
"""Faults in a step."""
MAX_STEPS_AWAY = 60
POWER_CUT_SHARE, POWER_CUT_RATE, FIRST_OF_POWER_CUTS = 0.4, 0.015, 1_000
"""Share of seeds with power cuts, their number in a step, and the number of the first one, which has its own draws."""


class SocketKind(StrEnum):
    """Kinds of faults; ``amount`` of a fault is explained at each."""

    KILL_RECEIVER = "kill a receiver after so many lines of code"
    KILL_DAEMON = "kill the log daemon after so many lines of code"
    RELOAD = "stop receivers in order and start them again, after so many steps"
    STOP_RECEIVER = "let a receiver take no step for so many steps"
    STOP_DAEMON = "let the log daemon take no step for so many steps"
    LOSE = "lose so many datagrams"
    REPEAT = "deliver so many datagrams twice"
    DELAY = "let others overtake so many datagrams"
    CUT = "cut so many datagrams"
    BURST = "send many datagrams at once in so many steps"
    RESET = "reset a connection"
    VANISH = "let a peer vanish without a word"
    DEAF = "let a sender read no answers for so many seconds"
    REST = "let the sender of a connection rest for so many seconds"
    FLOOD = "open so many connections that never end a line"
    NO_DESCRIPTOR = "let so many calls of accept find no descriptor"
    CLOCK_JUMP = "set the clock forward or back by so many seconds"
    PAUSE = "let so many seconds pass"
    POWER_CUT = "cut the power after so many file operations of the log daemon"
    POWER_CUT_OF_RECEIVER = "cut the power after so many lines of code of a receiver"


_DRAWN_KINDS = [kind for kind in SocketKind if kind not in (SocketKind.POWER_CUT, SocketKind.POWER_CUT_OF_RECEIVER)]
_WEIGHTS = {SocketKind.KILL_RECEIVER: 4, SocketKind.REPEAT: 2}
_AMOUNTS: dict[SocketKind, Callable[[random.Random], int]] = {
    SocketKind.KILL_RECEIVER: lambda dice: int((4 * MAX_LINES) ** dice.random()),
    SocketKind.KILL_DAEMON: lambda dice: int(MAX_LINES ** dice.random()),
    SocketKind.CLOCK_JUMP: lambda dice: dice.choice([-86_400, -3_000, -5, 5, 500, 90_000]),
    SocketKind.PAUSE: lambda dice: dice.choice([1, 8, 12, 70]),
    SocketKind.BURST: lambda dice: dice.randint(1, 3),
    SocketKind.FLOOD: lambda dice: dice.randint(1, 12),
}


def draw_socket_faults(seed: int, steps: int) -> list[Fault]:
    """Return the faults of a seed within ``steps``."""
    dice = random.Random(f"{seed} socket faults")
    kinds = [kind for kind in _DRAWN_KINDS if dice.random() < 0.6] or [SocketKind.KILL_RECEIVER]
    rate = dice.choice(RATES)
    faults: list[Fault] = []
    for step in range(steps):
        if dice.random() < rate:
            kind = dice.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])[0]
            draw = _AMOUNTS.get(kind)
            amount = draw(dice) if draw else dice.randint(1, MAX_STEPS_AWAY)
            faults.append(Fault(len(faults), step, kind, amount))
    return faults + _draw_power_cuts(seed, steps)


def _draw_power_cuts(seed: int, steps: int) -> list[Fault]:
    dice = random.Random(f"{seed} socket power cuts")
    faults: list[Fault] = []
    for step in range(steps if dice.random() < POWER_CUT_SHARE else 0):
        if dice.random() < POWER_CUT_RATE:
            kind = dice.choice([SocketKind.POWER_CUT, SocketKind.POWER_CUT_OF_RECEIVER])
            most = MAX_CALLS if kind is SocketKind.POWER_CUT else 4 * MAX_LINES
            faults.append(Fault(FIRST_OF_POWER_CUTS + len(faults), step, kind, int(most ** dice.random()) - 1))
    return faults
