"""Connections whose sender compresses the whole stream: refused by name, because their bytes are not lines.

rsyslog does so with ``compression.mode="stream:always"``, some GELF clients with zlib. Split at newlines or NULs,
these bytes would become unreadable messages.
"""

from __future__ import annotations

import codecs
import zlib

from penstock.wire.framing.line_framing import NO_LINES, Lines, append_lines
from penstock.wire.framing.lines import Framing, LineSplitter

COMPRESSED = "compressed"
MAGIC = (b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b")
"""First bytes of zlib and gzip streams that no text begins with."""
TEXT_MAGIC = b"\x78\x5e"
"""First bytes of zlib streams of levels 2 to 5, and of a text that begins with ``x^``."""
JUDGED_BYTES = 32
"""Bytes after which a stream that begins with TEXT_MAGIC is judged: 32 compressed bytes are hardly valid UTF-8."""


class UncompressedSplitter(LineSplitter):
    """Line splitter that refuses a connection that begins like zlib or gzip.

    A refused connection counts one refused message, and all of its bytes as skipped.
    """

    def __init__(self, max_line: int, framing: Framing = "lf") -> None:
        super().__init__(max_line, framing)
        self._head: bytes | None = b""
        self._is_refused = False

    @property
    def unfinished(self) -> int:
        """Bytes of the line whose end has not arrived."""
        return len(self._head) if self._head else super().unfinished

    @property
    def waits(self) -> bool:
        """Whether a pause would complete the pending bytes."""
        return bool(self._head) or super().waits

    def feed(self, chunk: bytes | memoryview) -> Lines:
        """Return the lines that ``chunk`` completes."""
        if self._is_refused:
            return Lines(NO_LINES, skipped_bytes=len(chunk))
        if self._head is None:
            return super().feed(chunk)
        # Invariant: the first bytes decide, however they are divided into reads.
        self._head += bytes(chunk)
        is_compressed = self._judge_head(self._head)
        if is_compressed is None:
            return Lines(NO_LINES)
        head, self._head = self._head, None
        if is_compressed:
            self._is_refused = True
            return Lines(NO_LINES, refused={COMPRESSED: 1}, skipped_bytes=len(head))
        return super().feed(head)

    def settle(self) -> Lines:
        """Return the lines that are complete because the connection has paused."""
        if not self._head:
            return super().settle()
        # A compressed stream does not pause within its first bytes: they are text.
        head, self._head = self._head, None
        return super().feed(head)

    def finish(self) -> Lines:
        """Return the remaining lines at the end of the connection."""
        lines = Lines(NO_LINES)
        if self._head:
            head, self._head = self._head, None
            lines = super().feed(head)
        return append_lines(lines, super().finish())

    def _judge_head(self, head: bytes) -> bool | None:
        """Return whether a connection that begins with ``head`` is compressed; None if more bytes are needed."""
        if len(head) < len(TEXT_MAGIC):
            return None
        if not head.startswith(TEXT_MAGIC):
            return head[:2] in MAGIC
        if len(head) < JUDGED_BYTES:
            return None
        return _inflates(head[:JUDGED_BYTES]) and not _is_text(head[:JUDGED_BYTES])


def _inflates(head: bytes) -> bool:
    try:
        zlib.decompressobj().decompress(head, 1 << 16)
    except zlib.error:
        return False
    return True


def _is_text(head: bytes) -> bool:
    """Return whether ``head`` may begin a text in UTF-8; its last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
