"""A claim: room in a log buffer that is filled in place."""

from __future__ import annotations

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import LogFile


class Claim:
    """Room in the buffer, to be filled through ``data`` and then committed or aborted."""

    def __init__(self, log: LogFile, begin: int, frame_length: int) -> None:
        self._log = log
        self._at = log.offset_of(begin)
        self._length = frame_length
        self.position = begin + d.align(frame_length)
        self.data = log.bytes[self._at + d.HEADER_LENGTH : self._at + frame_length]

    def set_reserved_value(self, value: int) -> None:
        self._log.store_long(self._at + 24, value)

    def commit(self) -> None:
        self._log.publish(self._at, self._length)

    def abort(self) -> None:
        """The frame becomes padding of the same length."""
        self._log.copy(self._at + 6, d.PAD.to_bytes(2, "little"))
        self._log.publish(self._at, self._length)
