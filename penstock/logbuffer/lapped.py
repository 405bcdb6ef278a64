"""Tells a frame that is not there yet from one that is there no more.

Our own readers are known to their writer. A reader that follows somebody else's buffer is not: Aeron's
driver cleans behind the subscribers it knows, and reuses the term after the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import Lapped
from penstock.logbuffer.frame_search import next_frame, tail_position
from penstock.logbuffer.mapped import LogFile

PATIENCE: Final = 20.0
"""Seconds a gap may stay open where several write: Aeron's driver closes an abandoned one after fifteen."""


class Gap:
    """The place where a reader found no frame.

    An exclusive publication publishes in order, so a gap before its frames was cleaned. Elsewhere it may
    be one of several writers at work, or a datagram that comes again: then distance tells (a writer is
    never a term ahead of the slowest subscriber that its driver knows), or ``patience``. So it does where
    all was cleaned up to the tail.
    """

    def __init__(self, log: LogFile, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._patience, self._clock = log, patience, clock
        self._since: tuple[int, float] | None = None

    def check(self, position: int, active: int) -> None:
        """Raises Lapped if the frame at ``position`` will not come. ``active``: the term count loaded before it."""
        if self._is_lost(position, active - self._log.term_count(position)):
            raise Lapped(position)

    def _is_lost(self, position: int, ahead: int) -> bool:
        kind = self._log.parameters.kind
        if kind is d.Kind.IMAGE:
            return self._image_is_ahead(position)
        if ahead >= d.PARTITIONS:
            return True
        if self._log.ints[self._log.offset_of(position) >> 2] < 0:
            return False  # being written, or claimed
        if kind is d.Kind.EXCLUSIVE:
            return ahead > 0 or self._is_passed(position) or self._is_old(position)
        return ahead > 1 or self._is_old(position)

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

    def _image_is_ahead(self, position: int) -> bool:
        log = self._log
        following = log.term_end(position)
        if any(log.whole_frame(following + terms * log.term_length)[0] for terms in (1, 2)):
            return True
        if not self._waited(position):
            return False
        self._since = None  # the whole file is looked at: not at every poll
        return tail_position(log) > position + log.term_length

    def _tail(self) -> int:
        count = self._log.load(d.ACTIVE_TERM_COUNT)
        raw = self._log.load(d.TAIL_COUNTERS[count % d.PARTITIONS])
        return count * self._log.term_length + d.tail_offset(raw, self._log.term_length)
