"""Framing of a TCP connection: bytes in as they arrive, complete lines out.

Invariant: the lines depend on the bytes alone, not on how these are divided into reads.

Framings: "lf" (``\\n`` ends a line, ``\\r\\n`` is stripped), "nul" (``\\0`` ends it), "octet" (RFC 6587: the length of
each message precedes it; text without a length ends with a newline), and "auto": the first messages of a connection
show which of these it uses, and the connection keeps it. A number in the text of an LF or NUL connection is text, so
that an application that can write one line cannot hide, delay or merge the lines of others.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name
from penstock.records import bounds, from_numpy, values_of
from penstock.wire.framing.line_framing import (
    DELIMITERS,
    LF,
    LONGEST_SKIPPED,
    NO_LINES,
    NUL,
    PRI,
    PRI_BYTES,
    CountedStream,
    DelimitedStream,
    Lines,
    append_lines,
    match_count,
    may_be_count,
    skip_delimiters,
)
from penstock.wire.plog.commands import PREFIX, Command, parse_command
from penstock.wire.plog.statistics import Statistics

Framing = Literal["lf", "nul", "octet", "auto"]

UNDECIDED_BYTES = 32 << 10
"""Limit: bytes of a connection after which its first newline or NUL decides what ends its messages."""
SETTLE_TIME_S = 0.5
"""Time that a connection may stay undecided while its bytes may be complete messages."""
STALL_TIME_S = 2.0
"""Time if the first message is incomplete: longer than TCP takes to retransmit a lost packet."""
MAX_LENGTH = 10**10
"""Upper bound of all lengths that are recognised."""
_ANY_DELIMITER = re.compile(rb"[\n\0]")
_DELIMITER_BEFORE_PRI = re.compile(rb"[\n\0](?=%b)" % PRI)
_NEWLINES = re.compile(rb"(?:\r?\n)+")
_MAX_DELIMITERS = 16 << 10
"""Limit: counts of zero, or delimiters, that may precede the first message. Each chunk searches them again; a longer
run is text."""
_ZERO_COUNTS = re.compile(rb"(?:0 ){0,%d}" % _MAX_DELIMITERS)
_DELIMITERS_BEFORE_COUNT = re.compile(rb"(?:\r?\n|\0){1,%d}(?=[1-9][0-9]{0,9} %b)" % (_MAX_DELIMITERS, PRI))
_LEADING_DELIMITERS = re.compile(rb"(?:\r?\n|\0){0,%d}" % _MAX_DELIMITERS)
_DELIMITERS_AFTER_FIRST = re.compile(rb"(?:\r?\n|\0){0,2}")
"""Limit: delimiters after the first message of a connection; an endless run of them must not be buffered."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PROXY_V1_START, _PROXY_V2_START = b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"
_PROXY_V1 = re.compile(rb"PROXY (?:TCP[46](?: [0-9A-Fa-f:.]{1,39}){2}(?: [0-9]{1,5}){2}|UNKNOWN[^\r\n\0]{0,92})\r\n")
_PROXY_V1_BYTES, _PROXY_V2_BYTES = 107, 16
_MAX_PROXY_V2_BYTES = 4096
"""Limit: HAProxy's own for a header of version 2 with its additions."""


class LineSplitter:
    """Splitter of one connection's bytes into lines; holds at most one line of ``max_line`` bytes.

    ``max_line`` excludes the end of the line. A longer line is dropped, and the connection continues.
    """

    def __init__(self, max_line: int, framing: Framing = "lf") -> None:
        self._max_line = max_line
        self._framed: DelimitedStream | CountedStream | None = None
        if framing == "octet":
            self._framed = CountedStream(max_line, needs_pri=False)
        elif framing != "auto":
            self._framed = DelimitedStream(max_line, LF if framing == "lf" else NUL)
        self._beginning: bytearray | None = bytearray()
        self._may_be_counted = framing in ("auto", "octet")
        self._undecided = bytearray()
        self._has_delimiter = False  # the undecided bytes contain a delimiter
        self._follows_counted = False  # the only message so far stated its length
        self._skips_first_line = False  # the first line is too long, and its end has not arrived
        self._skipped_rest = 0  # bytes of an overlong first message that have not arrived

    @property
    def unfinished(self) -> int:
        """Bytes of the line whose end has not arrived."""
        return (self._framed.unfinished if self._framed else len(self._undecided)) + len(self._beginning or b"")

    @property
    def is_undecided(self) -> bool:
        """Whether the framing of the connection is still open."""
        return self._framed is None

    @property
    def waits(self) -> bool:
        """Whether the pending bytes may be complete: only more bytes, or a pause, can decide it."""
        if self._framed:
            return self._framed.waits
        return self._has_delimiter or self._counted_first()[1] > 0

    @property
    def patience_s(self) -> float:
        """Seconds until ``settle`` should be called if ``waits`` is true."""
        if self._framed:
            return SETTLE_TIME_S
        end = self._counted_first()[1]
        is_cut = end > len(self._undecided) if end else self._undecided[-1:] not in (LF, NUL)
        return STALL_TIME_S if is_cut else SETTLE_TIME_S

    def feed(self, chunk: bytes | memoryview) -> Lines:
        """Return the lines that ``chunk`` completes; they are copied out of it."""
        if self._beginning is not None:
            self._beginning += chunk
            span = preamble_span(self._beginning, self._may_be_counted)
            return Lines(NO_LINES) if span is None else self._feed_beginning(*span)
        if self._framed:
            return self._framed.feed(chunk)
        if self._skips_first_line:
            return self._skip_to_first_end(bytes(chunk))
        self._undecided += chunk
        empty = append_lines(self._take_empty_lines(), self._take_overlong_first())
        self._has_delimiter = self._has_delimiter or _ANY_DELIMITER.search(self._undecided[-len(chunk) :]) is not None
        framing = self._detect_framing()
        return append_lines(empty, self._decide(framing) if framing else self._drop_overlong())

    def _feed_beginning(self, line_end: int, begin: int) -> Lines:
        """Return the line that the connection begins with, if any, and the lines behind it."""
        beginning, self._beginning = bytes(self._beginning or b""), None
        line = beginning[:line_end].removesuffix(b"\r\n")
        is_overlong = len(line) > self._max_line
        header = Lines(
            pa.array([line] if line and not is_overlong else [], pa.binary()),
            overlong=int(is_overlong),
            skipped_bytes=len(line) if is_overlong else 0,
        )
        return append_lines(header, self.feed(beginning[begin:]))

    def _take_empty_lines(self) -> Lines:
        """Remove newlines, and NULs in front of a count, before the first message: they show no framing."""
        if self._follows_counted:
            return Lines(NO_LINES)
        ends = _DELIMITERS_BEFORE_COUNT.match(self._undecided) or _NEWLINES.match(self._undecided)
        if ends is None:
            return Lines(NO_LINES)
        count = ends[0].count(LF) + ends[0].count(NUL)
        del self._undecided[: ends.end()]
        return Lines(pa.array([b""] * count, pa.binary()))

    def _overlong_first_end(self) -> int:
        """Return where an overlong first message ends by its stated length; 0 if it is not overlong or has a delimiter.

        Before a delimiter, the number may be text: one line that an application wrote must not hide the next lines.
        """
        match = None if self._has_delimiter else self._first_length()
        return match.end(1) + 1 + int(match[1]) if match and int(match[1]) > self._max_line else 0

    def _take_overlong_first(self) -> Lines:
        """Skip an overlong first message that is complete."""
        end = self._overlong_first_end()
        if not 0 < end <= len(self._undecided) or _ANY_DELIMITER.search(self._undecided, 0, end):
            return Lines(NO_LINES)
        skipped = end - self._undecided.index(b" ") - 1
        del self._undecided[:end]
        self._follows_counted = True
        return Lines(NO_LINES, overlong=1, skipped_bytes=skipped)

    def settle(self) -> Lines:
        """Return the lines that are complete because the connection has paused."""
        if self._framed:
            return self._framed.settle()
        begin, end = self._counted_first()
        if 0 < end <= len(self._undecided):
            # One counted message does not decide: it may be a line of text that an application wrote.
            message = bytes(self._undecided[begin:end])
            del self._undecided[: skip_delimiters(DELIMITERS, self._undecided, end)]
            self._follows_counted, self._has_delimiter = True, False
            return Lines(pa.array([message], pa.binary()))
        last = max(self._undecided.rfind(LF), self._undecided.rfind(NUL))
        # A NUL within text without a PRI ends nothing before the text has gone on.
        is_text = self._undecided[:1] != b"<" and self._undecided[last:-1].startswith(NUL)
        if last < 0 or is_text:
            return Lines(NO_LINES)
        lines = self._decide("nul" if self._undecided[last] == 0 else "lf")
        return append_lines(lines, self.settle())

    def finish(self) -> Lines:
        """Return the last lines, including a line without an end and a counted message that was cut short."""
        settled = Lines(NO_LINES) if self._beginning is None else self._feed_beginning(0, 0)
        settled = append_lines(settled, self.settle())
        if self._framed is None and self._undecided:
            settled = append_lines(settled, self._decide(self._default_framing()))
        return append_lines(settled, self._framed.finish()) if self._framed else settled

    def _decide(self, framing: Framing) -> Lines:
        buffer, self._undecided = bytes(self._undecided), bytearray()
        if framing == "octet":
            self._framed = CountedStream(self._max_line, needs_pri=True)
        else:
            self._framed = DelimitedStream(self._max_line, NUL if framing == "nul" else LF, guesses=True)
        return self._framed.feed(buffer)

    def _default_framing(self) -> Framing:
        """Return the framing of a connection that ended before its bytes decided."""
        return "octet" if self._counted_first()[1] else "lf"

    def _counted_first(self) -> tuple[int, int]:
        """Return begin and end of a first message that states its length, even if incomplete; otherwise 0, 0."""
        match = self._first_length()
        if match is None or int(match[1]) > self._max_line:
            return 0, 0
        return match.end(1) + 1, match.end(1) + 1 + int(match[1])

    def _first_length(self) -> re.Match[bytes] | None:
        """Match the length of the first message, at most LONGEST_SKIPPED times ``max_line``."""
        return None if self._follows_counted else match_count(self._undecided, 0, LONGEST_SKIPPED * self._max_line)

    def _detect_framing(self) -> Framing | None:
        """Return the framing that the first bytes prove, or None while they are ambiguous.

        A count is trusted only if a second count, before a PRI, follows directly after the first message: otherwise an
        application that writes the text of one line could swallow the lines of others.
        """
        buffer = self._undecided
        if self._follows_counted:
            del buffer[: skip_delimiters(DELIMITERS, buffer, 0)]
            after = 0
        elif buffer[:1] == b"<":
            return self._detect_delimiter() if self._has_delimiter else None
        else:
            _, after = self._counted_first()
            if not after:
                states_length = self._overlong_first_end() or may_be_count(
                    buffer, skip_delimiters(_LEADING_DELIMITERS, buffer, 0)
                )
                return None if states_length else self._detect_text_delimiter()
            if after > len(buffer):
                return None
            after = skip_delimiters(_DELIMITERS_AFTER_FIRST, buffer, after)
        # Counts of zero prove nothing: text may have them. The count behind them decides, however many they are.
        after = skip_delimiters(_ZERO_COUNTS, buffer, after)
        # The second message may be overlong: its length still proves the framing.
        if match_count(buffer, after, MAX_LENGTH):
            return "octet"
        return None if may_be_count(buffer, after) else "lf"

    def _detect_delimiter(self) -> Framing | None:
        """Return the framing of a connection that begins with a PRI: after the end of a message comes the next PRI.

        A newline inside a message that ends with NUL (a traceback's) is followed by more of the message.
        """
        window = UNDECIDED_BYTES + 1 + PRI_BYTES
        end = _DELIMITER_BEFORE_PRI.search(self._undecided, 0, window)
        if end is None and len(self._undecided) >= window:
            end = _ANY_DELIMITER.search(self._undecided)
        if end is None:
            return None
        return "nul" if end[0] == NUL else "lf"

    def _detect_text_delimiter(self) -> Framing | None:
        """Return the framing of a connection of text without a PRI: LF if there is one, in the end NUL."""
        if LF in self._undecided:
            return "lf"
        return "nul" if self._has_delimiter and len(self._undecided) >= UNDECIDED_BYTES else None

    def _drop_overlong(self) -> Lines:
        size = len(self._undecided)
        # Limit: detection may buffer a full line and its end, and never less than the bytes that decide.
        if size <= max(self._max_line + 1, UNDECIDED_BYTES + 1 + PRI_BYTES) or self._counted_first()[1]:
            return Lines(NO_LINES)
        if end := self._overlong_first_end():
            self._skipped_rest = end - size
        self._undecided.clear()
        self._skips_first_line = True
        return Lines(NO_LINES, overlong=1, skipped_bytes=size)

    def _skip_to_first_end(self, chunk: bytes) -> Lines:
        """Skip the rest of an overlong first line; its end shows what ends the other lines.

        If it stated its length, and has no end before that, the messages of the connection may be counted.
        """
        end = _ANY_DELIMITER.search(chunk, 0, self._skipped_rest or len(chunk))
        if end is None and 0 < self._skipped_rest <= len(chunk):
            rest, self._skipped_rest, self._skips_first_line = self._skipped_rest, 0, False
            self._follows_counted = True
            following = self.feed(chunk[rest:]) if rest < len(chunk) else Lines(NO_LINES)
            return append_lines(Lines(NO_LINES, skipped_bytes=rest), following)
        if end is None:
            self._skipped_rest = max(self._skipped_rest - len(chunk), 0)
            return Lines(NO_LINES, skipped_bytes=len(chunk))
        self._undecided += chunk[end.end() :]
        lines = self._decide("nul" if end[0] == NUL else "lf")
        return append_lines(Lines(NO_LINES, skipped_bytes=end.start()), lines)


def preamble_span(beginning: bytes | bytearray, may_be_counted: bool = True) -> tuple[int, int] | None:
    """Return the end of a proxy's header and the offset of the first message, or None if more bytes are needed.

    Lines of text keep their byte order mark: it is removed only if messages ``may_be_counted``.

    Senders and proxies put bytes in front of the first message that do not show how messages are framed: the header of
    the PROXY protocol, which is kept as a line because it has the sender's address, and .NET's byte order mark in front
    of a count. If they decided, all messages of the connection would become one.
    """
    size = len(beginning)
    if may_be_counted and beginning.startswith(_BYTE_ORDER_MARK):
        is_counted = beginning[len(_BYTE_ORDER_MARK) : len(_BYTE_ORDER_MARK) + 1].isdigit()
        return None if size == len(_BYTE_ORDER_MARK) else (0, len(_BYTE_ORDER_MARK) if is_counted else 0)
    if beginning.startswith(_PROXY_V2_START):
        if size < _PROXY_V2_BYTES:
            return None
        end = _PROXY_V2_BYTES + int.from_bytes(beginning[_PROXY_V2_BYTES - 2 : _PROXY_V2_BYTES], "big")
        if end > _MAX_PROXY_V2_BYTES:
            return 0, 0
        return (end, end) if size >= end else None
    if beginning.startswith(_PROXY_V1_START):
        if match := _PROXY_V1.match(beginning):
            return match.end(), match.end()
        is_text = size >= _PROXY_V1_BYTES or LF in beginning or NUL in beginning
        return (0, 0) if is_text else None
    starts = (_PROXY_V1_START, _PROXY_V2_START, *([_BYTE_ORDER_MARK] if may_be_counted else ()))
    return None if any(start.startswith(beginning) for start in starts) else (0, 0)


def separate_commands(
    batch: Lines, statistics: Statistics, reserves: bool = True, keeps_empty: bool = False
) -> tuple[pa.Array[Any], list[Command], Counts]:
    r"""Separate a batch of lines; return the messages, the commands, and the counts of both and of dropped lines.

    With ``reserves``, lines that begin with ``\0`` are reserved: lines such as ``\0\0STAT`` become commands, with the
    index of their line; other reserved lines are counted as commands and dropped. ``statistics`` is updated as for
    datagrams. With ``keeps_empty``, empty lines are messages.
    """
    lines, joined, overlong = batch.lines, batch.joined, batch.overlong
    filled = np.diff(bounds(lines)) > 0
    empty = 0 if keeps_empty else len(lines) - int(filled.sum())
    if empty:
        lines = lines.filter(from_numpy(filled))
    reserved = pc.starts_with(lines, "\0")
    count = reserved.true_count if reserves else 0
    counts = Counts({Name.LINES: len(lines) + empty + joined + overlong, Name.LINE_COMMAND: count})
    counts.absorb({Name.LINE_EMPTY: empty, Name.LINE_JOINED: joined, Name.LINE_OVERLONG: overlong})
    counts.absorb({Name.SKIPPED_BYTES: batch.skipped_bytes})
    counts.absorb(dict.fromkeys((Name.LINE_MESSAGE, Name.SEEN, Name.ACCEPTED), len(lines) - count))
    for reason, number in batch.refused.items():
        counts.absorb(dict.fromkeys((Name.LINES, Name.LINE_MESSAGE, Name.SEEN, f"{Name.REFUSED}{reason}"), number))
    # Fast path: almost no batch has commands, so no line becomes a Python object.
    if not count:
        return lines, [], counts
    indices = pc.indices_nonzero(reserved)
    packets = list(zip(values_of(indices), values_of(lines.take(indices)), strict=True))
    commands = [command for index, line in packets if (command := parse_command(index, line)) is not None]
    command_count = sum(line.startswith(PREFIX) for _, line in packets)
    statistics.v0_commands += len(commands)
    statistics.unknown_command += command_count - len(commands)
    statistics.v0_invalid_type += count - command_count
    return lines.filter(pc.invert(reserved)), commands, counts
