"""Writing frames at the tail of a log buffer: headers, fragments, padding, rotation, cleaning.

The order of stores is Aeron's: the tail first, then the frame with its length negative, then the
payload, and the length last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from penstock.logbuffer import blocks
from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import AdminAction, MaxPositionExceeded
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.payload_parts import pieces_of


class Appender:
    """The tail of a log buffer that only we write. It knows terms, but no limits and no readers."""

    def __init__(self, log: LogFile, position: int, cleaned: int, last: int | None) -> None:
        self.last = last
        """Where the last frame that is no padding begins."""
        self.cleaned = cleaned
        """Before this position everything is zero."""
        self._log = log
        self._term_length = log.term_length
        self._concurrent = log.parameters.kind is d.Kind.CONCURRENT
        self._ended = False
        """The last term there can be was closed: its rest is padding, and readers go over that."""
        self._begin = self._offset = self._count = self._term_id = 0
        self._seat(position)

    @property
    def position(self) -> int:
        return self._begin + self._offset

    @property
    def reserved(self) -> int:
        """Up to where the tail says that room was taken: behind the last term's padding it is not ``position``."""
        raw = self._log.load(d.TAIL_COUNTERS[self._count % d.PARTITIONS])
        return self._begin + d.tail_offset(raw, self._term_length)

    def clean_to(self, position: int) -> None:
        """Zeroes everything before ``position``, which is at most the tail, that is not zero yet."""
        while self.clean_some(position):
            pass

    def clean_some(self, position: int) -> bool:
        """The same for one term at most, as Aeron's driver does it in one go; whether there was anything to do."""
        end = self._begin + self._term_length if self._ended else self.position
        begin, position = self.cleaned, min(position, end) & -d.FRAME_ALIGNMENT
        if begin >= position:
            return False
        stop = min(position, self._log.term_end(begin))
        self._log.fill_zero(self._log.offset_of(begin), stop - begin)
        self.cleaned = stop
        return True

    def leave_full_term(self) -> None:
        """Rotates if not one byte is left. Raises MaxPositionExceeded where no term follows."""
        if self._offset == self._term_length:
            self._close_term(self.position, self.position)

    def make_room(self, required: int) -> None:
        """Raises AdminAction, the term rotated, or MaxPositionExceeded when ``required`` bytes do not fit."""
        if self._offset + required > self._term_length:
            self._end_of_term(required)

    def append(self, parts: Sequence[memoryview], length: int, reserved_value: int, mtu: int) -> None:
        """One message of ``length`` bytes, as one frame or several. There must be room.

        A signal handler may raise anywhere in here: that must not leave a hole no reader could pass.
        """
        begin = self.position
        try:
            if length <= mtu - d.HEADER_LENGTH:
                self.advance(d.align(length + d.HEADER_LENGTH))
                self._frame(begin, d.UNFRAGMENTED, parts, length, reserved_value)
            else:
                self.advance(d.fragmented_length(length, mtu))
                self._fragments(begin, parts, length, reserved_value, mtu)
        except BaseException:
            self._fill_hole(begin)
            raise

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
        """Whole frames in one copy, the first one's length last."""
        begin = self.position
        length = block[:4].cast("i")[0]
        self._publish_run(length, len(block), lambda at: self._log.copy(at + 4, block[4:]))
        self.last = self._last_of(begin)

    def append_batch(
        self, payload: np.ndarray, lengths: blocks.Integers, starts: blocks.Integers, reserved_values: Any
    ) -> None:
        """One unfragmented frame for each of ``lengths``, the first one's length last. There must be room."""
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

    def advance(self, required: int) -> None:
        """Takes room at the tail."""
        self._offset += required
        self._store_tail(self._offset)

    def _frame(self, begin: int, flags: int, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        length += d.HEADER_LENGTH
        at = self._log.begin_frame(begin, length, flags, d.DATA, reserved_value)
        into = at + d.HEADER_LENGTH
        for part in parts:
            self._log.copy(into, part)
            into += len(part)
        self._log.publish(at, length)
        self.last = begin

    def _fragments(self, begin: int, parts: Sequence[memoryview], rest: int, reserved_value: int, mtu: int) -> None:
        flags = d.BEGIN
        for piece in pieces_of(parts, mtu - d.HEADER_LENGTH):
            size = sum(map(len, piece))
            rest -= size
            self._frame(begin, flags if rest else flags | d.END, piece, size, reserved_value)
            begin += d.align(size + d.HEADER_LENGTH)
            flags = 0

    def _fill_hole(self, begin: int) -> None:
        """Turns what an interrupted append left unfinished into padding."""
        self._store_tail(self._offset)
        end = self.position
        while begin < end:
            length, _, _ = self._log.whole_frame(begin)
            if not length:
                self._log.blank(begin, end - begin)
                return
            self.last = begin
            begin += d.align(length)

    def _end_of_term(self, required: int) -> NoReturn:
        """Pads the rest of the term and rotates. The old tail keeps the overrun, as Aeron's does."""
        self._store_tail(self._taken() + required)
        position, following = self.position, self._begin + self._term_length
        try:
            self._close_term(position, following)
        except Exception:
            raise
        except BaseException:  # a signal handler's: half a rotation must not stay
            self._close_term(position, following)
            raise
        raise AdminAction("the term was full: offer again")

    def _taken(self) -> int:
        """The tail's offset, which a concurrent publication lets grow with every try behind the last term."""
        if self._ended and self._concurrent:
            return self._log.load(d.TAIL_COUNTERS[self._count % d.PARTITIONS]) & 0xFFFFFFFF
        return self._offset

    def _close_term(self, position: int, following: int) -> None:
        if position < following:
            self._log.pad(position, following - position)
        if following >= d.max_position(self._term_length):
            self._ended = True
            self._offset = self._term_length if self._concurrent else self._offset
            raise MaxPositionExceeded(f"no term after position {position}")
        # What the next partition held before is zeroed, if the cleaning has not come so far.
        self.clean_to(following - 2 * self._term_length)
        self._seat(following)
        self._store_tail(0)
        self._log.store(d.ACTIVE_TERM_COUNT, self._count)

    def _store_tail(self, offset: int) -> None:
        self._log.store(d.TAIL_COUNTERS[self._count % d.PARTITIONS], d.pack_tail(self._term_id, offset))

    def _seat(self, position: int) -> None:
        self._count, self._offset = self._log.tail_at(position)
        self._begin = position - self._offset
        self._term_id = d.int32(self._log.initial_term_id + self._count)
