"""Duplicates among events that come in the order of partition and offset, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.landing.duplicates.decision import Array, landed_before, repeated
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import HashRun

MERGED_AT = 16
"""So many runs of what came before become one."""


class StreamJudge:
    """Knows the keys that ``landed``, and those that it let pass. ``window`` in microseconds."""

    def __init__(self, landed: Sequence[HashRun], window: int) -> None:
        self._landed, self._window = landed, window
        self._own: list[HashRun] = []

    def judged(self, seen: EventsSeen) -> tuple[Array, Array]:
        """Two masks: which events landed before, and which of the others repeat one that came here."""
        before = landed_before(seen, self._landed, self._window)
        fresh = np.flatnonzero(~before)
        others = seen.take(fresh)
        again = landed_before(others, self._own, self._window)
        left = np.flatnonzero(~again)
        again[left[repeated(others.take(left), self._window)]] = True
        repeats = np.zeros(len(seen), bool)
        repeats[fresh[again]] = True
        self._let_pass(seen.take(~before & ~repeats))
        return before, repeats

    def _let_pass(self, events: EventsSeen) -> None:
        self._own.append(HashRun.of(events))
        if len(self._own) >= MERGED_AT:
            self._own = [HashRun.of(EventsSeen.concat([run.seen() for run in self._own]))]
