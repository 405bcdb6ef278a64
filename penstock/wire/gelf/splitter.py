"""Framing of GELF over TCP: the first message of a connection shows whether NUL or LF ends its messages.

GELF ends messages with NUL, and its JSON may have line breaks between values. Some senders end them with LF instead,
or with both, such as Log4j's GelfLayout (LOG4J2-2892), or a shell that pipes to ``nc``.

Invariant: the messages depend on the bytes alone, not on how these are divided into reads.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow.compute as pc

from penstock.wire.datagrams import spans
from penstock.wire.framing.compressed_streams import UncompressedSplitter
from penstock.wire.framing.line_framing import LF, NO_LINES, NUL, DelimitedStream, Lines
from penstock.wire.framing.lines import SETTLE_TIME_S, Framing
from penstock.wire.gelf.unpacking import is_compressed
from penstock.wire.json_text import is_json
from penstock.wire.syslog.octets import Octets

MAX_BLANKS = 64
"""Limit: blanks between the first message and the byte that decides; an endless run of them must not be buffered."""
_ANY_DELIMITER = re.compile(rb"[\n\0]")
_BLANKS = re.compile(rb"[ \t\r\n]{0,%d}" % MAX_BLANKS)
_NUL_OR_NEXT_LINE = re.compile(rb"\0|\n(?=\{)")


class GelfSplitter(UncompressedSplitter):
    """Splitter of one GELF connection.

    The first end decides, except a line break within or directly after the first JSON object: a NUL may still follow.
    """

    def __init__(self, max_line: int, framing: Framing = "auto") -> None:
        super().__init__(max_line, framing)
        self._first_end = -1  # of the undecided bytes
        self._is_line_complete = False  # the first line is a JSON document
        self._searched = 0  # undecided bytes in which no end of a message was found

    @property
    def waits(self) -> bool:
        """Whether a pause would complete the pending bytes."""
        return self.is_undecided and self._is_line_complete

    @property
    def patience_s(self) -> float:
        """Seconds until ``settle`` should be called if ``waits`` is true."""
        return SETTLE_TIME_S

    def feed(self, chunk: bytes | memoryview) -> Lines:
        """Return the messages that ``chunk`` completes."""
        return _without_leading_newline(super().feed(chunk))

    def finish(self) -> Lines:
        """Return the remaining messages at the end of the connection."""
        return _without_leading_newline(super().finish())

    def settle(self) -> Lines:
        """Return the first line if it is complete: a sender that ends messages with NUL sends it with the message."""
        return self._decide("lf") if self.waits else Lines(NO_LINES)

    def _judge_head(self, head: bytes) -> bool | None:
        return is_compressed(head) if len(head) > 1 else None

    def _first_length(self) -> None:
        """Return None: GELF states no lengths."""

    def _detect_framing(self) -> Framing | None:
        buffer = self._undecided
        if not self._has_delimiter or not buffer:
            return None
        if self._first_end < 0:
            end = _ANY_DELIMITER.search(buffer)
            if end is None:
                return None
            self._first_end = self._searched = end.start()
            self._is_line_complete = end[0] == LF and buffer[:1] == b"{" and is_json(bytes(buffer[: end.start()]))
        if buffer[self._first_end] == NUL[0]:
            return "nul"
        if self._is_line_complete:
            blanks = _BLANKS.match(buffer, self._first_end)
            after = blanks.end() if blanks else self._first_end
            if after == len(buffer) and after - self._first_end < MAX_BLANKS:
                return None
            return "nul" if buffer[after : after + 1] == NUL else "lf"
        if buffer[:1] != b"{":
            return "lf"
        # Limit: each byte is searched once, so that a document in many small reads costs linear time.
        end = _NUL_OR_NEXT_LINE.search(buffer, self._searched)
        self._searched = len(buffer) - 1
        return None if end is None else "nul" if end[0] == NUL else "lf"

    def _default_framing(self) -> Framing:
        return "nul"

    def _decide(self, framing: Framing) -> Lines:
        buffer, self._undecided = bytes(self._undecided), bytearray()
        self._framed = DelimitedStream(self._max_line, NUL if framing == "nul" else LF)
        return self._framed.feed(buffer)

    def _drop_overlong(self) -> Lines:
        # A document in one line: the byte behind its line break decides, or a pause, also if it is too long.
        if self._is_line_complete:
            return Lines(NO_LINES)
        # A document of several lines that is too long: only NUL can end it.
        if self._has_delimiter and len(self._undecided) > self._max_line + 1:
            return self._decide("nul")
        return super()._drop_overlong()


def _without_leading_newline(lines: Lines) -> Lines:
    """Remove the newline that a sender writes after the NUL of the previous message."""
    has_newline = pc.starts_with(lines.lines, "\n")
    if not has_newline.true_count:
        return lines
    octets = Octets(lines.lines)
    starts = octets.starts + has_newline.to_numpy(zero_copy_only=False)
    return replace(lines, lines=spans(octets.data, starts, octets.stops))
