"""Acknowledgements of senders: frames are written, then the readers must advance past them.

The log daemon stores its position after the frames before it are synced, so a position past the end of a sender's
frames is the acknowledgement. It is polled: a position is one word of mapped memory, read at growing intervals while a
sender waits, and never otherwise. Therefore no process needs another's descriptors, and a restarted daemon
acknowledges, too.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from penstock.handover.buffer import HandlerPosition
from penstock.handover.paths import LOG
from penstock.handover.writer import FrameWriter

TIMEOUT_S = 9.0
"""Limit after which a sender is asked to retry: many clients give up after 10 s."""
MIN_POLL_S, MAX_POLL_S = 0.0005, 0.02
"""Poll intervals: each unsuccessful poll lengthens the next interval."""
POLL_GROWTH = 1.25
FIRST_POLL_SHARE, MAX_FIRST_POLL_S = 0.6, 0.002
"""The first poll comes after this part of the time that the last messages took, and at most after this time."""
EPOLL_STEP_S = 0.001
"""Resolution of waits with epoll: Python's selectors round each one up."""
_Sender = TypeVar("_Sender")


class Fate(StrEnum):
    """The outcome of frames."""

    STORED = "stored"
    DROPPED = "dropped"
    """The reader lagged by a whole term and missed the frames, by its policy."""
    LATE = "late"
    """Not decided within TIMEOUT_S; the frames may still be stored."""
    DISK_FULL = "disk_full"
    """The log cannot store the frames because the disk is full; it may later."""
    LOG_FULL = "log_full"
    """The log has reached its limits, such as ``log.max_bytes``; it may store the frames later."""


_SHORTAGES = {"disk": Fate.DISK_FULL, "log": Fate.LOG_FULL}


class _Wait(NamedTuple, Generic[_Sender]):
    begin: int
    end: int
    since: float
    sender: _Sender


class StoredWaits(Generic[_Sender]):
    """The senders that wait for the readers of ``writer``: for the log, or, without a log handler, for all other
    readers.

    Owned by the thread of the writer.
    """

    def __init__(
        self,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        patience: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        *,
        full_patience: float = math.inf,
    ) -> None:
        """Create the waits; senders wait ``patience`` seconds, and ``full_patience`` while the log is full."""
        self._full_patience = full_patience
        self._writer, self._patience, self._clock = writer, patience, clock
        routed = [reader for reader in readers if reader.routed]
        self._readers = [reader for reader in routed if reader.name == LOG] or routed or list(readers)
        self._blocking_readers = [reader for reader in readers if reader in self._readers or not reader.drop]
        self._names = {reader.name for reader in self._readers}
        self._waiting: deque[_Wait[_Sender]] = deque()
        self._skipped: list[tuple[int, int]] = []
        self._last_s = self._pause = self._next_pause = MIN_POLL_S
        writer.on_skip = self._skip

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, size: int) -> bool:
        """Report whether ``size`` bytes fit without waiting for a reader or moving it."""
        lag = self._writer.position - min(reader.reached for reader in self._blocking_readers)
        return lag + size + self._writer.frame_limit <= self._writer.window

    @property
    def shortage(self) -> Fate | None:
        """The outcome of frames that are written now, if the log cannot store any; None if it can."""
        return next((_SHORTAGES[name] for reader in self._readers if (name := reader.position.shortage)), None)

    def expect(self, begin: int, sender: _Sender) -> None:
        """Register ``sender`` for the frames written from position ``begin`` on."""
        end = self._writer.position
        self._waiting.append(_Wait(begin, end, self._clock(), sender))
        for reader in self._readers:
            reader.position.await_stored(end)
        self._restart_polls()

    def take_decided(self) -> list[tuple[_Sender, Fate]]:
        """Remove and return the senders whose outcome is known, in their order."""
        stored, now = min(reader.position.stored for reader in self._readers), self._clock()
        outcomes: list[tuple[_Sender, Fate]] = []
        while self._waiting and (fate := self._fate(self._waiting[0], stored, now)):
            wait = self._waiting.popleft()
            outcomes.append((wait.sender, fate))
        first = self._waiting[0].begin if self._waiting else self._writer.position
        self._skipped = [(begin, end) for begin, end in self._skipped if end > first]
        if outcomes:
            self._last_s = now - wait.since
            self._restart_polls()
        else:
            self._pause, self._next_pause = self._next_pause, min(self._next_pause * POLL_GROWTH, MAX_POLL_S)
        return outcomes

    def _restart_polls(self) -> None:
        """Plan the first poll for shortly before the messages are stored, if they take as long as the last ones."""
        self._pause = min(max(self._last_s * FIRST_POLL_SHARE, MIN_POLL_S), MAX_FIRST_POLL_S)
        self._next_pause = MIN_POLL_S * POLL_GROWTH

    @property
    def pause(self) -> float | None:
        """Seconds until the next poll (``take_decided``); None while no sender waits."""
        return self._pause if self._waiting else None

    def _fate(self, wait: _Wait[_Sender], stored: int, now: float) -> Fate | None:
        # Order: drops are tested first, because a moved reader's position is past the dropped frames as well.
        if any(begin < wait.end and wait.begin < end for begin, end in self._skipped):
            return Fate.DROPPED
        if stored >= wait.end:
            return Fate.STORED
        if now >= wait.since + self._full_patience and (shortage := self.shortage):
            return shortage
        return Fate.LATE if now >= wait.since + self._patience else None

    def _skip(self, reader: str, begin: int, end: int) -> None:
        if reader in self._names:
            self._skipped.append((begin, end))


def epoll_timeout(pause: float) -> float:
    """Return the timeout with which a wait of epoll takes ``pause`` seconds on average; 0 or more.

    Always rounded up, a poll could find each time that its messages were stored long before, and plan the next as late.
    """
    return max(pause - EPOLL_STEP_S / 2, 0.0)
