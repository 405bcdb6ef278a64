"""Distinguish a frame that is not written yet from one that is already gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.files import memory_order
from penstock.logbuffer import descriptor
from penstock.logbuffer.errors import Lapped
from penstock.logbuffer.frame_search import next_frame
from penstock.logbuffer.mapped import LogFile

GAP_TIMEOUT_S: Final = 20.0
"""Age from which a gap counts as lost if nothing else decides: Aeron's driver closes an abandoned one after 15 s."""


class MissingFrame:
    """The position at which a reader found no frame; owned by one reader.

    One writer publishes in order, so a gap followed by frames was cleaned. If everything up to the tail was cleaned,
    the age of the gap decides (``patience``, seconds). With ``in_order`` a frame is published before room for the next
    is taken, so a half-written frame followed by another is damaged.
    """

    def __init__(
        self,
        log: LogFile,
        patience: float = GAP_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        in_order: bool = False,
    ) -> None:
        self._log, self._patience, self._clock, self._in_order = log, patience, clock, in_order
        self._since: tuple[int, float] | None = None

    def check(self, position: int, active: int) -> None:
        """Raise Lapped if the frame at ``position`` will not come. ``active``: the term count loaded before the
        frame.
        """
        if self._is_lost(position, active - self._log.term_count(position)):
            raise Lapped(position)

    def _is_lost(self, position: int, ahead: int) -> bool:
        if ahead >= descriptor.PARTITIONS:
            return True
        if not self._in_order and self._is_being_written(position):
            return False
        if ahead > 0 or self._is_passed(position):
            return True
        return not self._is_being_written(position) and self._is_gap_expired(position)

    def _is_being_written(self, position: int) -> bool:
        return self._log.ints[self._log.offset_of(position) >> 2] < 0

    def _is_passed(self, position: int) -> bool:
        """Report whether a later frame of the term is published while this one is still missing."""
        tail = self.tail()
        if tail <= position or self._is_in_flight(position, tail):
            return False
        if next_frame(self._log, position + descriptor.FRAME_ALIGNMENT, tail) is None:
            return False
        # Order: checked again after the search; the writer may have published this frame during it.
        memory_order.barrier()
        return not self.has_whole_frame(position)

    def _is_in_flight(self, position: int, tail: int) -> bool:
        """Report whether this frame owns the last room taken, so that nothing behind it needs a search."""
        length = self._log.ints[self._log.offset_of(position) >> 2]
        # A write never takes that long: after it, the negative length may be damage.
        is_last_frame = self._in_order and length < 0 and position + descriptor.align(-length) == tail
        return is_last_frame and not self._has_waited(position)

    def has_whole_frame(self, position: int) -> bool:
        """Report whether a whole frame begins there; with ``in_order``, one that ends before the tail."""
        length, _, _ = self._log.whole_frame(position)
        return length > 0 and (not self._in_order or position + length <= self.tail())

    def _is_gap_expired(self, position: int) -> bool:
        """Report whether the gap is too old; without a tail behind it, it is not a gap."""
        if self.tail() <= position:
            self._since = None
            return False
        return self._has_waited(position)

    def _has_waited(self, position: int) -> bool:
        if self._since is None or self._since[0] != position:
            self._since = position, self._clock()
        return self._clock() - self._since[1] > self._patience

    def tail(self) -> int:
        """Return the position at which the writer takes room next."""
        count = self._log.load(descriptor.ACTIVE_TERM_COUNT)
        # Order: the writer stores the tail of a term before it makes the term active.
        if memory_order.IS_WEAK:
            memory_order.barrier()
        raw = self._log.load(descriptor.TAIL_COUNTERS[count % descriptor.PARTITIONS])
        return count * self._log.term_length + descriptor.tail_offset(raw, self._log.term_length)
