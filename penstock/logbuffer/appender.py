"""Write frames at the tail of a log buffer: headers, padding, rotation, cleaning.

Order: as in Aeron, the tail first, then the frame with its length negative, then the payload, and the positive length
last. A reader that sees a positive length therefore sees the whole frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.files import memory_order
from penstock.logbuffer import descriptor
from penstock.logbuffer.errors import AdminAction, MaxPositionExceeded
from penstock.logbuffer.mapped import LogFile


class Appender:
    """The tail of a log buffer with one writer; knows terms, but no position limit and no readers. Not thread-safe."""

    def __init__(self, log: LogFile, position: int, cleaned: int, last: int | None) -> None:
        self.last = last
        """Position of the last data frame."""
        self.cleaned = cleaned
        """All bytes before this position are zero."""
        self._log = log
        self._term_length = log.term_length
        self._is_last_term_closed = False
        """The last term that a stream can have is closed: its rest is padding, which readers skip."""
        self._begin = self._offset = self._count = self._term_id = 0
        self._move_tail(position)

    @property
    def position(self) -> int:
        return self._begin + self._offset

    def clean_to(self, position: int) -> None:
        """Zero all bytes before ``position``, which is at most the tail."""
        while self.clean_one_term(position):
            pass

    def clean_one_term(self, position: int) -> bool:
        """Zero at most one term before ``position``, as Aeron's driver does; report whether anything was left to
        zero.
        """
        end = self._begin + self._term_length if self._is_last_term_closed else self.position
        begin, position = self.cleaned, min(position, end) & -descriptor.FRAME_ALIGNMENT
        if begin >= position:
            return False
        stop = min(position, self._log.term_end(begin))
        self._log.fill_zero(self._log.offset_of(begin), stop - begin)
        self.cleaned = stop
        return True

    def make_room(self, required: int) -> None:
        """Ensure that ``required`` bytes fit. Raises AdminAction after a rotation, or MaxPositionExceeded."""
        if self._offset + required > self._term_length:
            self._rotate(required)

    def required(self, length: int) -> int:
        """Return the bytes that a message of ``length`` bytes takes in the term."""
        return descriptor.align(length + descriptor.HEADER_LENGTH)

    def append(self, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        """Append one message of ``length`` bytes; the caller has made room."""
        begin = self.position
        try:
            self.advance(self.required(length))
            self._write_message(begin, parts, length, reserved_value)
        except BaseException:
            # Crash: a signal handler may raise anywhere in the try block. An unfinished frame would stop every reader.
            self._fill_hole(begin)
            raise

    def advance(self, required: int) -> None:
        """Move the tail forward by ``required`` bytes."""
        self._offset += required
        self._store_tail(self._offset)

    def _write_message(self, begin: int, parts: Sequence[memoryview], length: int, reserved_value: int) -> None:
        self._write_frame(begin, descriptor.UNFRAGMENTED, parts, length, reserved_value)

    def _write_frame(
        self, begin: int, flags: int, parts: Sequence[memoryview], length: int, reserved_value: int
    ) -> None:
        length += descriptor.HEADER_LENGTH
        file_offset = self._log.begin_frame(begin, length, flags, descriptor.DATA, reserved_value)
        target = file_offset + descriptor.HEADER_LENGTH
        for part in parts:
            self._log.copy(target, part)
            target += len(part)
        self._log.publish(file_offset, length)
        self.last = begin

    def _fill_hole(self, begin: int) -> None:
        """Turn the unfinished part of an interrupted append into padding."""
        self._store_tail(self._offset)
        end = self.position
        while begin < end:
            length, _, _ = self._log.whole_frame(begin)
            if not length:
                self._log.blank(begin, end - begin)
                return
            self.last = begin
            begin += descriptor.align(length)

    def _rotate(self, required: int) -> NoReturn:
        """Pad the rest of the term and rotate."""
        # As in Aeron, the tail of the full term keeps the overrun; `tail_offset` clamps it to the term length.
        self._store_tail(self._tail_offset_before_rotation() + required)
        position, following = self.position, self._begin + self._term_length
        try:
            self._close_term(position, following)
        except Exception:
            raise
        except BaseException:  # Crash: raised by a signal handler; a half-done rotation is completed first.
            self._close_term(position, following)
            raise
        raise AdminAction("the term was full and has been rotated: offer again")

    def _close_term(self, position: int, following: int) -> None:
        if position < following:
            self._log.pad(position, following - position)
        if following >= descriptor.max_position(self._term_length):
            self._close_last_term()
            raise MaxPositionExceeded(f"no term follows position {position}")
        # Order: zero the next partition if cleaning lags, then its tail, then the term count that makes it active.
        self.clean_to(following - 2 * self._term_length)
        self._move_tail(following)
        self._store_tail(0)
        memory_order.barrier()
        self._log.store(descriptor.ACTIVE_TERM_COUNT, self._count)

    def _tail_offset_before_rotation(self) -> int:
        return self._offset

    def _close_last_term(self) -> None:
        self._is_last_term_closed = True

    def _store_tail(self, offset: int) -> None:
        self._log.store(
            descriptor.TAIL_COUNTERS[self._count % descriptor.PARTITIONS], descriptor.pack_tail(self._term_id, offset)
        )

    def _move_tail(self, position: int) -> None:
        self._count, self._offset = self._log.tail_at(position)
        self._begin = position - self._offset
        self._term_id = descriptor.int32(self._log.initial_term_id + self._count)
