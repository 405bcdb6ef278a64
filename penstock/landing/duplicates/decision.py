"""Decide which events are duplicates: events within a window of an earlier event with the same key.

Timestamps are the log's. Of events with one key the one that landed first stays, then the first by partition and
offset; an event is dropped if one that stays has its key and a timestamp at most the window away. Invariant: the
decision depends on keys, timestamps, partitions and offsets only, so a repeated batch gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun

Array = np.ndarray[tuple[int], np.dtype[Any]]


def landed_before(seen: EventsSeen, runs: Iterable[HashRun], window: int) -> Array:
    """Return a mask of the events whose key is in the runs, within the window (microseconds)."""
    is_landed = np.zeros(len(seen), bool)
    for run in runs:
        rows, micros = run.find_keys(seen.high, seen.low)
        is_landed[rows[np.abs(seen.micros[rows] - micros) <= window]] = True
    return is_landed


def find_repeats(seen: EventsSeen, window: int) -> Array:
    """Return a mask of the events that repeat one of these that stays, in the order of partition and offset."""
    is_repeat = np.zeros(len(seen), bool)
    is_shared = _shares_high(seen)
    _judge(seen, np.flatnonzero(is_shared), {}, window, is_repeat)
    return is_repeat


def find_late_duplicates(
    seen: EventsSeen, dropped: Array, unknown: Sequence[HashRun], landed: Sequence[HashRun], window: int
) -> Array:
    """Return the mask of duplicates among the events of several tasks.

    ``dropped`` is the mask that the tasks decided, each from its own events and the runs it knew. ``unknown`` are the
    ``landed`` runs that some task did not know.
    """
    # A task is wrong only about an event that repeats an event which is itself a duplicate: of another task's event, or
    # of one in an unknown run. Fast path: only keys with such an event are judged again, from the beginning.
    is_doubtful = np.zeros(len(seen), bool)
    is_doubtful[np.flatnonzero(~dropped)[_shares_high(seen.select_rows(~dropped))]] = True
    for run in unknown:
        is_doubtful[run.find_keys(seen.high, seen.low)[0]] = True
    is_duplicate = dropped.copy()
    if is_doubtful.any():
        judged_again = np.flatnonzero(np.isin(seen.high, seen.high[is_doubtful]))
        is_duplicate[judged_again] = False
        _judge(seen, judged_again, _landed_times(seen, judged_again, landed), window, is_duplicate)
    return is_duplicate


def _landed_times(seen: EventsSeen, rows: Array, landed: Iterable[HashRun]) -> dict[tuple[int, int], list[int]]:
    landed_times: dict[tuple[int, int], list[int]] = {}
    for run in landed:
        indices, micros = run.find_keys(seen.high[rows], seen.low[rows])
        for row, timestamp in zip(rows[indices].tolist(), micros.tolist(), strict=True):
            landed_times.setdefault(_key(seen, row), []).append(timestamp)
    return landed_times


def _shares_high(seen: EventsSeen) -> Array:
    """Return a mask of the events that share the upper half of their key, which nearly always means the whole key."""
    order = np.argsort(seen.high)
    high = seen.high[order]
    equals_next = high[1:] == high[:-1]
    is_shared = np.zeros(len(seen), bool)
    is_shared[order[1:][equals_next]] = True
    is_shared[order[:-1][equals_next]] = True
    return is_shared


def _judge(
    seen: EventsSeen, rows: Array, landed: Mapping[tuple[int, int], list[int]], window: int, is_duplicate: Array
) -> None:
    """Judge ``rows`` one by one and mark duplicates. ``landed`` has the timestamps of landed events by key."""
    times_by_key = {key: list(times) for key, times in landed.items()}
    # Order: by partition and offset, the order of the log, so that the rows' order in files does not matter.
    for row in rows[np.lexsort((seen.offset[rows], seen.partition[rows]))].tolist():
        times, micros = times_by_key.setdefault(_key(seen, row), []), int(seen.micros[row])
        if any(abs(micros - earlier) <= window for earlier in times):
            is_duplicate[row] = True
        else:
            times.append(micros)


def _key(seen: EventsSeen, row: int) -> tuple[int, int]:
    return int(seen.high[row]), int(seen.low[row])


MAX_OWN_RUNS = 16
"""Limit: a further run costs each batch one filter lookup, a merge sorts all keys; 16 keeps both small."""


class StreamJudge:
    """A judge of events that arrive in the order of partition and offset, batch after batch. Not thread-safe.

    It remembers the events that it let pass. ``landed`` holds the keys of landed events, ``window`` is in
    microseconds.
    """

    def __init__(self, landed: Sequence[HashRun], window: int) -> None:
        self._landed, self._window = landed, window
        self._passed_runs: list[HashRun] = []

    def judge(self, seen: EventsSeen) -> tuple[Array, Array]:
        """Return two masks: events that landed before, and fresh events that repeat one that came here."""
        is_landed = landed_before(seen, self._landed, self._window)
        fresh_rows = np.flatnonzero(~is_landed)
        fresh_events = seen.select_rows(fresh_rows)
        is_repeat = landed_before(fresh_events, self._passed_runs, self._window)
        unseen_rows = np.flatnonzero(~is_repeat)
        is_repeat[unseen_rows[find_repeats(fresh_events.select_rows(unseen_rows), self._window)]] = True
        repeats = np.zeros(len(seen), bool)
        repeats[fresh_rows[is_repeat]] = True
        self._remember(seen.select_rows(~is_landed & ~repeats))
        return is_landed, repeats

    def _remember(self, events: EventsSeen) -> None:
        self._passed_runs.append(HashRun.from_events(events))
        if len(self._passed_runs) >= MAX_OWN_RUNS:
            self._passed_runs = [HashRun.from_events(EventsSeen.concat([run.seen() for run in self._passed_runs]))]
