"""Reader of a listener's log buffer: frames in groups, each copied before it is handled.

The writer never waits for the handling: during the handling it may move the reader on, past the group (``writer``).
Three numbers of the position file say who is responsible for a frame: before ``position`` it is handled, before
``claim`` the reader has a copy, and the writer counts what lies between the claim and the ``floor`` to which it moved
the reader.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.files import memory_order
from penstock.handover.buffer import was_restarted
from penstock.handover.frames.frame import wait_until_intact
from penstock.handover.paths import buffer_file, position_file, state_file
from penstock.handover.positions.position import ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, Subscription

IDLE_POLL_S = 0.5
"""Poll interval without a wake-up: a writer that was killed may not have signalled its last frame."""
GATHER_S = 0.003
"""Minimum interval of groups while the buffer has less than a full one and no sender waits: each group costs a sync."""
RETRY_DELAY_S = 0.1
WAITS_BEFORE_WARNING = 100

_LOGGER = logging.getLogger(__name__)


class FrameGroup(NamedTuple):
    """Frames from position ``begin`` to ``end``; ``mark`` is the total of messages before them (or UNKNOWN)."""

    frames: list[Frame]
    begin: int
    end: int
    mark: int


class FrameReader(threading.Thread):
    """A thread that reads one listener's log buffer. ``wake`` is an eventfd.

    ``group_bytes`` and ``group_frames`` limit one group.
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
        self._waits_for_writer = 0
        self._next_group_at = 0.0
        self._poll = select.poll()
        if wake is not None:
            self._poll.register(wake, select.POLLIN)

    def stop(self) -> None:
        """Handle the frames that are present, then end."""
        self._stopping.set()
        self._wake_up()

    def leave(self) -> None:
        """End once the buffer, which gets no more frames, is empty."""
        self._leaving = True
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(BlockingIOError):  # it is full: the thread wakes up anyway
                os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Read until stopped and the buffer is empty. Any error is logged, and reading is retried."""
        for pause in self.rounds():
            pause()

    def rounds(self) -> Iterator[Callable[[], None]]:
        """Read one group per step; yield each pause that must be made before the next step."""
        while not (yield from self._read_file()):
            yield self._wait_for_retry

    def _wait_for_retry(self) -> None:
        self._stopping.wait(RETRY_DELAY_S)

    @abstractmethod
    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Handle a group, and advance ``position`` past the frames that are handled."""

    def mark(self, position: ReaderPosition) -> int:
        """Return the total of messages where the reader continues; UNKNOWN if it cannot know."""
        return position.reached_mark

    def copied_part(self, frame: Frame) -> memoryview:
        """Return the part of a frame's payload to copy."""
        return frame.data

    def gather_time(self, group: FrameGroup, term_length: int) -> float:
        """Return the seconds until the next group while the buffer has less than a full one."""
        return GATHER_S

    def before_claim(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Prepare for a group that is about to be claimed."""

    def resume(self, path: Path, position: ReaderPosition) -> None:
        """Finish what a predecessor left, after a file is opened."""

    def must_resume(self, position: ReaderPosition) -> bool:
        """Report whether the writer has left something to finish since ``resume``."""
        return False

    def idle(self) -> None:
        """React to an empty buffer."""

    def _read_file(self) -> Generator[Callable[[], None], None, bool]:
        paths = buffer_file(self.folder, self.listener), position_file(self.folder, self.listener, self.reader)
        if not all(path.exists() for path in paths):
            return self._leaving or self._stopping.is_set()
        try:
            if self._must_wait_for_writer():
                return self._stopping.is_set()
            with ReaderPosition(paths[1]) as position:
                self.resume(paths[0], position)
                return (yield from self._follow(paths[0], position))
        except Exception as error:  # noqa: BLE001 - the receiver may be repairing a file; a retry loses nothing
            _LOGGER.warning("listener %r: %s; its messages wait in the log buffer", self.listener, error)
            return self._stopping.is_set()

    def _must_wait_for_writer(self) -> bool:
        """Report whether the writer has yet to repair the buffer and the floors after a restart of the machine.

        A listener that is removed no longer has a writer.
        """
        state = state_file(self.folder, self.listener)
        if self._leaving or not state.exists():
            return False
        with contextlib.closing(StatePage(state)) as page:
            waits = was_restarted(page)
        self._waits_for_writer += waits
        if waits and self._waits_for_writer == WAITS_BEFORE_WARNING:
            text = "listener %r: %s waits for its receiver, which has to start once after the restart of the machine"
            _LOGGER.warning(text, self.listener, self.reader)
        return waits

    def _follow(self, path: Path, position: ReaderPosition) -> Generator[Callable[[], None], None, bool]:
        """Read one file until it is empty and the reader stops (True), or until the file is replaced."""
        with Subscription(path, position.position, in_order=True) as subscription:
            last_position: int | None = None
            while True:
                # Order: tested before the read, so that frames written before the stop are still read.
                is_last_round = self._leaving or self._stopping.is_set()
                if last_position is None and self._stopping.is_set():
                    last_position = subscription.end
                yield self._gather
                has_progress = self._read_group(subscription, position)
                subscription.release()
                if has_progress is None:
                    return False
                # Limit: a writer that continues, as during a restart, would keep a stopping reader forever.
                if last_position is not None and subscription.position >= last_position:
                    return True
                if has_progress:
                    continue
                self.idle()
                if is_last_round:
                    return True
                if subscription.replaced and path.exists():
                    return False
                yield self._wait

    def _gather(self) -> None:
        """Wait for more frames if the last group was recent."""
        remaining_s = self._next_group_at - time.monotonic()
        if remaining_s > 0:
            self._stopping.wait(remaining_s)

    def _wait(self) -> None:
        if self._wake is None:
            self._stopping.wait(IDLE_POLL_S)
        elif self._poll.poll(IDLE_POLL_S * 1000):
            try:
                os.eventfd_read(self._wake)
            except BlockingIOError:
                return

    def _read_group(self, subscription: Subscription, position: ReaderPosition) -> bool | None:
        """Read one group; report whether there was one or the reader advanced, and None if it has to resume."""
        # Lock: the writer moves the floor under it, so position, mark and claim belong together.
        with position.lock():
            if self.must_resume(position):
                return None
            mark = self.mark(position)
            begin = subscription.position = position.position
            group = FrameGroup(self._copy_frames(subscription), begin, subscription.position, mark)
            if group.end == begin:
                return False
            self.before_claim(group, position)
            # Order: the copy before the claim. Once claimed, the writer may overwrite the frames and no longer counts
            # them.
            position.claim = group.end
        is_full = 2 * (group.end - group.begin) > self._group_bytes
        # A sender that waits sends its next message after the answer: frames of many such senders come during a sync.
        is_at_once = is_full or position.is_awaited(begin)
        self._next_group_at = (
            0.0 if is_at_once else time.monotonic() + self.gather_time(group, subscription.term_length)
        )
        self.handle(group, position)
        return True

    def _copy_frames(self, subscription: Subscription) -> list[Frame]:
        try:
            frames = subscription.poll(self._group_bytes, limit_frames=self._group_frames)
        except Lapped as error:
            _LOGGER.warning("listener %r: %s; the total shows the number of lost messages", self.listener, error)
            subscription.position = subscription.oldest() or subscription.position
            return []
        if memory_order.IS_WEAK:
            wait_until_intact(frame.data for frame in frames)
        # Copied out, because the writer may overwrite the mapped frames at any moment after the claim.
        return [frame._replace(data=memoryview(bytes(self.copied_part(frame)))) for frame in frames]
