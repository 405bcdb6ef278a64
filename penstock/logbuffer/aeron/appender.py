"""The tail of a log buffer with everything that Aeron's publications write: fragments, runs of frames, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.logbuffer import descriptor
from penstock.logbuffer.aeron import blocks
from penstock.logbuffer.appender import Appender


class AeronAppender(Appender):
    """An appender that also writes the file of a concurrent publication."""

    @property
    def reserved(self) -> int:
        """Position up to which the tail takes room; differs from ``position`` after the last term."""
        raw = self._log.load(descriptor.TAIL_COUNTERS[self._count % descriptor.PARTITIONS])
        return self._begin + descriptor.tail_offset(raw, self._term_length)

    def leave_full_term(self) -> None:
        """Rotate if no byte is left. Raises MaxPositionExceeded without a following term."""
        if self._offset == self._term_length:
            self._close_term(self.position, self.position)

    def required(self, length: int) -> int:
        mtu = self._log.parameters.mtu
        return (
            super().required(length)
            if length <= mtu - descriptor.HEADER_LENGTH
            else descriptor.fragmented_length(length, mtu)
        )

    def check_block(self, block: memoryview) -> None:
        """Raise ValueError unless ``block`` begins with a data frame for the tail and fits the term."""
        if len(block) < descriptor.HEADER_LENGTH or len(block) % descriptor.FRAME_ALIGNMENT:
            raise ValueError(f"block of {len(block)} bytes is not a run of whole frames")
        if self._offset + len(block) > self._term_length:
            raise ValueError(f"block of {len(block)} bytes does not fit the rest of the term")
        parameters = self._log.parameters
        expected = (descriptor.DATA, self._offset, parameters.session_id, parameters.stream_id, self._term_id)
        if descriptor.HEADER.unpack_from(block)[3:8] != expected:
            raise ValueError("the first frame of the block is not for this position")

    def append_block(self, block: memoryview) -> None:
        """Append whole frames in one copy, the first one's length last."""
        begin = self.position
        length = block[:4].cast("i")[0]
        self._publish_run(length, len(block), lambda file_offset: self._log.copy(file_offset + 4, block[4:]))
        self.last = self._find_last_data_frame(begin)

    def append_batch(
        self, payload: np.ndarray, lengths: blocks.Integers, starts: blocks.Integers, reserved_values: Any
    ) -> None:
        """Append one unfragmented frame per length, the first one's length last; the caller has made room."""
        begin, size = self.position, int(starts[-1])
        words = blocks.header_words(self._log, begin, lengths, starts, reserved_values)
        words[0].view(np.int32)[0] = -size  # the first frame's length
        length = int(lengths[0]) + descriptor.HEADER_LENGTH
        self._publish_run(
            length,
            size,
            lambda file_offset: blocks.write_frames(self._log, file_offset, words, payload, lengths, starts),
        )
        self.last = begin + int(starts[-2])

    def _publish_run(self, length: int, size: int, write: Callable[[int], None]) -> None:
        begin = self.position
        file_offset = self._log.offset_of(begin)
        try:
            self.advance(size)
            # Crash: until the whole run is written, the first length is negative and tells recovery how far the run
            # reaches.
            self._log.publish(file_offset, -size)
            write(file_offset)
            self._log.publish(file_offset, length)
        except BaseException:
            self._fill_hole(begin)
            raise

    def _find_last_data_frame(self, begin: int) -> int | None:
        last = self.last
        while begin < self.position:
            length, _, kind = self._log.whole_frame(begin)
            last = begin if kind == descriptor.DATA else last
            begin += descriptor.align(max(length, descriptor.HEADER_LENGTH))
        return last

    def _write_message(self, begin: int, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        """Write a message; longer than the MTU allows, as several frames in one term."""
        longest = self._log.parameters.mtu - descriptor.HEADER_LENGTH
        if length <= longest:
            super()._write_message(begin, parts, length, reserved_value)
            return
        flags = descriptor.BEGIN
        for piece in pieces_of(parts, longest):
            size = sum(map(len, piece))
            length -= size
            self._write_frame(begin, flags if length else flags | descriptor.END, piece, size, reserved_value)
            begin += descriptor.align(size + descriptor.HEADER_LENGTH)
            flags = 0

    @property
    def _concurrent(self) -> bool:
        return self._log.parameters.kind is descriptor.Kind.CONCURRENT

    def _tail_offset_before_rotation(self) -> int:
        # As in Aeron, the tail of a concurrent publication grows with each attempt after the last term.
        if self._is_last_term_closed and self._concurrent:
            return self._log.load(descriptor.TAIL_COUNTERS[self._count % descriptor.PARTITIONS]) & 0xFFFFFFFF
        return super()._tail_offset_before_rotation()

    def _close_last_term(self) -> None:
        super()._close_last_term()
        if self._concurrent:
            self._offset = self._term_length


def pieces_of(parts: Sequence[memoryview], size: int) -> Iterator[list[memoryview]]:
    """Yield the bytes of ``parts`` in pieces of ``size`` bytes (the last one shorter), without a copy."""
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
