"""Following anybody's log buffer: a publication's of one or several writers, or an image's that a media driver keeps.

Our own readers are known to their writer. A reader that follows somebody else's buffer is not: Aeron's
driver cleans behind the subscribers it knows, and reuses the term after the next. In an image's buffer
the metadata do not tell where its end is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Self

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.aeron.blocks import Block, scan
from penstock.logbuffer.frame_search import newest_by_frames, next_frame
from penstock.logbuffer.lapped import PATIENCE, MissingFrame
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.subscription import Subscription


class Image(Subscription):
    """A Subscription to anybody's buffer that also polls whole blocks, as Aeron's Image.

    ``patience``: seconds until a gap in a buffer that several write is taken for one that stays.
    """

    def __init__(self, path: Path | str, position: int = 0, *, patience: float = PATIENCE) -> None:
        super().__init__(path, position)
        self._gap = AnyGap(self._log, patience)

    @classmethod
    def follow(cls, path: Path | str, *, from_oldest: bool = False) -> Self:
        """Joins a stream whose positions are not known: where its writer stands, or at the oldest frame in the file."""
        image = cls(path)
        oldest = image.oldest() if from_oldest else None
        image.position = image.tail() if oldest is None else oldest
        return image

    @property
    def end_of_stream(self) -> bool:
        """Everything was read, and the writer has said that nothing will follow."""
        return self.position >= self._log.load(d.END_OF_STREAM_POSITION)

    def block_poll(self, limit_bytes: int = sys.maxsize) -> Block | None:
        """The next run of whole frames of one term, at most ``limit_bytes`` with headers, without a copy.

        As Aeron's TermBlockScanner finds it: padding ends a run, or is one alone, even a longer one. None
        when there is no whole frame, or the next one is longer. Raises Lapped as ``poll`` does.
        """
        active = self._log.load(d.ACTIVE_TERM_COUNT)
        block = scan(self._log, self.position, limit_bytes)
        if block is None:
            if not self._log.whole_frame(self.position)[0]:
                self._gap.check(self.position, active)
            return None
        self.position = block.end
        return block

    def tail(self) -> int:
        """Where the writer stands: what is offered from now on is read from there.

        In an image it is the end of the last frame received, and takes milliseconds to find.
        """
        return tail_position(self._log)

    def _newest_term(self) -> int:
        return newest_count(self._log)


class AnyGap(MissingFrame):
    """A gap that may be one of several writers at work, or a datagram that comes again.

    Then distance tells (a writer is never a term ahead of the slowest subscriber that its driver knows),
    or ``patience``.
    """

    def _is_lost(self, position: int, ahead: int) -> bool:
        kind = self._log.parameters.kind
        if kind is d.Kind.IMAGE:
            return self._image_is_ahead(position)
        if kind is d.Kind.EXCLUSIVE or ahead >= d.PARTITIONS:
            return super()._is_lost(position, ahead)
        return not self._is_being_written(position) and (ahead > 1 or self._is_old(position))

    def _image_is_ahead(self, position: int) -> bool:
        log = self._log
        following = log.term_end(position)
        if any(log.whole_frame(following + terms * log.term_length)[0] for terms in (1, 2)):
            return True
        if not self._waited(position):
            return False
        self._since = None  # the whole file is looked at: not at every poll
        return tail_position(log) > position + log.term_length


def newest_count(log: LogFile) -> int:
    """The count of the newest term: by the metadata, or by the frames of an image, whose metadata do not tell."""
    if log.parameters.kind is not d.Kind.IMAGE:
        return log.load(d.ACTIVE_TERM_COUNT)
    return max(newest_by_frames(log), 0)


def tail_position(log: LogFile) -> int:
    """Where the writer stands; in an image where the last frame ends that was received."""
    count = newest_count(log)
    if log.parameters.kind is d.Kind.IMAGE:
        return _last_end(log, count * log.term_length)
    raw = log.load(d.TAIL_COUNTERS[count % d.PARTITIONS])
    return count * log.term_length + d.align(d.tail_offset(raw, log.term_length))


def _last_end(log: LogFile, begin: int) -> int:
    position: int | None = begin
    last = begin
    while position is not None and position < begin + log.term_length:
        length = log.whole_frame(position)[0]
        if length:
            position += d.align(length)
            last = position
        else:
            position = next_frame(log, position)
    return last
