"""Writing frames at the tail of a log buffer: headers, padding, rotation, cleaning.

The order of stores is Aeron's: the tail first, then the frame with its length negative, then the
payload, and the length last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import AdminAction, MaxPositionExceeded
from penstock.logbuffer.mapped import LogFile


class Appender:
    """The tail of a log buffer that only we write. It knows terms, but no limits and no readers."""

    def __init__(self, log: LogFile, position: int, cleaned: int, last: int | None) -> None:
        self.last = last
        """Where the last frame that is no padding begins."""
        self.cleaned = cleaned
        """Before this position everything is zero."""
        self._log = log
        self._term_length = log.term_length
        self._ended = False
        """The last term there can be was closed: its rest is padding, and readers go over that."""
        self._begin = self._offset = self._count = self._term_id = 0
        self._seat(position)

    @property
    def position(self) -> int:
        return self._begin + self._offset

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

    def make_room(self, required: int) -> None:
        """Raises AdminAction, the term rotated, or MaxPositionExceeded when ``required`` bytes do not fit."""
        if self._offset + required > self._term_length:
            self._end_of_term(required)

    def required(self, length: int) -> int:
        """Bytes that a message of ``length`` bytes takes."""
        return d.align(length + d.HEADER_LENGTH)

    def append(self, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        """Appends one message of ``length`` bytes. There must be room.

        A signal handler may raise anywhere in here: that must not leave a hole no reader could pass.
        """
        begin = self.position
        try:
            self.advance(self.required(length))
            self._frames(begin, parts, length, reserved_value)
        except BaseException:
            self._fill_hole(begin)
            raise

    def advance(self, required: int) -> None:
        """Takes room at the tail."""
        self._offset += required
        self._store_tail(self._offset)

    def _frames(self, begin: int, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        self._frame(begin, d.UNFRAGMENTED, parts, length, reserved_value)

    def _frame(self, begin: int, flags: int, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        length += d.HEADER_LENGTH
        at = self._log.begin_frame(begin, length, flags, d.DATA, reserved_value)
        into = at + d.HEADER_LENGTH
        for part in parts:
            self._log.copy(into, part)
            into += len(part)
        self._log.publish(at, length)
        self.last = begin

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
        self._store_tail(self._overrun() + required)
        position, following = self.position, self._begin + self._term_length
        try:
            self._close_term(position, following)
        except Exception:
            raise
        except BaseException:  # a signal handler's: half a rotation must not stay
            self._close_term(position, following)
            raise
        raise AdminAction("the term was full: offer again")

    def _close_term(self, position: int, following: int) -> None:
        if position < following:
            self._log.pad(position, following - position)
        if following >= d.max_position(self._term_length):
            self._end_last_term()
            raise MaxPositionExceeded(f"no term after position {position}")
        # What the next partition held before is zeroed, if the cleaning has not come so far.
        self.clean_to(following - 2 * self._term_length)
        self._seat(following)
        self._store_tail(0)
        self._log.store(d.ACTIVE_TERM_COUNT, self._count)

    def _overrun(self) -> int:
        """The tail's offset when a message does not fit."""
        return self._offset

    def _end_last_term(self) -> None:
        self._ended = True

    def _store_tail(self, offset: int) -> None:
        self._log.store(d.TAIL_COUNTERS[self._count % d.PARTITIONS], d.pack_tail(self._term_id, offset))

    def _seat(self, position: int) -> None:
        self._count, self._offset = self._log.tail_at(position)
        self._begin = position - self._offset
        self._term_id = d.int32(self._log.initial_term_id + self._count)
