"""Answering senders once what they sent is safe: frames are written, then the readers have to come past them.

The log daemon stores its position only after what lies before it is synced, so a position past the end of a sender's
frames is the sender's acknowledgement. Nobody is woken for it: a position is one word of mapped memory, which is looked
at while somebody waits, at first often, then less so, and not at all while nobody does. So no process has to know
another's descriptors, and a daemon that was killed and started again answers all the same.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from penstock.handover.buffer import HandlerPosition
from penstock.handover.paths import LOG
from penstock.handover.writer import FrameWriter

PATIENCE = 9.0
"""Seconds after which a sender is told to try again: many of them wait for ten."""
SHORTEST, LONGEST = 0.0005, 0.02
"""Seconds between two looks: each in vain makes the next one come later."""
GROWTH = 1.25
_Who = TypeVar("_Who")


class Fate(StrEnum):
    """What became of frames."""

    STORED = "stored"
    DROPPED = "dropped"
    """The reader lagged by a whole term and missed them, by its policy."""
    LATE = "late"
    """Nobody can say yet: they may be stored later."""


class _Wait(NamedTuple, Generic[_Who]):
    begin: int
    end: int
    until: float
    who: _Who


class StoredWaits(Generic[_Who]):
    """Those who wait for the readers of what ``writer`` writes: the log, or, where nothing goes there, all others.

    Of one thread, the writer's.
    """

    def __init__(
        self,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer, self._patience, self._clock = writer, patience, clock
        routed = [reader for reader in readers if reader.routed]
        self._readers = [reader for reader in routed if reader.name == LOG] or routed or list(readers)
        self._in_the_way = [reader for reader in readers if reader in self._readers or not reader.drop]
        self._names = {reader.name for reader in self._readers}
        self._waiting: deque[_Wait[_Who]] = deque()
        self._skipped: list[tuple[int, int]] = []
        self._pause = SHORTEST
        writer.on_skip = self._skip

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, size: int) -> bool:
        """Whether frames of ``size`` bytes fit before a reader is in the way, which would be waited for or skipped."""
        lag = self._writer.position - min(reader.reached for reader in self._in_the_way)
        return lag + size + self._writer.frame_limit <= self._writer.window

    def expect(self, begin: int, who: _Who) -> None:
        """``who`` waits for what was written from position ``begin`` on."""
        self._waiting.append(_Wait(begin, self._writer.position, self._clock() + self._patience, who))
        self._pause = SHORTEST

    def decided(self) -> list[tuple[_Who, Fate]]:
        """Those who need not wait any more, in the order in which they came."""
        stored, now = min(reader.position.stored for reader in self._readers), self._clock()
        found: list[tuple[_Who, Fate]] = []
        while self._waiting and (fate := self._fate(self._waiting[0], stored, now)):
            found.append((self._waiting.popleft().who, fate))
        first = self._waiting[0].begin if self._waiting else self._writer.position
        self._skipped = [(begin, end) for begin, end in self._skipped if end > first]
        self._pause = SHORTEST if found else min(self._pause * GROWTH, LONGEST)
        return found

    @property
    def pause(self) -> float | None:
        """Seconds after which to look again (``decided``); None while nobody waits."""
        return self._pause if self._waiting else None

    def _fate(self, wait: _Wait[_Who], stored: int, now: float) -> Fate | None:
        if any(begin < wait.end and wait.begin < end for begin, end in self._skipped):
            return Fate.DROPPED
        if stored >= wait.end:
            return Fate.STORED
        return Fate.LATE if now >= wait.until else None

    def _skip(self, reader: str, begin: int, end: int) -> None:
        if reader in self._names:
            self._skipped.append((begin, end))
