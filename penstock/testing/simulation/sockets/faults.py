"""The faults of a run with sockets, drawn from its seed before it starts."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

from penstock.testing.simulation.faults import MAX_LINES, Fault

RATES = (0.04, 0.1, 0.25)
"""Faults in a step."""
MAX_STEPS_AWAY = 60


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
    kinds = [kind for kind in SocketKind if dice.random() < 0.6] or [SocketKind.KILL_RECEIVER]
    rate = dice.choice(RATES)
    faults: list[Fault] = []
    for step in range(steps):
        if dice.random() < rate:
            kind = dice.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])[0]
            draw = _AMOUNTS.get(kind)
            amount = draw(dice) if draw else dice.randint(1, MAX_STEPS_AWAY)
            faults.append(Fault(len(faults), step, kind, amount))
    return faults
