"""The reader of a log buffer: frames without a copy, in order, whole ones only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.blocks import Block, scan
from penstock.logbuffer.frame_search import newest_count, next_frame, tail_position
from penstock.logbuffer.lapped import PATIENCE, Gap
from penstock.logbuffer.mapped import Frame, LogFile, require_x86_64


class Subscription:
    """Reads a log buffer from ``position`` on, which must be where a frame begins.

    It may be anybody's: one of ours, or a publication's or an image's that an Aeron media driver keeps.
    ``patience``: seconds until a gap in a buffer that several write is taken for one that stays. Raises
    NotALogBuffer, OSError, UnsupportedProcessor, and ValueError for a position that cannot be one.
    """

    def __init__(self, path: Path | str, position: int = 0, *, patience: float = PATIENCE) -> None:
        require_x86_64()
        self._log = LogFile(path)
        self._gap = Gap(self._log, patience)
        self._position = 0
        self.position = position

    @classmethod
    def follow(cls, path: Path | str, *, from_oldest: bool = False) -> Subscription:
        """Joins a stream whose positions are not known: where its writer stands, or at the oldest frame in the file."""
        subscription = cls(path)
        oldest = subscription.oldest() if from_oldest else None
        subscription.position = subscription.tail() if oldest is None else oldest
        return subscription

    @property
    def position(self) -> int:
        """Where the next frame begins. May be set, to go on elsewhere."""
        return self._position

    @position.setter
    def position(self, value: int) -> None:
        if value < 0 or value % d.FRAME_ALIGNMENT:
            raise ValueError(f"no frame begins at position {value}")
        self._position = value

    @property
    def parameters(self) -> d.Parameters:
        return self._log.parameters

    @property
    def end_of_stream(self) -> bool:
        """Everything was read, and the writer has said that nothing will follow."""
        return self._position >= self._log.load(d.END_OF_STREAM_POSITION)

    def poll(self, limit_bytes: int = sys.maxsize, *, limit_frames: int = sys.maxsize) -> list[Frame]:
        """The next frames, until their payloads reach ``limit_bytes``; at least one if there is one.

        Padding is passed over. As in Aeron a poll ends with its term: it may return nothing and yet
        have gone on to the next one. Raises Lapped when the next frame is no longer in the buffer.
        """
        frames: list[Frame] = []
        log, position, taken = self._log, self._position, 0
        end = log.term_end(position)
        while position < end and taken < limit_bytes and len(frames) < limit_frames:
            active = log.load(d.ACTIVE_TERM_COUNT)  # before the frame, see Gap
            length, flags, kind = log.whole_frame(position)
            if not length:
                if not frames:
                    self._gap.check(position, active)
                break
            if kind == d.DATA:
                frames.append(log.frame(position, length, flags))
                taken += length - d.HEADER_LENGTH
            position += d.align(length)
        self._position = position
        return frames

    def block_poll(self, limit_bytes: int = sys.maxsize) -> Block | None:
        """The next run of whole frames of one term, at most ``limit_bytes`` with headers, without a copy.

        As Aeron's TermBlockScanner finds it: padding ends a run, or is one alone, even a longer one. None
        when there is no whole frame, or the next one is longer. Raises Lapped as ``poll`` does.
        """
        active = self._log.load(d.ACTIVE_TERM_COUNT)
        block = scan(self._log, self._position, limit_bytes)
        if block is None:
            if not self._log.whole_frame(self._position)[0]:
                self._gap.check(self._position, active)
            return None
        self._position = block.end
        return block

    def tail(self) -> int:
        """Where the writer stands: what is offered from now on is read from there.

        In an image it is the end of the last frame received, and takes milliseconds to find.
        """
        return tail_position(self._log)

    def oldest(self) -> int | None:
        """Where to go on after Lapped: the first frame still there that is not before our position.

        None when there is no whole one at the moment: a follower goes on at ``tail`` then. Takes
        milliseconds: a term is searched.
        """
        log = self._log
        active = newest_count(log)
        for count in range(max(active - 2, log.term_count(self._position), 0), active + 1):
            begin = max(count * log.term_length, self._position)
            found = begin if log.whole_frame(begin)[0] else next_frame(log, begin)
            if found is not None:
                return found
        return None

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

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FragmentAssembler:
    """Puts messages together that were cut into several frames; whole ones pass through without a copy.

    A message whose frames do not all come, one behind the other (its writer died, or the reader was
    overtaken), is dropped and counted in ``unfinished``.
    """

    def __init__(self) -> None:
        self.unfinished = 0
        self._first: Frame | None = None
        self._end = 0
        self._data = bytearray()

    def push(self, frames: Iterable[Frame]) -> list[Frame]:
        """The messages that are complete with ``frames``, in order."""
        messages: list[Frame] = []
        for frame in frames:
            if self._first is not None and (frame.flags & d.BEGIN or frame.begin != self._end):
                self.unfinished += 1
                self._first = None
            if frame.flags & d.UNFRAGMENTED == d.UNFRAGMENTED:
                messages.append(frame)
            else:
                messages += self._piece(frame)
        return messages

    def _piece(self, frame: Frame) -> list[Frame]:
        """Pieces are copied at once: by the next poll the writer may have cleaned them."""
        if frame.flags & d.BEGIN:
            self._first, self._data = frame._replace(data=memoryview(b"")), bytearray()
        elif self._first is None:
            return []  # the rest of a message whose beginning was before our position
        self._data += frame.data
        self._end = frame.end
        if not frame.flags & d.END:
            return []
        whole = self._first._replace(data=memoryview(self._data), end=frame.end, flags=d.UNFRAGMENTED)
        self._first = None
        return [whole]
