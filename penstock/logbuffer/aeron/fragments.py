"""Assemble messages that were cut into several frames."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.logbuffer import descriptor
from penstock.logbuffer.mapped import Frame


class FragmentAssembler:
    """Assembles fragmented messages of one reader; whole messages pass through without a copy.

    A message whose frames do not follow each other (its writer died, or the reader was lapped) is dropped and counted
    in ``unfinished``.
    """

    def __init__(self) -> None:
        self.unfinished = 0
        self._first: Frame | None = None
        self._end = 0
        self._data = bytearray()

    def push(self, frames: Iterable[Frame]) -> list[Frame]:
        """Return the messages completed by ``frames``, in order."""
        messages: list[Frame] = []
        for frame in frames:
            if self._first is not None and (frame.flags & descriptor.BEGIN or frame.begin != self._end):
                self.unfinished += 1
                self._first = None
            if frame.flags & descriptor.UNFRAGMENTED == descriptor.UNFRAGMENTED:
                messages.append(frame)
            else:
                messages += self._add_fragment(frame)
        return messages

    def _add_fragment(self, frame: Frame) -> list[Frame]:
        if frame.flags & descriptor.BEGIN:
            self._first, self._data = frame._replace(data=memoryview(b"")), bytearray()
        elif self._first is None:
            return []  # the message began before our position
        # Copied now: the writer may clean the fragment before the next poll.
        self._data += frame.data
        self._end = frame.end
        if not frame.flags & descriptor.END:
            return []
        # As in Aeron's BufferBuilder, the message has the flags of its first and its last fragment.
        flags = self._first.flags | frame.flags
        message = self._first._replace(data=memoryview(self._data), end=frame.end, flags=flags)
        self._first = None
        return [message]
