"""Putting messages together that were cut into several frames."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.mapped import Frame


class FragmentAssembler:
    """Puts messages together that were cut into several frames; whole ones pass through without a copy.

    A message whose frames do not all come, one behind the other (its writer died, or the reader was
    overtaken), is dropped and counted in ``unfinished``.
    """

    def __init__(self) -> None:
        self.unfinished = 0
        self._first: Frame | None = None
        self._end = 0
        self._data = bytearray()

    def push(self, frames: Iterable[Frame]) -> list[Frame]:
        """The messages that are complete with ``frames``, in order."""
        messages: list[Frame] = []
        for frame in frames:
            if self._first is not None and (frame.flags & d.BEGIN or frame.begin != self._end):
                self.unfinished += 1
                self._first = None
            if frame.flags & d.UNFRAGMENTED == d.UNFRAGMENTED:
                messages.append(frame)
            else:
                messages += self._piece(frame)
        return messages

    def _piece(self, frame: Frame) -> list[Frame]:
        """Pieces are copied at once: by the next poll the writer may have cleaned them."""
        if frame.flags & d.BEGIN:
            self._first, self._data = frame._replace(data=memoryview(b"")), bytearray()
        elif self._first is None:
            return []  # the rest of a message whose beginning was before our position
        self._data += frame.data
        self._end = frame.end
        if not frame.flags & d.END:
            return []
        whole = self._first._replace(data=memoryview(self._data), end=frame.end, flags=d.UNFRAGMENTED)
        self._first = None
        return [whole]
