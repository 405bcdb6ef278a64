"""How far a publication may go ahead of its readers, and what is zeroed behind them.

With Aeron the media driver does this; here the writer, whenever it is told how far its readers are.
"""

from __future__ import annotations

from enum import Enum

from penstock.logbuffer.appender import Appender


class Cleaning(Enum):
    """How far the writer zeroes behind its readers, at most one term at a time."""

    CONSUMED = "consumed"
    """Up to the slowest reader whenever the limit is raised, as Aeron's driver does for IPC."""
    LAGGING = "lagging"
    """One term behind the slowest reader, as for UDP: what was read last stays in the file."""


class Limit:
    """``position`` is where offers begin to be refused, ``window`` how far that is ahead of the slowest reader."""

    def __init__(self, tail: Appender, term_length: int, window: int, cleaning: Cleaning) -> None:
        self.position = self._consumed = tail.position
        self.window = window
        self._trip = 0
        self._tail, self._term_length, self._cleaning = tail, term_length, cleaning

    def consumed(self, position: int) -> None:
        """The slowest reader has come to ``position``.

        The CONSUMED style raises the limit in steps of an eighth of the window, as Aeron's driver.
        """
        self._consumed = max(self._consumed, position)
        limit = position + min(self.window, self._term_length)
        if self._cleaning is Cleaning.LAGGING:
            self._tail.clean_some(position - self._term_length)
            self.position = max(self.position, limit)
        elif limit >= self._trip:
            self._tail.clean_some(position)
            self.position = limit
            self._trip = limit + self.window // 8

    def withdraw(self, furthest: int) -> None:
        """No reader is left: the limit falls back to where they, or the one ``furthest`` ahead, had come."""
        self._consumed = max(self._consumed, furthest)
        if self.position > self._consumed:
            self.position = self._trip = self._consumed
            if self._cleaning is Cleaning.CONSUMED:
                self._tail.clean_some(self._consumed)
