"""The reader of a log buffer: whole frames in order, without a copy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Self

from penstock.files import memory_order
from penstock.logbuffer import descriptor
from penstock.logbuffer.frame_search import next_frame
from penstock.logbuffer.lapped import MissingFrame
from penstock.logbuffer.mapped import Frame, LogFile, require_ordered_memory


class Subscription:
    """Reads a log buffer from ``position`` on, which must be the begin of a frame. Owned by one thread.

    With ``in_order`` the writer is a ``Publication``, which publishes each frame before it takes room for the next
    one. Raises NotALogBuffer, OSError, UnsupportedProcessor, and ValueError for an impossible position.
    """

    def __init__(self, path: Path | str, position: int = 0, *, in_order: bool = False) -> None:
        require_ordered_memory()
        self._log = LogFile(path)
        self._in_order = in_order
        self._gap = MissingFrame(self._log, in_order=in_order)
        self._position = 0
        self.position = position

    @property
    def position(self) -> int:
        """Position of the next frame; assign to it to continue elsewhere."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if position < 0 or position % descriptor.FRAME_ALIGNMENT:
            raise ValueError(f"no frame can begin at position {position}")
        self._position = position

    def poll(self, limit_bytes: int = sys.maxsize, *, limit_frames: int = sys.maxsize) -> list[Frame]:
        """Return the next frames, until their payloads reach ``limit_bytes``; at least one if available.

        Padding is skipped. As in Aeron a poll ends with its term: it may return nothing and yet have moved to the next
        term. Raises Lapped if the next frame is no longer in the buffer.
        """
        frames: list[Frame] = []
        log, position, payload_bytes = self._log, self._position, 0
        end, tail = log.term_end(position), self._tail_bound()
        while position < end and payload_bytes < limit_bytes and len(frames) < limit_frames:
            # Order: the term count is loaded before the frame. Loaded after it, a writer that moved on in between would
            # make a frame look lost that was only not written yet.
            active = log.load(descriptor.ACTIVE_TERM_COUNT)
            if memory_order.IS_WEAK:
                memory_order.barrier()
            length, flags, kind = log.whole_frame(position)
            # A damaged length may lead past the tail. The tail is loaded again before that is believed: the writer
            # moves it.
            if not length or (position + length > tail and position + length > (tail := self._tail_bound())):
                if not frames:
                    self._gap.check(position, active)
                break
            if kind == descriptor.DATA:
                frames.append(log.frame(position, length, flags))
                payload_bytes += length - descriptor.HEADER_LENGTH
            position += descriptor.align(length)
        self._position = position
        return frames

    def release(self) -> None:
        """Unmap touched pages as ``Publication.release``; returned frames stay valid."""
        self._log.release(self._position)

    def oldest(self) -> int | None:
        """Return the first frame in the buffer at or after our position, to continue after Lapped.

        None if there is no whole frame at the moment. Takes milliseconds: a term is searched.
        """
        log = self._log
        active = self._newest_term()
        # The file has three terms, so nothing older can be in it.
        for count in range(max(active - 2, log.term_count(self._position), 0), active + 1):
            begin = max(count * log.term_length, self._position)
            position = (
                begin if self._gap.has_whole_frame(begin) else next_frame(log, begin + descriptor.FRAME_ALIGNMENT)
            )
            if position is not None:
                return position
        return None

    def _tail_bound(self) -> int:
        """Return the tail if it is certain to lie behind every frame."""
        # Only a `Publication` is known to store its tail before it publishes the frame. An image has no tail at all.
        return self._gap.tail() if self._in_order else sys.maxsize

    @property
    def term_length(self) -> int:
        """Length of a term in bytes."""
        return self._log.term_length

    @property
    def end(self) -> int:
        """Position at which the writer takes room next."""
        return self._gap.tail()

    def _newest_term(self) -> int:
        return self._log.load(descriptor.ACTIVE_TERM_COUNT)

    @property
    def replaced(self) -> bool:
        """Whether the path now names another file or none: nothing more will be written to this one."""
        try:
            # A writer makes a new file where the old one was lost. The mapping of a reader stays with the old one.
            return not os.path.samestat(os.stat(self._log.path), self._log.identity)
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close the file; frames still referenced stay readable."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
