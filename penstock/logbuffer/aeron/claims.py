"""A claim: room in a log buffer that the caller fills in place."""

from __future__ import annotations

from penstock.logbuffer import descriptor
from penstock.logbuffer.mapped import LogFile


class Claim:
    """Room in the buffer, filled through ``data`` and then committed or aborted; blocks readers until then."""

    def __init__(self, log: LogFile, begin: int, frame_length: int) -> None:
        self._log = log
        self._file_offset = log.offset_of(begin)
        self._length = frame_length
        self.position = begin + descriptor.align(frame_length)
        self.data = log.bytes[self._file_offset + descriptor.HEADER_LENGTH : self._file_offset + frame_length]

    def set_reserved_value(self, value: int) -> None:
        self._log.store_long(self._file_offset + 24, value)

    def commit(self) -> None:
        self._log.publish(self._file_offset, self._length)

    def abort(self) -> None:
        """Turn the frame into padding of the same length."""
        # Order: the type before the length, which publishes the frame: readers then skip it as padding.
        self._log.copy(self._file_offset + 6, descriptor.PAD.to_bytes(2, "little"))
        self._log.publish(self._file_offset, self._length)
