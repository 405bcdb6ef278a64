"""Reading a listener's log buffer: frames in groups, each copied out before anything is done with it.

The writer never waits for what is done with a group: it may move the reader on meanwhile, behind the group
(``publisher``). Three numbers of the reader's position file say who answers for a frame: what lies before
``position`` is done, what lies before ``claim`` is in the reader's hands, and what lies between that and the
``floor`` it was moved to is the writer's to count.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from abc import abstractmethod
from pathlib import Path
from typing import NamedTuple

from penstock.handover.paths import buffer_file, position_file
from penstock.handover.position import UNKNOWN, ReaderPosition
from penstock.logbuffer import Frame, Lapped, Subscription

IDLE = 0.2
"""Seconds after which a reader looks even when nobody woke it."""
GATHER = 0.003
"""Seconds from one group to the next at least, while the buffer has less than a group: each group has its price."""
RETRY = 0.1

_LOGGER = logging.getLogger(__name__)


class FrameGroup(NamedTuple):
    """Frames from position ``begin`` to ``end``; ``mark`` is the total of messages before them (or UNKNOWN)."""

    frames: list[Frame]
    begin: int
    end: int
    mark: int


class FrameReader(threading.Thread):
    """One reader of one listener's log buffer. ``wake`` is an eventfd.

    ``group_bytes`` and ``group_frames`` bound one group.
    """

    def __init__(
        self,
        folder: Path,
        listener: str,
        reader: str,
        wake: int | None,
        group_bytes: int,
        group_frames: int = 1 << 20,
    ) -> None:
        super().__init__(name=f"{reader}-{listener}", daemon=True)
        self.folder, self.listener, self.reader = folder, listener, reader
        self._group_bytes, self._group_frames = group_bytes, group_frames
        self._wake = wake
        self._stopping = threading.Event()
        self._leaving = False
        self._next = 0.0
        self._poll = select.poll()
        if wake is not None:
            self._poll.register(wake, select.POLLIN)

    def stop(self) -> None:
        """Take what is there, then end."""
        self._stopping.set()

    def leave(self) -> None:
        """Nothing comes any more: end once all there is could be taken."""
        self._leaving = True

    def run(self) -> None:
        """Until stopped, and then until the buffer is empty. Whatever goes wrong is reported, and tried again."""
        while not self._finished():
            self._stopping.wait(RETRY)

    @abstractmethod
    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Do what is to be done with a group, and move ``position`` on behind all of which that is true."""

    def mark(self, position: ReaderPosition) -> int:
        """The total of messages up to where the reader has come."""
        return position.mark

    def kept(self, frame: Frame) -> memoryview:
        """What is to be copied of a frame's payload."""
        return frame.data

    def gather_time(self, group: FrameGroup, term_length: int) -> float:
        """Seconds from this group to the next, while the buffer has less than one; all within a term of it."""
        return GATHER

    def taken(self, group: FrameGroup, position: ReaderPosition) -> None:
        """The group is about to be claimed."""

    def resume(self, path: Path, position: ReaderPosition) -> None:
        """A file is opened: see to what was left undone."""

    def idle(self) -> None:
        """There was nothing to read."""

    def _finished(self) -> bool:
        paths = buffer_file(self.folder, self.listener), position_file(self.folder, self.listener, self.reader)
        if not all(path.exists() for path in paths):
            return self._leaving or self._stopping.is_set()
        try:
            with ReaderPosition(paths[1]) as position:
                self.resume(paths[0], position)
                return self._follow(paths[0], position)
        except Exception as error:  # noqa: BLE001 - the receiver may just be mending a file; nothing is lost by trying again
            _LOGGER.warning("listener %r: %s; its messages wait in the log buffer", self.listener, error)
            return self._stopping.is_set()

    def _follow(self, path: Path, position: ReaderPosition) -> bool:
        """Read one log buffer file until it is empty and this is to stop (True), or another stands in its place."""
        with Subscription(path, position.position, in_order=True) as subscription:
            while True:
                last_look = self._leaving or self._stopping.is_set()
                self._gather()
                went_on = self._round(subscription, position)
                subscription.release()
                if went_on:
                    continue
                self.idle()
                if last_look:
                    return True
                if subscription.replaced and path.exists():
                    return False
                self._wait()

    def _gather(self) -> None:
        """Let frames come together, where the last group was taken just now."""
        rest = self._next - time.monotonic()
        if rest > 0:
            self._stopping.wait(rest)

    def _wait(self) -> None:
        if self._wake is None:
            self._stopping.wait(IDLE)
        elif self._poll.poll(IDLE * 1000):
            try:
                os.eventfd_read(self._wake)
            except BlockingIOError:
                return

    def _round(self, subscription: Subscription, position: ReaderPosition) -> bool:
        """One group; whether there was one, or the reader got on."""
        with position.lock():
            mark = self.mark(position)
            if position.moved_on and mark != UNKNOWN:
                mark = max(mark, position.floor_mark)
            begin = subscription.position = position.position
            group = FrameGroup(self._copied(subscription), begin, subscription.position, mark)
            if group.end == begin:
                return False
            self.taken(group, position)
            position.claim = group.end
        is_full = 2 * (group.end - group.begin) > self._group_bytes
        self._next = 0.0 if is_full else time.monotonic() + self.gather_time(group, subscription.term_length)
        self.handle(group, position)
        return True

    def _copied(self, subscription: Subscription) -> list[Frame]:
        try:
            frames = subscription.poll(self._group_bytes, limit_frames=self._group_frames)
        except Lapped as error:
            _LOGGER.warning("listener %r: %s; the total says how many messages that were", self.listener, error)
            subscription.position = subscription.oldest() or subscription.position
            return []
        return [frame._replace(data=memoryview(bytes(self.kept(frame)))) for frame in frames]
