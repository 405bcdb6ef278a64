"""The tail of a log buffer with all that Aeron's publications write there: fragments, whole runs of frames, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.aeron import blocks
from penstock.logbuffer.appender import Appender


class AeronAppender(Appender):
    """Also writes a concurrent publication's file, whose tail grows with each try behind the last term."""

    @property
    def reserved(self) -> int:
        """Up to where the tail says that room was taken: behind the last term's padding it is not ``position``."""
        raw = self._log.load(d.TAIL_COUNTERS[self._count % d.PARTITIONS])
        return self._begin + d.tail_offset(raw, self._term_length)

    def leave_full_term(self) -> None:
        """Rotates if not one byte is left. Raises MaxPositionExceeded where no term follows."""
        if self._offset == self._term_length:
            self._close_term(self.position, self.position)

    def required(self, length: int) -> int:
        mtu = self._log.parameters.mtu
        return super().required(length) if length <= mtu - d.HEADER_LENGTH else d.fragmented_length(length, mtu)

    def check_block(self, block: memoryview) -> None:
        """Raises ValueError unless ``block`` begins with a data frame for the tail and fits into the term."""
        if len(block) < d.HEADER_LENGTH or len(block) % d.FRAME_ALIGNMENT:
            raise ValueError(f"a block of {len(block)} bytes is no run of whole frames")
        if self._offset + len(block) > self._term_length:
            raise ValueError(f"a block of {len(block)} bytes does not fit into the rest of the term")
        parameters = self._log.parameters
        place = (d.DATA, self._offset, parameters.session_id, parameters.stream_id, self._term_id)
        if d.HEADER.unpack_from(block)[3:8] != place:
            raise ValueError("the first frame of the block is not for this place")

    def append_block(self, block: memoryview) -> None:
        """Appends whole frames in one copy, the first one's length last."""
        begin = self.position
        length = block[:4].cast("i")[0]
        self._publish_run(length, len(block), lambda at: self._log.copy(at + 4, block[4:]))
        self.last = self._last_of(begin)

    def append_batch(
        self, payload: np.ndarray, lengths: blocks.Integers, starts: blocks.Integers, reserved_values: Any
    ) -> None:
        """Appends one unfragmented frame for each of ``lengths``, the first one's length last. There must be room."""
        begin, size = self.position, int(starts[-1])
        words = blocks.header_words(self._log, begin, lengths, starts, reserved_values)
        words[0].view(np.int32)[0] = -size  # the first frame's length
        length = int(lengths[0]) + d.HEADER_LENGTH
        self._publish_run(length, size, lambda at: blocks.write(self._log, at, words, payload, lengths, starts))
        self.last = begin + int(starts[-2])

    def _publish_run(self, length: int, size: int, write: Callable[[int], None]) -> None:
        """Until all is written the first length says, as a negative number, how far the run will go."""
        begin = self.position
        at = self._log.offset_of(begin)
        try:
            self.advance(size)
            self._log.publish(at, -size)
            write(at)
            self._log.publish(at, length)
        except BaseException:
            self._fill_hole(begin)
            raise

    def _last_of(self, begin: int) -> int | None:
        last = self.last
        while begin < self.position:
            length, _, kind = self._log.whole_frame(begin)
            last = begin if kind == d.DATA else last
            begin += d.align(max(length, d.HEADER_LENGTH))
        return last

    def _frames(self, begin: int, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        """Longer than the MTU allows, a message becomes several frames, all in one term."""
        longest = self._log.parameters.mtu - d.HEADER_LENGTH
        if length <= longest:
            super()._frames(begin, parts, length, reserved_value)
            return
        flags = d.BEGIN
        for piece in pieces_of(parts, longest):
            size = sum(map(len, piece))
            length -= size
            self._frame(begin, flags if length else flags | d.END, piece, size, reserved_value)
            begin += d.align(size + d.HEADER_LENGTH)
            flags = 0

    @property
    def _concurrent(self) -> bool:
        return self._log.parameters.kind is d.Kind.CONCURRENT

    def _overrun(self) -> int:
        if self._ended and self._concurrent:
            return self._log.load(d.TAIL_COUNTERS[self._count % d.PARTITIONS]) & 0xFFFFFFFF
        return super()._overrun()

    def _end_last_term(self) -> None:
        super()._end_last_term()
        if self._concurrent:
            self._offset = self._term_length


def pieces_of(parts: Sequence[memoryview], size: int) -> Iterator[list[memoryview]]:
    """The bytes of ``parts`` in pieces of ``size`` bytes (the last one shorter), without a copy."""
    piece: list[memoryview] = []
    room = size
    for part in parts:
        while len(part):
            piece.append(part[:room])
            part = part[len(piece[-1]) :]
            room -= len(piece[-1])
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece
