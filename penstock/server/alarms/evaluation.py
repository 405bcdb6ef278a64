"""Evaluation of the rules' conditions over the current and earlier metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from penstock.server.alarms.rules import Above, Behind, Condition, Growth, NotZero, Share, Stuck
from penstock.server.metrics.prometheus import Family

Key = tuple[str, ...]
"""Label values that a condition sums by."""
Values = dict[Key, float]
NO_LABELS: Key = ()


def labels_of(condition: Condition) -> tuple[str, ...]:
    """Return the names of the labels in a key."""
    match condition:
        case Growth() | Above() | Behind():
            return condition.by
        case Share():
            return condition.of.by
        case Stuck():
            return condition.progress.by
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Moment:
    """When metrics were read: seconds of the monotonic clock, and the time, in seconds since the epoch.

    Holds and windows go by the monotonic clock, so that a clock that is set back silences nothing. The time is what
    the clock should say; it is compared with times in metrics only.
    """

    monotonic: float
    time: float


class Evaluation:
    """State of one condition: its metrics within its window. For one thread."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._past = {kind: deque[tuple[float, Values]]() for kind in ("named", "all")}

    def holds(self, families: Mapping[str, Family], now: Moment) -> Values:
        """Return the labels for which the condition holds, with the value of each."""
        condition = self._condition
        match condition:
            case Growth():
                return _positive_values(self._growth("named", condition, families, now))
            case NotZero():
                return {key: value for key, value in _sum_by(families, condition.metric, ()).items() if value}
            case Above():
                values = _sum_by(families, condition.metric, condition.by)
                return {key: value for key, value in values.items() if value > condition.limit}
            case Behind():
                # Times in metrics are wall-clock times, so they are not compared with the monotonic clock.
                times = _sum_by(families, condition.metric, condition.by)
                return {key: now.time - mark for key, mark in times.items() if now.time - mark > condition.seconds}
            case Share():
                growth = self._growth("named", condition.of, families, now)
                everything = self._growth("all", condition.of, families, now)
                return {key: n for key, n in _positive_values(growth).items() if n > condition.part * everything[key]}
            case Stuck():
                waiting = _positive_values(_sum_by(families, condition.waiting, condition.progress.by))
                progress = self._growth("named", condition.progress, families, now)
                return {key: n for key, n in waiting.items() if not progress.get(key)}
            case _:
                return {}

    def _growth(self, kind: str, growth: Growth, families: Mapping[str, Family], now: Moment) -> Values:
        """Return the growth within the window; a new label counts from 0."""
        names = ("*",) if kind == "all" else growth.names
        sums, past = _sum_by(families, growth.metric, growth.by, growth.label, names), self._past[kind]
        past.append((now.monotonic, sums))
        # The newest sums that are at least a window old stay, because the growth is measured from them.
        while len(past) > 1 and past[1][0] <= now.monotonic - growth.window:
            past.popleft()
        return {key: value - past[0][1].get(key, 0) for key, value in sums.items()}


def _positive_values(values: Values) -> Values:
    return {key: value for key, value in values.items() if value > 0}


def _sum_by(
    families: Mapping[str, Family], metric: str, by: Iterable[str], label: str = "", names: Iterable[str] = ()
) -> Values:
    sums: Values = {}
    for labels, value in families[metric].samples if metric in families else ():
        if not label or any(fnmatchcase(labels[label], name) for name in names):
            # Samples that differ only in other labels are summed, as PromQL's ``sum by`` does.
            key = tuple(labels[name] for name in by)
            sums[key] = sums.get(key, 0) + value
    return sums
