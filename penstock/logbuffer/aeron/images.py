"""Follow any log buffer: of a publication with one or several writers, or of an image kept by a media driver.

The writer of a Penstock buffer knows its readers. A reader of a foreign buffer is unknown to its writer: Aeron's
driver cleans behind the subscribers that it knows, and reuses the term after the next. The metadata of an image's
buffer do not contain its end.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Self

from penstock.files import memory_order
from penstock.logbuffer import descriptor
from penstock.logbuffer.aeron.blocks import Block, scan
from penstock.logbuffer.frame_search import newest_by_frames, next_frame
from penstock.logbuffer.lapped import GAP_TIMEOUT_S, MissingFrame
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.subscription import Subscription


class Image(Subscription):
    """A subscription to any buffer that also polls blocks, as Aeron's Image.

    ``patience``: seconds after which a gap in a buffer with several writers counts as lost.
    """

    def __init__(self, path: Path | str, position: int = 0, *, patience: float = GAP_TIMEOUT_S) -> None:
        super().__init__(path, position)
        self._gap = AnyGap(self._log, patience)

    @classmethod
    def follow(cls, path: Path | str, *, from_oldest: bool = False) -> Self:
        """Join a stream at an unknown position: at its writer's position, or at the oldest frame in the file."""
        image = cls(path)
        oldest = image.oldest() if from_oldest else None
        image.position = image.tail() if oldest is None else oldest
        return image

    @property
    def end_of_stream(self) -> bool:
        """Whether everything was read and the writer has ended the stream."""
        return self.position >= self._log.load(descriptor.END_OF_STREAM_POSITION)

    def block_poll(self, limit_bytes: int = sys.maxsize) -> Block | None:
        """Return the next run of whole frames of one term, up to ``limit_bytes`` with headers, without a copy.

        As in Aeron's TermBlockScanner, padding ends a run, or is a block of its own even if longer. None if there is
        no whole frame, or the next one is longer. Raises Lapped as ``poll``.
        """
        # Order: before the frames, as in `poll`.
        active = self._log.load(descriptor.ACTIVE_TERM_COUNT)
        memory_order.barrier()
        block = scan(self._log, self.position, limit_bytes)
        if block is None:
            if not self._log.whole_frame(self.position)[0]:
                self._gap.check(self.position, active)
            return None
        self.position = block.end
        return block

    def tail(self) -> int:
        """Return the writer's position, from which future offers are read.

        In an image it is the end of the last received frame, and takes milliseconds to find.
        """
        return tail_position(self._log)

    def _newest_term(self) -> int:
        return newest_count(self._log)


class AnyGap(MissingFrame):
    """A gap that may be one of several concurrent writers, or a datagram that will be retransmitted.

    Distance decides (a writer is never a term ahead of the slowest subscriber known to its driver), or ``patience``.
    """

    def _is_lost(self, position: int, ahead: int) -> bool:
        kind = self._log.parameters.kind
        if kind is descriptor.Kind.IMAGE:
            return self._is_image_ahead(position)
        if kind is descriptor.Kind.EXCLUSIVE or ahead >= descriptor.PARTITIONS:
            return super()._is_lost(position, ahead)
        return not self._is_being_written(position) and (ahead > 1 or self._is_gap_expired(position))

    def _is_image_ahead(self, position: int) -> bool:
        log = self._log
        following = log.term_end(position)
        if any(log.whole_frame(following + terms * log.term_length)[0] for terms in (1, 2)):
            return True
        if not self._has_waited(position):
            return False
        # Limit: the search reads the whole file, so it runs once per patience and not once per poll.
        self._since = None
        return tail_position(log) > position + log.term_length


def newest_count(log: LogFile) -> int:
    """Return the count of the newest term; for an image by its frames, because its metadata do not contain it."""
    if log.parameters.kind is not descriptor.Kind.IMAGE:
        return log.load(descriptor.ACTIVE_TERM_COUNT)
    return max(newest_by_frames(log), 0)


def tail_position(log: LogFile) -> int:
    """Return the writer's position; in an image the end of the last received frame."""
    count = newest_count(log)
    memory_order.barrier()
    if log.parameters.kind is descriptor.Kind.IMAGE:
        return _end_of_last_frame(log, count * log.term_length)
    raw = log.load(descriptor.TAIL_COUNTERS[count % descriptor.PARTITIONS])
    return count * log.term_length + descriptor.align(descriptor.tail_offset(raw, log.term_length))


def _end_of_last_frame(log: LogFile, begin: int) -> int:
    position: int | None = begin
    last = begin
    while position is not None and position < begin + log.term_length:
        length = log.whole_frame(position)[0]
        if length:
            position += descriptor.align(length)
            last = position
        else:
            # A gap in an image is a lost datagram: later frames of the term may have arrived.
            position = next_frame(log, position)
    return last
