"""The faults of a run, drawn from its seed before it starts, so that any of them can be left out."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of faults; ``amount`` of a fault is explained at each."""

    KILL_DAEMON_AT_LINE = "kill the log daemon after so many lines of code"
    KILL_DAEMON_AT_CALL = "kill the log daemon after so many file operations"
    KILL_RECEIVER = "kill a receiver after so many lines of code"
    POWER_CUT = "cut the power after so many file operations"
    FAILED_SYNC = "fail so many syncs"
    FAILED_WRITE = "fail so many writes"
    FAILED_RENAME = "fail so many renames"
    FAILED_FOLDER_SYNC = "fail so many syncs of folders"
    FAILED_TRUNCATE = "fail so many truncations"
    FAILED_OPEN = "fail so many opens"
    FULL_DISK = "fill the disk but for so many bytes"
    FREE_DISK = "free the disk after so many steps"
    CLOCK_JUMP = "set the clock forward or back by so many seconds"
    SLOW_DISK = "delay file operations by so many milliseconds"
    HALF_OPEN = "lose so many answers"
    BIT_FLIP = "flip a bit of a file"
    PAUSE = "let so many seconds pass"
    FAILED_READ = "fail so many reads"
    LYING_SYNC = "write nothing at so many syncs that succeed"
    CLAIM_KILL = "kill the log daemon with claimed frames, and let so many follow before its successor reads"
    TORN_INDEX = "tear the index of a topic at the next power cut, by these dice"


FAILURES = {
    Kind.FAILED_SYNC: ("sync", errno.EIO),
    Kind.FAILED_WRITE: ("write", errno.EIO),
    Kind.FAILED_RENAME: ("rename", errno.EIO),
    Kind.FAILED_FOLDER_SYNC: ("sync_directory", errno.EIO),
    Kind.FAILED_TRUNCATE: ("truncate", errno.EIO),
    Kind.FAILED_OPEN: ("open", errno.EMFILE),
    Kind.FAILED_READ: ("read", errno.EIO),
}
"""Operation and error of each failing file operation."""

_WEIGHTS = {
    Kind.KILL_DAEMON_AT_LINE: 12,
    Kind.KILL_DAEMON_AT_CALL: 8,
    Kind.KILL_RECEIVER: 8,
    Kind.POWER_CUT: 12,
    Kind.FAILED_SYNC: 6,
    Kind.FAILED_WRITE: 3,
    Kind.FAILED_RENAME: 3,
    Kind.FAILED_FOLDER_SYNC: 3,
    Kind.FAILED_TRUNCATE: 3,
    Kind.FAILED_OPEN: 2,
    Kind.FULL_DISK: 6,
    Kind.CLOCK_JUMP: 2,
    Kind.SLOW_DISK: 2,
    Kind.HALF_OPEN: 10,
    Kind.BIT_FLIP: 3,
    Kind.PAUSE: 6,
}
_JUMPS_S = (-86_400, -3_000, -5, 5, 500, 3_000, 90_000)
MAX_LINES, MAX_CALLS = 4_000, 40
MAX_FREE_BYTES, MAX_FULL_STEPS = 20_000, 40
BAD_DISK_SHARE, BAD_DISK_RATE = 0.3, 0.02
"""Share of seeds with a bad disk, and its faults in a step."""
MAX_LYING_SYNCS, MAX_LYING_STEPS = 60, 30
CLAIM_KILL_SHARE, CLAIM_KILL_STEPS, CLAIM_KILL_FRAMES = 0.1, (10, 100), 40
"""Share of seeds with such a kill, its steps (later no messages may be left), and frames that overrun a log buffer."""
TORN_INDEX_SHARE, TORN_INDEX_STEPS = 0.1, (30, 150)
"""Share of seeds in which a power cut tears an index, and its steps: a segment needs some batches."""
FIRST_OF_BAD_DISK, FIRST_OF_CLAIM_KILLS, FIRST_OF_TORN_INDICES = 1_000, 2_000, 3_000
"""Numbers of the first faults of these kinds, which have draws of their own: recorded runs keep their numbers."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a step. ``number`` names it in a shrunk run."""

    number: int
    step: int
    kind: StrEnum
    amount: int

    def __str__(self) -> str:
        return f"fault {self.number}: {self.kind} ({self.amount})"


def draw_faults(seed: int, steps: int, only: Iterable[int] | None = None) -> list[Fault]:
    """Return the faults of a seed within ``steps``, or those with the numbers ``only``, by step."""
    dice = random.Random(f"{seed} faults")
    # Each seed has its own rate and its own selection of kinds: rare combinations need runs without the others.
    kinds = [kind for kind in _WEIGHTS if dice.random() < 0.6] or [Kind.POWER_CUT]
    rate = dice.choice([0.01, 0.03, 0.08])
    faults: list[Fault] = []
    for step in range(steps):
        if dice.random() < rate:
            kind = dice.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]
            faults.append(Fault(len(faults), step, kind, _draw_amount(kind, dice)))
            if kind is Kind.FULL_DISK:
                end = step + dice.randint(1, MAX_FULL_STEPS)
                faults.append(Fault(len(faults), end, Kind.FREE_DISK, 0))
    faults += _draw_bad_disk(seed, steps)
    claims = random.Random(f"{seed} claims")
    if claims.random() < CLAIM_KILL_SHARE:
        step = claims.randint(*CLAIM_KILL_STEPS)
        faults.append(Fault(FIRST_OF_CLAIM_KILLS, step, Kind.CLAIM_KILL, CLAIM_KILL_FRAMES))
    faults += _draw_torn_index(seed)
    return by_step(faults, only)


def by_step(faults: Iterable[Fault], only: Iterable[int] | None) -> list[Fault]:
    """Return the faults with the numbers ``only``, or all, by step."""
    chosen = None if only is None else set(only)
    return sorted((f for f in faults if chosen is None or f.number in chosen), key=lambda fault: fault.step)


def _draw_bad_disk(seed: int, steps: int) -> list[Fault]:
    """Return reads that fail, and syncs that lie until the power is cut, for a share of the seeds."""
    dice = random.Random(f"{seed} bad disk")
    faults: list[Fault] = []
    if dice.random() >= BAD_DISK_SHARE:
        return faults
    for step in range(steps):
        if dice.random() >= BAD_DISK_RATE:
            continue
        kind = dice.choice([Kind.FAILED_READ, Kind.LYING_SYNC])
        faults.append(Fault(FIRST_OF_BAD_DISK + len(faults), step, kind, _draw_amount(kind, dice)))
        if kind is Kind.LYING_SYNC:
            end, calls = step + dice.randint(1, MAX_LYING_STEPS), _draw_amount(Kind.POWER_CUT, dice)
            faults.append(Fault(FIRST_OF_BAD_DISK + len(faults), end, Kind.POWER_CUT, calls))
    return faults


def _draw_torn_index(seed: int) -> list[Fault]:
    """Return a power cut that tears an index, after syncs that lie in half of the runs, for a share of the seeds."""
    dice = random.Random(f"{seed} torn index")
    if dice.random() >= TORN_INDEX_SHARE:
        return []
    step = dice.randint(*TORN_INDEX_STEPS)
    kinds = [Kind.TORN_INDEX, *([Kind.LYING_SYNC] if dice.random() < 0.5 else []), Kind.POWER_CUT]
    faults: list[Fault] = []
    for kind in kinds:
        faults.append(Fault(FIRST_OF_TORN_INDICES + len(faults), step, kind, _draw_amount(kind, dice)))
        step += dice.randint(0, MAX_LYING_STEPS)
    return faults


def _draw_amount(kind: Kind, dice: random.Random) -> int:
    if kind in (Kind.KILL_DAEMON_AT_LINE, Kind.KILL_RECEIVER):
        return int(MAX_LINES ** dice.random())
    if kind in (Kind.KILL_DAEMON_AT_CALL, Kind.POWER_CUT):
        return int(MAX_CALLS ** dice.random()) - 1
    if kind in FAILURES:
        return dice.choice([1, 1, 2, 3])
    if kind is Kind.LYING_SYNC:
        return int(MAX_LYING_SYNCS ** dice.random())
    if kind is Kind.FULL_DISK:
        return int(MAX_FREE_BYTES ** dice.random())
    if kind is Kind.CLOCK_JUMP:
        return dice.choice(_JUMPS_S)
    if kind is Kind.PAUSE:
        return dice.choice([1, 30, 120, 700])
    return dice.randint(1, 50)
