"""One log file that is read as it grows, whatever it is called meanwhile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from penstock.client.tail.positions import Place
from penstock.wire.lines import LineSplitter

READ_SIZE = 1 << 20
"""Bytes read, and appended, at once; a line that is longer becomes several messages."""
HEAD_SIZE = 256
"""Bytes at its beginning by which a file is known again."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole lines that stand at [begin, end) of a file."""

    begin: int
    end: int
    data: bytes

    def lines(self) -> pa.Array[Any]:
        """Without their ends, type binary."""
        splitter = LineSplitter(READ_SIZE)
        return pa.concat_arrays([splitter.feed(self.data).lines, splitter.finish().lines])


class FollowedFile:
    """An open file and its ``place``. Raises OSError where it cannot be opened.

    ``heard``: the monotonic time at which it was found longer last.
    """

    def __init__(self, path: str, now: float, place: Place | None = None) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        known = place is not None and place.identity == (status.st_dev, status.st_ino)
        self.place = place if place is not None and known else Place(path, status.st_dev, status.st_ino)
        self.place.path, self.heard = path, now
        self.truncations = 0

    def skip_to_end(self) -> None:
        """Leave out what is there already, but for a line that has only begun."""
        size = os.fstat(self._descriptor).st_size
        tail = self.bytes_at(max(size - READ_SIZE, 0), size)
        self.moved_to(size - len(tail) + tail.rfind(b"\n") + 1)

    def next(self, now: float, is_last: bool = False) -> Stretch | None:
        """The lines that have come, READ_SIZE bytes at most; ``is_last``: also one without an end."""
        self._notice_truncation()
        begin = self.place.offset
        data = self.bytes_at(begin, begin + READ_SIZE)
        size = data.rfind(b"\n") + 1
        if not size and (is_last or len(data) == READ_SIZE):
            size = len(data)
        if not size:
            return None
        self.heard = now
        return Stretch(begin, begin + size, data[:size])

    def moved_to(self, offset: int) -> None:
        """Everything before ``offset`` is done."""
        place = self.place
        place.offset = offset
        if place.head_length < min(offset, HEAD_SIZE):
            place.head_length = min(offset, HEAD_SIZE)
            place.head = crc32c(self.bytes_at(0, place.head_length))

    def bytes_at(self, begin: int, end: int) -> bytes:
        """Bytes [begin, end), as far as there are any."""
        return os.pread(self._descriptor, end - begin, begin)

    def close(self) -> None:
        os.close(self._descriptor)

    def _notice_truncation(self) -> None:
        """Begin anew where the file was cut and written again (copytruncate), also if it is as long again already."""
        place = self.place
        same = os.fstat(self._descriptor).st_size >= place.offset
        if same and place.head_length:
            same = crc32c(self.bytes_at(0, place.head_length)) == place.head
        if not same:
            self.truncations += 1
            place.offset = place.head_length = place.head = 0
