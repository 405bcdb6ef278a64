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
    the tail, ``patience`` (seconds) tells. ``in_order``: a frame is published before there is room for the next one,
    so that one half written before another is damaged.
    """

    def __init__(
        self,
        log: LogFile,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        in_order: bool = False,
    ) -> None:
        self._log, self._patience, self._clock, self._in_order = log, patience, clock, in_order
        self._since: tuple[int, float] | None = None

    def check(self, position: int, active: int) -> None:
        """Raises Lapped if the frame at ``position`` will not come. ``active``: the term count loaded before it."""
        if self._is_lost(position, active - self._log.term_count(position)):
            raise Lapped(position)

    def _is_lost(self, position: int, ahead: int) -> bool:
        if ahead >= d.PARTITIONS:
            return True
        if not self._in_order and self._is_being_written(position):
            return False
        if ahead > 0 or self._is_passed(position):
            return True
        return not self._is_being_written(position) and self._is_old(position)

    def _is_being_written(self, position: int) -> bool:
        return self._log.ints[self._log.offset_of(position) >> 2] < 0

    def _is_passed(self, position: int) -> bool:
        """A later frame of the term is there, and this one is not even now."""
        tail = self.tail()
        if tail <= position or self._is_in_flight(position, tail):
            return False
        if next_frame(self._log, position + d.FRAME_ALIGNMENT, tail) is None:
            return False
        return not self.is_whole(position)

    def _is_in_flight(self, position: int, tail: int) -> bool:
        """The last room taken is that of this very frame, which is being written: the rest need not be searched.

        Where that takes longer than anybody writes, the length may be damaged.
        """
        length = self._log.ints[self._log.offset_of(position) >> 2]
        ends_it = self._in_order and length < 0 and position + d.align(-length) == tail
        return ends_it and not self._waited(position)

    def is_whole(self, position: int) -> bool:
        """Whether a frame begins there, none that would end behind the tail where these come in order."""
        length, _, _ = self._log.whole_frame(position)
        return length > 0 and (not self._in_order or position + length <= self.tail())

    def _is_old(self, position: int) -> bool:
        """The gap has been open too long, and it is one: the tail is behind it, if nothing else."""
        if self.tail() <= position:
            self._since = None
            return False
        return self._waited(position)

    def _waited(self, position: int) -> bool:
        if self._since is None or self._since[0] != position:
            self._since = position, self._clock()
        return self._clock() - self._since[1] > self._patience

    def tail(self) -> int:
        """Where the writer takes room next."""
        count = self._log.load(d.ACTIVE_TERM_COUNT)
        raw = self._log.load(d.TAIL_COUNTERS[count % d.PARTITIONS])
        return count * self._log.term_length + d.tail_offset(raw, self._log.term_length)
