"""Connections whose sender compresses the whole stream: refused by name, as their bytes are no lines.

rsyslog does so with ``compression.mode="stream:always"``, some GELF clients with zlib. Cut at newlines or NULs, such
bytes would become messages that nobody can read.
"""

from __future__ import annotations

from penstock.wire.lines import NO_LINES, Framing, Lines, LineSplitter

COMPRESSED = "compressed"
MAGIC = (b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b")
"""What zlib and gzip begin with. zlib's ``x^`` is left out: a line of text may begin so."""


class UncompressedSplitter(LineSplitter):
    """Splits the bytes of one connection into lines, unless it begins as zlib or gzip does.

    Then it counts one refused message for the connection, and all of its bytes as skipped.
    """

    def __init__(self, max_line: int, framing: Framing = "lf") -> None:
        super().__init__(max_line, framing)
        self._head: bytes | None = b""
        self._is_compressed = False

    @property
    def unfinished(self) -> int:
        """Bytes of a line whose end has not come."""
        return len(self._head) if self._head else super().unfinished

    def feed(self, data: bytes | memoryview) -> Lines:
        """Return the lines that ``data`` ends."""
        if self._is_compressed:
            return Lines(NO_LINES, skipped_bytes=len(data))
        if self._head is None:
            return super().feed(data)
        # Invariant: the first two bytes decide, however they are divided into reads.
        data = self._head + bytes(data)
        if len(data) < 2:
            self._head = data
            return Lines(NO_LINES)
        self._head = None
        if data[:2] in MAGIC:
            self._is_compressed = True
            return Lines(NO_LINES, refused={COMPRESSED: 1}, skipped_bytes=len(data))
        return super().feed(data)

    def finish(self) -> Lines:
        """Return what the connection held when it ended."""
        if self._head:
            head, self._head = self._head, None
            super().feed(head)
        return super().finish()
