"""A single log file that is read as it grows, through renames and cuts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from crc32c import crc32c

from penstock.client.tail.file_content import (
    MAX_LINE_BYTES,
    SIGNATURE_BYTES,
    Encoding,
    Lines,
    split_lines,
)
from penstock.client.tail.positions import COPIED, FileIdentity, FilePosition

HEAD_BYTES = 256
"""Bytes at its beginning by which a file is recognised."""
WINDOW_BYTES = 4096
"""Bytes before the offset by which a file is recognised. The head alone is the same in all files with a long header."""
PIECE_WAIT_S = 5.0
"""Time for which lines wait for the last piece of a message. A runtime writes the rest of a stream that ends without a
newline as a piece, and no further one follows."""
PROBE_BYTES = 16
"""Bytes read to see whether a hole begins."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [begin, end) of a file: whole lines, or a part of a line that is too long for one message."""

    begin: int
    end: int
    content: bytes
    encoding: Encoding

    @property
    def checksum(self) -> int:
        return crc32c(self.content)

    def lines(self) -> Lines:
        """Return the lines as UTF-8, without the file's byte order mark."""
        mark_bytes = 0 if self.begin else self.encoding.mark_bytes
        return split_lines(self.encoding.to_utf8(self.content[mark_bytes:]))


class FollowedFile:
    """An open file and its ``position``, taken from ``positions`` if there. Raises OSError if it cannot be opened.

    ``grown_at``: the monotonic time of the last change of its size. ``is_own``: the file is known not to be a copy of
    another one. ``is_held``: it is not read before that is known. ``original``: a file that was read before this one
    appeared, and whose copy this one's name says it is; ``is_copy``: so far its content says the same.
    ``complete_bytes`` returns how many bytes of whole lines may be read together, 0 if their messages need more lines.
    Owned by the tailer's thread.
    """

    def __init__(
        self,
        path: str,
        now: float,
        positions: Mapping[FileIdentity, FilePosition],
        complete_bytes: Callable[[bytes], int] = len,
    ) -> None:
        self._complete_bytes = complete_bytes
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        identity = status.st_dev, status.st_ino
        self.position = positions.get(identity) or FilePosition(path, *identity)
        self.grown_at, self.is_own, self.is_held = now, False, False
        self.original: FileIdentity | None = None
        self.is_copy = False
        self._size = status.st_size
        # Reading starts only at a change of size or time: an idle file costs one system call per poll.
        self._exhausted_state: tuple[int, int] | None = None
        self._compared_state: tuple[int, int] | None = None
        self._waiting_lines: tuple[int, float] | None = None  # offset and age of lines that wait for a piece

    @property
    def is_deleted(self) -> bool:
        """Whether the file no longer has a name."""
        return os.fstat(self._descriptor).st_nlink == 0

    @property
    def unread_bytes(self) -> int:
        return max(os.fstat(self._descriptor).st_size - self.position.offset, 0)

    def beginning(self) -> bytes:
        """Return the first bytes, which say whether the file is compressed."""
        return self.bytes_at(0, SIGNATURE_BYTES)

    def skip_copied(self, original: FollowedFile) -> bool:
        """Leave out the content of a copy; return False if ``original`` has not been read so far yet."""
        size = os.fstat(self._descriptor).st_size
        if size > original.position.offset:
            return False
        self.advance(size)
        self.position.renamed = COPIED
        return True

    def skip_to_end(self) -> None:
        """Leave out the lines that the file has now, except for a line that has only begun."""
        size, encoding = os.fstat(self._descriptor).st_size, self._encoding()
        begin = max(size - MAX_LINE_BYTES, 0) & ~1
        lines_end = encoding.whole_lines(self.bytes_at(begin, size))
        self.advance(begin + lines_end if lines_end else begin)

    def detect_cut(self, now: float) -> FilePosition | None:
        """If the file was cut or written again, return what had been read of it, and start at its beginning."""
        status = os.fstat(self._descriptor)
        state = status.st_size, status.st_mtime_ns
        if state == self._compared_state:
            return None
        if status.st_size != self._size:
            self._size, self.grown_at = status.st_size, now
        position = self.position
        if not position.offset or self.begins_with(position):
            self._compared_state = state
            return None
        before = replace(position)
        position.restart()
        self._exhausted_state, self.grown_at, self.is_own = None, now, False
        return before

    def begins_with(self, position: FilePosition) -> bool:
        """Whether this file begins with the content that was read up to ``position``, by its fingerprint."""
        return (
            os.fstat(self._descriptor).st_size >= position.offset
            and crc32c(self.bytes_at(0, position.head_length)) == position.head
            and crc32c(self.bytes_at(position.offset - position.window_length, position.offset)) == position.window
        )

    def is_beginning_of(self, original: FollowedFile) -> bool:
        """Whether this file seems to be what ``original`` begins with, as of a copy that is being made.

        Only its beginning and its end are compared.
        """
        size = os.fstat(self._descriptor).st_size
        window = max(size - WINDOW_BYTES, 0)
        spans = ((0, min(size, HEAD_BYTES)), (window, size))
        return all(self.bytes_at(begin, end) == original.bytes_at(begin, end) for begin, end in spans)

    def equals_beginning_of(self, original: FollowedFile) -> bool:
        """Whether each byte of this file is what ``original`` begins with."""
        size = os.fstat(self._descriptor).st_size
        pieces = ((begin, min(begin + MAX_LINE_BYTES, size)) for begin in range(0, size, MAX_LINE_BYTES))
        return all(self.bytes_at(begin, end) == original.bytes_at(begin, end) for begin, end in pieces)

    def next(self, now: float, *, is_last: bool = False) -> Span | None:
        """Return the next lines, one read at most. ``is_last``: also a line without an end, as no more will come."""
        status = os.fstat(self._descriptor)
        state = status.st_size, status.st_mtime_ns
        is_over = is_last or self._has_waited(now)
        if state == self._exhausted_state and (not is_over or status.st_size == self.position.offset):
            return None
        encoding = self._encoding()
        begin = self._after_nuls(self.position.offset, encoding)
        content, window = self._read(begin, encoding.read_bytes)
        if begin == self.position.offset and crc32c(window) != self.position.window:
            self._compared_state = None  # cut since ``detect_cut``, which compares again
            return None
        size = encoding.whole_lines(content)
        if size:
            complete = self._complete_bytes(content[:size])
            if complete == size:
                self._waiting_lines = None
            elif self._waiting_lines is None or self._waiting_lines[0] != begin + complete:
                self._waiting_lines = begin + complete, now
            if not complete and (is_last or self._has_waited(now) or len(content) == encoding.read_bytes):
                # Limit: a message is cut after a piece if its pieces do not fit into one read, or do not come in time.
                self._waiting_lines, complete = None, size
            size = complete
            if not size:
                self._exhausted_state = state
                return None
        if not size and not encoding.is_padding(content):
            if len(content) == encoding.read_bytes:
                size = encoding.split_point(content)
            elif is_last and (begin or len(content) > encoding.mark_bytes):
                size = len(content)
        if not size:
            self._exhausted_state = state
            return None
        self.grown_at = now
        return Span(begin, begin + size, content[:size], encoding)

    def _has_waited(self, now: float) -> bool:
        """Whether lines have waited for a piece for ``PIECE_WAIT_S``."""
        return self._waiting_lines is not None and now - self._waiting_lines[1] >= PIECE_WAIT_S

    def span(self, begin: int, end: int) -> Span:
        """Return the span of an append that is made again."""
        return Span(begin, end, self.bytes_at(begin, end), self._encoding())

    def advance(self, offset: int) -> None:
        """Set the position: everything before ``offset`` is done."""
        position = self.position
        position.offset = offset
        if position.head_length < min(offset, HEAD_BYTES):
            position.head_length = min(offset, HEAD_BYTES)
            position.head = crc32c(self.bytes_at(0, position.head_length))
        position.window_length = min(offset, WINDOW_BYTES)
        position.window = crc32c(self.bytes_at(offset - position.window_length, offset))

    def bytes_at(self, begin: int, end: int) -> bytes:
        """Return bytes [begin, end), as many of them as the file has."""
        return os.pread(self._descriptor, end - begin, begin)

    def count_lines(self, begin: int) -> int:
        """Return the number of lines behind ``begin``, with a last one that has no end."""
        count, last = 0, b""
        while piece := self.bytes_at(begin, begin + MAX_LINE_BYTES):
            count, last, begin = count + piece.count(b"\n"), piece[-1:], begin + len(piece)
        return count + (last not in (b"", b"\n"))

    def close(self) -> None:
        os.close(self._descriptor)

    def _encoding(self) -> Encoding:
        return Encoding.detect(self.beginning())

    def _read(self, begin: int, length: int) -> tuple[bytes, bytes]:
        """Return the bytes at ``begin`` and the window before them.

        One system call reads both: what is compared and what is appended is of the same moment.
        """
        window_length = min(self.position.window_length, begin)
        content = self.bytes_at(begin - window_length, begin + length)
        return content[window_length:], content[:window_length]

    def _after_nuls(self, offset: int, encoding: Encoding) -> int:
        """Return the offset behind a hole at ``offset``; ``offset`` if there is none, or nothing behind it.

        NULs at the end of a file stay unread: a writer may have reserved the space that it writes next.
        """
        end = offset
        while encoding.is_padding(self.bytes_at(end, end + PROBE_BYTES)):
            content = self.bytes_at(end, end + MAX_LINE_BYTES)
            if not encoding.is_padding(content):
                return end + encoding.padding_bytes(content)
            try:  # a hole of a sparse file is not read
                end = max(os.lseek(self._descriptor, end, os.SEEK_DATA), end + len(content))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return offset
        probe = self.bytes_at(end, end + PROBE_BYTES)
        return end + encoding.padding_bytes(probe) if probe else offset
