"""The reader of a log buffer: frames without a copy, in order, whole ones only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Self

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.frame_search import next_frame
from penstock.logbuffer.lapped import MissingFrame
from penstock.logbuffer.mapped import Frame, LogFile, require_x86_64


class Subscription:
    """Reads a log buffer that one process writes from ``position`` on, which must be where a frame begins.

    ``in_order``: its writer is a ``Publication``, which publishes each frame before it takes room for the next one.
    Raises NotALogBuffer, OSError, UnsupportedProcessor, and ValueError for a position that cannot be one.
    """

    def __init__(self, path: Path | str, position: int = 0, *, in_order: bool = False) -> None:
        require_x86_64()
        self._log = LogFile(path)
        self._in_order = in_order
        self._gap = MissingFrame(self._log, in_order=in_order)
        self._position = 0
        self.position = position

    @property
    def position(self) -> int:
        """Where the next frame begins. May be set, to go on elsewhere."""
        return self._position

    @position.setter
    def position(self, value: int) -> None:
        if value < 0 or value % d.FRAME_ALIGNMENT:
            raise ValueError(f"no frame begins at position {value}")
        self._position = value

    def poll(self, limit_bytes: int = sys.maxsize, *, limit_frames: int = sys.maxsize) -> list[Frame]:
        """The next frames, until their payloads reach ``limit_bytes``; at least one if there is one.

        Padding is passed over. As in Aeron a poll ends with its term: it may return nothing and yet
        have gone on to the next one. Raises Lapped when the next frame is no longer in the buffer.
        """
        frames: list[Frame] = []
        log, position, taken = self._log, self._position, 0
        end, tail = log.term_end(position), self._known_tail()
        while position < end and taken < limit_bytes and len(frames) < limit_frames:
            active = log.load(d.ACTIVE_TERM_COUNT)  # before the frame, see Gap
            length, flags, kind = log.whole_frame(position)
            if not length or (position + length > tail and position + length > (tail := self._known_tail())):
                if not frames:
                    self._gap.check(position, active)
                break
            if kind == d.DATA:
                frames.append(log.frame(position, length, flags))
                taken += length - d.HEADER_LENGTH
            position += d.align(length)
        self._position = position
        return frames

    def release(self) -> None:
        """As ``Publication.release``; frames that were given are still there."""
        self._log.release(self._position)

    def oldest(self) -> int | None:
        """Where to go on after Lapped: the first frame still there that is not before our position.

        None when there is no whole one at the moment. Takes milliseconds: a term is searched.
        """
        log = self._log
        active = self._newest_term()
        for count in range(max(active - 2, log.term_count(self._position), 0), active + 1):
            begin = max(count * log.term_length, self._position)
            found = begin if self._gap.is_whole(begin) else next_frame(log, begin + d.FRAME_ALIGNMENT)
            if found is not None:
                return found
        return None

    def _known_tail(self) -> int:
        """The tail where it is known to lie behind every frame."""
        return self._gap.tail() if self._in_order else sys.maxsize

    @property
    def term_length(self) -> int:
        """Bytes of a term."""
        return self._log.term_length

    @property
    def end(self) -> int:
        """Where the writer takes room next: no frame begins there yet."""
        return self._gap.tail()

    def _newest_term(self) -> int:
        """The count of the newest term."""
        return self._log.load(d.ACTIVE_TERM_COUNT)

    @property
    def replaced(self) -> bool:
        """Another file stands at the path now, or none: nothing more will come in this one."""
        try:
            return not os.path.samestat(os.stat(self._log.path), self._log.identity)
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Frames that are still held stay readable."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
