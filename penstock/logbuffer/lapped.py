"""Tells a frame that is not there yet from one that is there no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import Lapped
from penstock.logbuffer.frame_search import next_frame
from penstock.logbuffer.mapped import LogFile

PATIENCE: Final = 20.0
"""Seconds a gap may stay open where nothing else tells: Aeron's driver closes an abandoned one after fifteen."""


class MissingFrame:
    """The place where a reader found no frame.

    One writer publishes in order, so a gap before its frames was cleaned. Where all was cleaned up to
    the tail, ``patience`` (seconds) tells.
    """

    def __init__(self, log: LogFile, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._patience, self._clock = log, patience, clock
        self._since: tuple[int, float] | None = None

    def check(self, position: int, active: int) -> None:
        """Raises Lapped if the frame at ``position`` will not come. ``active``: the term count loaded before it."""
        if self._is_lost(position, active - self._log.term_count(position)):
            raise Lapped(position)

    def _is_lost(self, position: int, ahead: int) -> bool:
        if ahead >= d.PARTITIONS:
            return True
        if self._is_being_written(position):
            return False
        return ahead > 0 or self._is_passed(position) or self._is_old(position)

    def _is_being_written(self, position: int) -> bool:
        return self._log.ints[self._log.offset_of(position) >> 2] < 0

    def _is_passed(self, position: int) -> bool:
        """A later frame of the term is there, and this one is not even now."""
        if self._tail() <= position or next_frame(self._log, position) is None:
            return False
        return self._log.ints[self._log.offset_of(position) >> 2] == 0

    def _is_old(self, position: int) -> bool:
        """The gap has been open too long, and it is one: the tail is behind it, if nothing else."""
        if self._tail() <= position:
            self._since = None
            return False
        return self._waited(position)

    def _waited(self, position: int) -> bool:
        if self._since is None or self._since[0] != position:
            self._since = position, self._clock()
        return self._clock() - self._since[1] > self._patience

    def _tail(self) -> int:
        count = self._log.load(d.ACTIVE_TERM_COUNT)
        raw = self._log.load(d.TAIL_COUNTERS[count % d.PARTITIONS])
        return count * self._log.term_length + d.tail_offset(raw, self._log.term_length)
