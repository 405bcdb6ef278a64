"""Which events are duplicates: those within a window of the first of their key, by the log's own timestamps.

The first that landed stays, then the first by partition and offset. A row is dropped where one that stays has its key
and was stored in the log no more than the window before or after it. So the answer is the same however often it is
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun

Array = np.ndarray[tuple[int], np.dtype[Any]]


def landed_before(seen: EventsSeen, runs: Iterable[HashRun], window: int) -> Array:
    """For each event whether one of its key is in the runs, within the window (microseconds)."""
    found = np.zeros(len(seen), bool)
    for run in runs:
        rows, micros = run.find(seen.high, seen.low)
        found[rows[np.abs(seen.micros[rows] - micros) <= window]] = True
    return found


def repeated(seen: EventsSeen, window: int) -> Array:
    """For each event whether it repeats one of these that stays, in the order of partition and offset."""
    found = np.zeros(len(seen), bool)
    several = _several(seen)
    _judge(seen, np.flatnonzero(several), {}, window, found)
    return found


def reconsidered(
    seen: EventsSeen, dropped: Array, unknown: Sequence[HashRun], landed: Sequence[HashRun], window: int
) -> Array:
    """For each event of several tasks whether it is a duplicate. ``dropped``: what tasks took for one, each for itself.

    That is right unless the one that it repeats is a duplicate itself, of another task's, or of one in those runs of
    the ``landed`` that were ``unknown`` to a task: so what has the key of such a one is judged from the beginning.
    """
    doubtful = np.zeros(len(seen), bool)
    doubtful[np.flatnonzero(~dropped)[_several(seen.take(~dropped))]] = True
    for run in unknown:
        doubtful[run.find(seen.high, seen.low)[0]] = True
    found = dropped.copy()
    if doubtful.any():
        again = np.flatnonzero(np.isin(seen.high, seen.high[doubtful]))
        found[again] = False
        _judge(seen, again, _times(seen, again, landed), window, found)
    return found


def _times(seen: EventsSeen, rows: Array, landed: Iterable[HashRun]) -> dict[tuple[int, int], list[int]]:
    """When those that landed were stored, by key: those of these rows."""
    times: dict[tuple[int, int], list[int]] = {}
    for run in landed:
        places, micros = run.find(seen.high[rows], seen.low[rows])
        for row, at in zip(rows[places].tolist(), micros.tolist(), strict=True):
            times.setdefault(_key(seen, row), []).append(at)
    return times


def _several(seen: EventsSeen) -> Array:
    """Which have a key (nearly always: the upper half of one) that others have, too."""
    order = np.argsort(seen.high)
    high = seen.high[order]
    same = high[1:] == high[:-1]
    found = np.zeros(len(seen), bool)
    found[order[1:][same]] = True
    found[order[:-1][same]] = True
    return found


def _judge(
    seen: EventsSeen, rows: Array, landed: Mapping[tuple[int, int], list[int]], window: int, found: Array
) -> None:
    """One after the other; ``landed``: when those that stay already were stored, by key."""
    stay = {key: list(times) for key, times in landed.items()}
    for row in rows[np.lexsort((seen.offset[rows], seen.partition[rows]))].tolist():
        times, micros = stay.setdefault(_key(seen, row), []), int(seen.micros[row])
        if any(abs(micros - other) <= window for other in times):
            found[row] = True
        else:
            times.append(micros)


def _key(seen: EventsSeen, row: int) -> tuple[int, int]:
    return int(seen.high[row]), int(seen.low[row])
