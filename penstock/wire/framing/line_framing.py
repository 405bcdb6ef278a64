"""Framing of one connection whose framing is decided: delimited lines, and messages that state their length.

Invariant: the lines depend on the bytes alone, not on how these are divided into reads. Each stream holds at most one
unfinished line, of at most ``max_line`` bytes and its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.wire.datagrams import Ints, spans

LONGEST_SKIPPED = 16
"""Limit: an overlong message is skipped whole if its length is at most this multiple of ``max_line``."""
_CONTEXT_BYTES = 24
"""Limit: pending bytes that a search repeats with each chunk; a count, its PRI and a byte before them fit."""
LF, NUL = b"\n", b"\0"
_NEWLINE, _RETURN = 10, 13
PRI = rb"<[0-9]{1,3}>"
# Workaround: rsyslog's ZipLevel compresses single messages; their length is read, and they are refused later.
_BEGINNING = rb"%b|zx[\x01\x5e\x9c\xda]" % PRI
PRI_BYTES = 5
_OTHER_END = {LF: re.compile(rb"\0(?=%b)" % PRI), NUL: re.compile(rb"\n(?=%b)" % PRI)}
_OTHER_BYTE = {LF: NUL, NUL: LF}
_STOP = {
    (LF, False): re.compile(rb"\n"),
    (NUL, False): re.compile(rb"\0"),
    (LF, True): re.compile(rb"\n|\0(?=%b)" % PRI),
    (NUL, True): re.compile(rb"\0|\n(?=%b)" % PRI),
}
# Workaround: some senders write an end after a counted message, and a count of zero for an empty one.
# Limit: for each zero of a run the next 15 are read, so that 16 zeros decide without the bytes behind them.
_ZEROS = rb"(?:0 ){0,15}"
_MANY_ZEROS = rb"(?:0 ){16}"
_DELIMITERS_AND_COUNT = re.compile(rb"[\r\n\0]*(0|[1-9][0-9]{0,9}) (%b)?" % _BEGINNING)
DELIMITERS = re.compile(rb"[\r\n\0]*")
_COUNT = re.compile(rb"%b([1-9][0-9]{0,9}) (%b)" % (_ZEROS, _BEGINNING))
_ZERO_COUNT = re.compile(rb"%b|%b[1-9][0-9]{0,9} (?:%b)" % (_MANY_ZEROS, _ZEROS, _BEGINNING))
_BARE_ZERO_COUNT = re.compile(rb"%b|%b[1-9][0-9]{0,9} " % (_MANY_ZEROS, _ZEROS))
_PARTIAL_COUNT = re.compile(rb"%b(?:0|\r|([1-9][0-9]{0,9})(?: (?:<[0-9]{0,3}|zx?)?)?)?\Z" % _ZEROS)
_TEXT_STOP = re.compile(rb"\n|(?<![0-9])([1-9][0-9]{0,9}) (%b)" % _BEGINNING)


@dataclass(frozen=True, slots=True)
class Lines:
    """A batch of lines (type binary, without their ends), and counts of the lines that are not in it.

    ``overlong``: dropped for their length, with ``skipped_bytes`` bytes. ``joined``: part of a message in ``lines``
    that another line began. ``refused``: further lines that cannot become messages, by reason.
    """

    lines: pa.Array[Any]
    overlong: int = 0
    joined: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    skipped_bytes: int = 0


NO_LINES = pa.array([], pa.binary())


class DelimitedStream:
    """Lines that end with ``delimiter``, LF or NUL.

    ``guesses``: the delimiter was derived from the first messages. The other delimiter then ends a line too if a PRI
    follows, so that a wrong guess, or a sender that provokes one, merges no lines.
    """

    def __init__(self, max_line: int, delimiter: bytes, guesses: bool = False) -> None:
        self._max_line, self._delimiter, self._guesses = max_line, delimiter, guesses
        self._stop = _STOP[delimiter, guesses]
        self._pending = bytearray()
        self._is_skipping = False  # the pending bytes are the tail of an overlong line

    @property
    def unfinished(self) -> int:
        return 0 if self._is_skipping else len(self._pending)

    @property
    def waits(self) -> bool:
        return self._guesses and not self._is_skipping and self._pending[-1:] == _OTHER_BYTE[self._delimiter]

    def feed(self, chunk: bytes | memoryview) -> Lines:
        # Limit: a line that arrives in many pieces is searched once, not once per piece: the work stays linear.
        if self._pending and not _has_stop(self._stop, self._pending, chunk):
            self._pending += chunk
            return self._drop_overlong()
        buffer = b"".join((self._pending, chunk)) if self._pending else chunk
        octets = np.frombuffer(buffer, np.uint8)
        stops = self._stops(buffer, octets)
        lines, overlong, skipped = self._cut(octets, stops)
        self._pending = bytearray(memoryview(buffer)[int(stops[-1]) + 1 if len(stops) else 0 :])
        return append_lines(Lines(lines, overlong, skipped_bytes=skipped), self._drop_overlong())

    def settle(self) -> Lines:
        if not self.waits:
            return Lines(NO_LINES)
        line = bytes(self._pending[:-1]).removesuffix(b"\r" if self._delimiter == NUL else b"")
        self._pending.clear()
        if len(line) > self._max_line:
            return Lines(NO_LINES, 1, skipped_bytes=len(line))
        return Lines(pa.array([line], pa.binary()))

    def finish(self) -> Lines:
        settled = self.settle()
        line, is_rest = bytes(self._pending), self._is_skipping
        self._pending.clear()
        self._is_skipping = False
        if is_rest or len(line) > self._max_line:
            return replace(settled, overlong=settled.overlong + (not is_rest), skipped_bytes=len(line))
        return append_lines(settled, Lines(pa.array([line], pa.binary()) if line else NO_LINES))

    def _stops(self, buffer: bytes | memoryview, octets: Any) -> Ints:
        stops = np.flatnonzero(octets == self._delimiter[0])
        if self._guesses:
            other_ends = [match.start() for match in _OTHER_END[self._delimiter].finditer(buffer)]
            stops = np.union1d(stops, np.array(other_ends, np.int64)) if other_ends else stops
        return stops

    def _cut(self, octets: Any, stops: Ints) -> tuple[pa.Array[Any], int, int]:
        """Return the lines that end at ``stops``, the number of overlong lines, and their bytes."""
        if not len(stops):
            return NO_LINES, 0, 0
        starts = np.concatenate([[0], stops[:-1] + 1])
        returns = (octets[stops] == _NEWLINE) & (stops > starts) & (octets[stops - 1] == _RETURN)
        ends = stops - returns
        fits = ends - starts <= self._max_line
        overlong = 0
        if self._is_skipping:
            fits[0], overlong, self._is_skipping = False, -1, False  # counted when its beginning was dropped
        # Fast path: one copy of all lines into one Arrow array, without a statement per line.
        if fits.all():
            return spans(octets, starts, ends), 0, 0
        skipped = int((stops - starts)[~fits].sum())
        return spans(octets, starts[fits], ends[fits]), overlong + int((~fits).sum()), skipped

    def _drop_overlong(self) -> Lines:
        # Limit: a full line, its end and, if a PRI decides, a complete PRI may be pending.
        end_size = 2 + PRI_BYTES if self._guesses else self._delimiter == LF and self._pending.endswith(b"\r")
        if not self._is_skipping and len(self._pending) <= self._max_line + end_size:
            return Lines(NO_LINES)
        overlong, self._is_skipping = int(not self._is_skipping), True
        dropped = max(len(self._pending) - _CONTEXT_BYTES, 0)
        del self._pending[:dropped]
        return Lines(NO_LINES, overlong, skipped_bytes=dropped)


class CountedStream:
    """Messages preceded by their length (RFC 6587), and lines of text between them.

    ``needs_pri``: a number is a length only before a complete PRI. Everything without a length is text: it ends with a
    newline, or before the next length with a PRI. A wrong length therefore costs one message and not the rest of the
    connection.

    A message above ``max_line`` is skipped to its stated end, if it follows another counted message and its length is
    not above LONGEST_SKIPPED: the text in it must not pass for messages of other senders. Above that, its length is
    text.
    """

    def __init__(self, max_line: int, needs_pri: bool) -> None:
        self._max_line, self._needs_pri = max_line, needs_pri
        self._pending = bytearray()
        self._message_bytes = 0  # size of the pending message with its length
        self._prefix = 0  # bytes of the length and the ends before it
        self._is_text = False  # the pending bytes are text without an end
        self._is_skipping = False  # and the tail of an overlong line
        self._announced_end = -1  # end of a message that is too large, relative to the first pending byte
        self._follows_counted = True  # no text is in front of the pending bytes
        self._skipped_rest = 0  # bytes of an overlong message that have not arrived

    waits = False

    @property
    def unfinished(self) -> int:
        return 0 if self._is_skipping else len(self._pending)

    def feed(self, chunk: bytes | memoryview) -> Lines:
        if self._skipped_rest:
            skipped = min(self._skipped_rest, len(chunk))
            self._skipped_rest -= skipped
            following = self.feed(memoryview(chunk)[skipped:]) if skipped < len(chunk) else Lines(NO_LINES)
            return append_lines(Lines(NO_LINES, skipped_bytes=skipped), following)
        # Fast path: the length says that the message is incomplete, so nothing is searched.
        if self._message_bytes and len(self._pending) + len(chunk) < self._message_bytes:
            self._pending += chunk
            return Lines(NO_LINES)
        if self._is_text and not _has_stop(_TEXT_STOP, self._pending, chunk):
            self._pending += chunk
            return self._drop_overlong()
        buffer = b"".join((self._pending, chunk)) if self._pending else chunk
        lines, consumed = self._split(buffer)
        self._announced_end -= consumed
        self._pending = bytearray(memoryview(buffer)[consumed:])
        return append_lines(lines, self._drop_overlong())

    def settle(self) -> Lines:
        return Lines(NO_LINES)

    def finish(self) -> Lines:
        line = bytes(self._pending)[self._prefix if self._message_bytes else 0 :]
        is_rest, is_line = self._is_skipping, bool(line.strip(b"\r\n\0"))
        self._pending.clear()
        self._message_bytes, self._is_text, self._is_skipping = 0, False, False
        if is_rest or len(line) > self._max_line:
            return Lines(NO_LINES, int(not is_rest), skipped_bytes=len(line))
        return Lines(pa.array([line], pa.binary()) if is_line else NO_LINES)

    def _split(self, buffer: bytes | memoryview) -> tuple[Lines, int]:
        """Return the complete messages and lines in ``buffer``, and the offset of the incomplete rest."""
        starts: list[int] = []
        ends: list[int] = []
        overlong = skipped = position = 0
        size, self._message_bytes = len(buffer), 0
        while True:
            while not self._is_text and (match := _DELIMITERS_AND_COUNT.match(buffer, position)):
                begin = match.end(1) + 1
                end = begin + int(match[1])
                if match[2] is not None and self._is_overlong(int(match[1])):
                    position = min(end, size)
                    overlong += 1
                    skipped += position - begin
                    self._skipped_rest = end - position
                    continue
                if not self._is_count(match):
                    if match[2] is not None or not self._needs_pri:
                        self._announced_end = end
                    break
                if end > size:
                    self._message_bytes, self._prefix = end - position, begin - position
                    break
                starts.append(begin)
                ends.append(end)
                position, self._follows_counted = end, True
            if not self._is_text:
                if self._message_bytes:
                    break
                position = skip_delimiters(DELIMITERS, buffer, position)
                # Limit: at most 15 zeros and 15 bytes wait for the rest of a count.
                if self._may_be_count(buffer, position):
                    break
            stop = self._text_end(buffer, position)
            self._is_text = stop is None
            if stop is None:
                break
            end, following = stop
            self._follows_counted = False
            if self._is_skipping or end - position > self._max_line:
                overlong += not self._is_skipping
                skipped += end - position
                self._is_skipping = False
            else:
                starts.append(position)
                ends.append(end)
            position = following
        lines = spans(np.frombuffer(buffer, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64))
        return Lines(lines if starts else NO_LINES, overlong, skipped_bytes=skipped), position

    def _is_count(self, match: re.Match[bytes]) -> bool:
        count = int(match[1])
        if not count:  # "0 errors" is text
            zero_count = _ZERO_COUNT if self._needs_pri else _BARE_ZERO_COUNT
            return zero_count.match(match.string, match.start(1)) is not None
        if not self._needs_pri:
            return count <= self._max_line
        return count <= self._max_line and match[2] is not None and count >= len(match[2])

    def _is_overlong(self, count: int) -> bool:
        return self._follows_counted and self._max_line < count <= LONGEST_SKIPPED * self._max_line

    def _may_be_count(self, buffer: bytes | memoryview, position: int) -> bool:
        if may_be_count(buffer, position, self._needs_pri):
            return True
        # Lengths that need no PRI: an overlong one does, and the PRI may be incomplete.
        match = _PARTIAL_COUNT.match(buffer, position)
        return match is not None and match[1] is not None and self._is_overlong(int(match[1]))

    def _text_end(self, buffer: bytes | memoryview, begin: int) -> tuple[int, int] | None:
        """Return the end of the text at ``begin`` and the start of what follows; None while it has no end."""
        for match in _TEXT_STOP.finditer(buffer, begin):
            if match[0] == LF:
                is_return = match.start() > begin and buffer[match.start() - 1] == _RETURN
                return match.start() - is_return, match.end()
            # A text that ends with a digit may precede a length directly; if the text itself had a length, its
            # announced end divides the digits.
            if match.start() < self._announced_end < match.end(1) and match_count(
                buffer, self._announced_end, self._max_line
            ):
                return self._announced_end, self._announced_end
            if match.start() > begin and len(match[2]) <= int(match[1]) <= self._max_line:
                return match.start(), match.start()
        return None

    def _drop_overlong(self) -> Lines:
        room = self._max_line + _CONTEXT_BYTES  # the tail of a text that fits may be an incomplete count
        if not self._is_text or (not self._is_skipping and len(self._pending) <= room):
            return Lines(NO_LINES)
        overlong, self._is_skipping = int(not self._is_skipping), True
        dropped = max(len(self._pending) - _CONTEXT_BYTES, 0)
        self._announced_end -= dropped
        del self._pending[:dropped]
        return Lines(NO_LINES, overlong, skipped_bytes=dropped)


def _has_stop(stop: re.Pattern[bytes], pending: bytearray, chunk: bytes | memoryview) -> bool:
    """Report whether ``chunk`` ends the pending line; searches only the new bytes and their context."""
    if stop.search(chunk):
        return True
    return stop.search(pending[-_CONTEXT_BYTES:] + bytes(chunk[:_CONTEXT_BYTES])) is not None


def match_count(buffer: bytes | bytearray | memoryview, position: int, max_line: int) -> re.Match[bytes] | None:
    """Match the length at ``position``; None unless it precedes a PRI and is at most ``max_line``."""
    match = _COUNT.match(buffer, position)
    return match if match and len(match[2]) <= int(match[1]) <= max_line else None


def may_be_count(buffer: bytes | bytearray | memoryview, position: int, needs_pri: bool = True) -> bool:
    """Report whether the bytes from ``position`` to the end may be the beginning of a length."""
    match = _PARTIAL_COUNT.match(buffer, position)
    return match is not None and (needs_pri or match[1] is None or match.end(1) == match.end())


def skip_delimiters(ends: re.Pattern[bytes], buffer: bytes | bytearray | memoryview, position: int) -> int:
    """Return the position after the ends of lines at ``position``."""
    match = ends.match(buffer, position)
    return match.end() if match else position


def append_lines(first: Lines, following: Lines) -> Lines:
    """Return the lines of both batches, in order."""
    if not (len(following.lines) or following.overlong or following.skipped_bytes):
        return first
    lines = pa.concat_arrays([first.lines, following.lines]) if len(first.lines) else following.lines
    overlong, skipped_bytes = first.overlong + following.overlong, first.skipped_bytes + following.skipped_bytes
    return replace(first, lines=lines, overlong=overlong, skipped_bytes=skipped_bytes)
