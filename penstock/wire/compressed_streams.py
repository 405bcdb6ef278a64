"""Connections whose sender compresses the whole stream: refused by name, because their bytes are not lines.

rsyslog does so with ``compression.mode="stream:always"``, some GELF clients with zlib. Split at newlines or NULs,
these bytes would become unreadable messages.
"""

from __future__ import annotations

from penstock.wire.line_framing import NO_LINES, Lines
from penstock.wire.lines import Framing, LineSplitter

COMPRESSED = "compressed"
MAGIC = (b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b")
"""First bytes of zlib and gzip streams, without zlib's ``x^``: a line of text may begin with it."""


class UncompressedSplitter(LineSplitter):
    """Line splitter that refuses a connection that begins like zlib or gzip.

    A refused connection counts one refused message, and all of its bytes as skipped.
    """

    def __init__(self, max_line: int, framing: Framing = "lf") -> None:
        super().__init__(max_line, framing)
        self._head: bytes | None = b""
        self._is_compressed = False

    @property
    def unfinished(self) -> int:
        """Bytes of the line whose end has not arrived."""
        return len(self._head) if self._head else super().unfinished

    def feed(self, chunk: bytes | memoryview) -> Lines:
        """Return the lines that ``chunk`` completes."""
        if self._is_compressed:
            return Lines(NO_LINES, skipped_bytes=len(chunk))
        if self._head is None:
            return super().feed(chunk)
        # Invariant: the first two bytes decide, however they are divided into reads.
        chunk = self._head + bytes(chunk)
        if len(chunk) < 2:
            self._head = chunk
            return Lines(NO_LINES)
        self._head = None
        if chunk[:2] in MAGIC:
            self._is_compressed = True
            return Lines(NO_LINES, refused={COMPRESSED: 1}, skipped_bytes=len(chunk))
        return super().feed(chunk)

    def finish(self) -> Lines:
        """Return the remaining lines at the end of the connection."""
        if self._head:
            head, self._head = self._head, None
            super().feed(head)
        return super().finish()
