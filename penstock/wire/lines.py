"""Framing of a TCP connection: bytes in as they arrive, complete lines out.

Invariant: the lines depend on the bytes alone, not on how these are divided into reads.

Framings: "lf" (``\\n`` ends a line, ``\\r\\n`` is stripped), "nul" (``\\0`` ends it), "octet" (RFC 6587: the length of
each message precedes it; text without a length ends with a newline), and "auto": the first messages of a connection
show which of these it uses, and the connection keeps it. A number in the text of an LF or NUL connection is text, so
that an application that can write one line cannot hide, delay or merge the lines of others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name
from penstock.records import bounds, from_numpy, values_of
from penstock.wire.datagrams import Ints, spans
from penstock.wire.plog.commands import PREFIX, Command, parse_command
from penstock.wire.plog.statistics import Statistics

Framing = Literal["lf", "nul", "octet", "auto"]

UNDECIDED_BYTES = 32 << 10
"""Limit: bytes of a connection after which its first newline or NUL decides what ends its messages."""
SETTLE_TIME_S = 0.5
"""How long a connection may stay undecided while what it sent may be complete."""
STALL_TIME_S = 2.0
"""The same while the rest of a first message is missing: longer than TCP takes to repeat a lost packet."""
_CONTEXT_BYTES = 24
"""Bytes in front of new ones that a search must see again: no count with its PRI, and a byte before it, is longer."""
_LF, _NUL = b"\n", b"\0"
_NEWLINE, _RETURN = 10, 13
_PRI = rb"<[0-9]{1,3}>"
# rsyslog's ZipLevel: the message is refused by name later, so its length has to be read.
_BEGINNING = rb"%b|zx[\x01\x5e\x9c\xda]" % _PRI
_ANY_END = re.compile(rb"[\n\0]")
_END_BEFORE_PRI = re.compile(rb"[\n\0](?=%b)" % _PRI)
_PRI_BYTES = 5
_OTHER_END = {_LF: re.compile(rb"\0(?=%b)" % _PRI), _NUL: re.compile(rb"\n(?=%b)" % _PRI)}
_OTHER_BYTE = {_LF: _NUL, _NUL: _LF}
_STOP = {
    (_LF, False): re.compile(rb"\n"),
    (_NUL, False): re.compile(rb"\0"),
    (_LF, True): re.compile(rb"\n|\0(?=%b)" % _PRI),
    (_NUL, True): re.compile(rb"\0|\n(?=%b)" % _PRI),
}
# The ends that some senders write behind a message that said its length are no messages.
_ENDS_AND_COUNT = re.compile(rb"[\r\n\0]*([1-9][0-9]{0,9}) (%b)?" % _BEGINNING)
_ENDS = re.compile(rb"[\r\n\0]*")
_COUNT = re.compile(rb"([1-9][0-9]{0,9}) (%b)" % _BEGINNING)
_NEWLINES = re.compile(rb"(?:\r?\n)+")
_FEW_ENDS = re.compile(rb"(?:\r?\n|\0){0,2}")
"""Limit: ends behind the first message of a connection; an endless run of them must not be held."""
_PARTIAL_COUNT = re.compile(rb"(?:\r|([1-9][0-9]{0,9})(?: (?:<[0-9]{0,3}|zx?)?)?)?\Z")
_TEXT_STOP = re.compile(rb"\n|(?<![0-9])([1-9][0-9]{0,9}) (%b)" % _BEGINNING)


@dataclass(frozen=True, slots=True)
class Lines:
    """``lines``: type binary, without their ends; ``overlong``: how many were dropped for their length.

    ``joined``: how many are a part of one of ``lines`` that another one began; ``refused``: how many more there were
    that no message could be made of, by reason. ``skipped_bytes``: the bytes of the overlong lines.
    """

    lines: pa.Array[Any]
    overlong: int = 0
    joined: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    skipped_bytes: int = 0


NO_LINES = pa.array([], pa.binary())


class LineSplitter:
    """Splits the bytes of one connection into lines; holds at most one line of ``max_line`` bytes.

    ``max_line`` counts without the line's end. A longer line is dropped, and the connection goes on.
    """

    def __init__(self, max_line: int, framing: Framing = "lf") -> None:
        self._max_line = max_line
        self._framed: _Delimited | _Counted | None = None
        if framing == "octet":
            self._framed = _Counted(max_line, needs_pri=False)
        elif framing != "auto":
            self._framed = _Delimited(max_line, _LF if framing == "lf" else _NUL)
        self._undecided = bytearray()
        self._has_end = False  # the undecided bytes have an end of a line
        self._follows_counted = False  # the only message so far said its length
        self._dropped = False  # the first line was too long, and its end has not come

    @property
    def unfinished(self) -> int:
        """Bytes of a line whose end has not come."""
        return self._framed.unfinished if self._framed else len(self._undecided)

    @property
    def is_undecided(self) -> bool:
        """Whether the framing of the connection is not known yet."""
        return self._framed is None

    @property
    def waits(self) -> bool:
        """Whether what came may be complete, and only more of it, or time, will tell."""
        if self._framed:
            return self._framed.waits
        return self._has_end or self._counted_first()[1] > 0

    @property
    def patience_s(self) -> float:
        """How long what ``waits`` may wait for more, in seconds."""
        if self._framed:
            return SETTLE_TIME_S
        end = self._counted_first()[1]
        is_cut = end > len(self._undecided) if end else self._undecided[-1:] not in (_LF, _NUL)
        return STALL_TIME_S if is_cut else SETTLE_TIME_S

    def feed(self, data: bytes | memoryview) -> Lines:
        """Return the lines that ``data`` ends; they are copied out of it."""
        if self._framed:
            return self._framed.feed(data)
        if self._dropped:
            return self._skip_to_first_end(bytes(data))
        self._undecided += data
        empty = self._take_empty_lines()
        self._has_end = self._has_end or _ANY_END.search(self._undecided[-len(data) :]) is not None
        framing = self._shown_framing()
        return _added(empty, self._decide(framing) if framing else self._drop_overlong())

    def _take_empty_lines(self) -> Lines:
        """Take newlines in front of the first message: they do not show what ends the messages."""
        newlines = None if self._follows_counted else _NEWLINES.match(self._undecided)
        if newlines is None:
            return Lines(NO_LINES)
        count = newlines[0].count(_LF)
        del self._undecided[: newlines.end()]
        return Lines(pa.array([b""] * count, pa.binary()))

    def settle(self) -> Lines:
        """Return the lines that are complete, as no more came for some time."""
        if self._framed:
            return self._framed.settle()
        begin, end = self._counted_first()
        if 0 < end <= len(self._undecided):
            # One counted message does not decide: it may be a line of text that an application wrote.
            message = bytes(self._undecided[begin:end])
            del self._undecided[: _after(_ENDS, self._undecided, end)]
            self._follows_counted, self._has_end = True, False
            return Lines(pa.array([message], pa.binary()))
        last = max(self._undecided.rfind(_LF), self._undecided.rfind(_NUL))
        if last < 0:
            return Lines(NO_LINES)
        lines = self._decide("nul" if self._undecided[last] == 0 else "lf")
        return _added(lines, self.settle())

    def finish(self) -> Lines:
        """Return the last lines: also one whose end did not come, and a message cut short, as far as it came."""
        settled = self.settle()
        if self._framed is None and self._undecided:
            is_count = self._counted_first()[1] > 0
            settled = _added(settled, self._decide("octet" if is_count else "lf"))
        return _added(settled, self._framed.finish()) if self._framed else settled

    def _decide(self, framing: Framing) -> Lines:
        buffer, self._undecided = bytes(self._undecided), bytearray()
        if framing == "octet":
            self._framed = _Counted(self._max_line, needs_pri=True)
        else:
            self._framed = _Delimited(self._max_line, _NUL if framing == "nul" else _LF, guesses=True)
        return self._framed.feed(buffer)

    def _counted_first(self) -> tuple[int, int]:
        """Begin and end of a first message that says its length, the end perhaps still to come; 0, 0 for none."""
        match = None if self._follows_counted else _count_at(self._undecided, 0, self._max_line)
        return (match.end(1) + 1, match.end(1) + 1 + int(match[1])) if match else (0, 0)

    def _shown_framing(self) -> Framing | None:
        """Return what the first bytes show; None while they may still become something else.

        Counts are believed only where a second count, in front of a PRI, stands exactly behind the first message.
        """
        buffer = self._undecided
        if self._follows_counted:
            del buffer[: _after(_ENDS, buffer, 0)]
            after = 0
        elif buffer[:1] == b"<":
            return self._shown_delimiter() if self._has_end else None
        else:
            _, after = self._counted_first()
            if not after:
                return None if _may_be_count(buffer, 0) else "lf"
            if after > len(buffer):
                return None
            after = _after(_FEW_ENDS, buffer, after)
        if _count_at(buffer, after, self._max_line):
            return "octet"
        return None if _may_be_count(buffer, after) else "lf"

    def _shown_delimiter(self) -> Framing | None:
        """Return what ends messages: behind the end of one stands the next one's PRI.

        A newline inside a message that a NUL ends (a traceback's) is followed by more of it.
        """
        window = UNDECIDED_BYTES + 1 + _PRI_BYTES
        end = _END_BEFORE_PRI.search(self._undecided, 0, window)
        if end is None and len(self._undecided) >= window:
            end = _ANY_END.search(self._undecided)
        if end is None:
            return None
        return "nul" if end[0] == _NUL else "lf"

    def _drop_overlong(self) -> Lines:
        size = len(self._undecided)
        if size <= max(self._max_line + 1, UNDECIDED_BYTES + 1 + _PRI_BYTES) or self._counted_first()[1]:
            return Lines(NO_LINES)
        self._undecided.clear()
        self._dropped = True
        return Lines(NO_LINES, overlong=1, skipped_bytes=size)

    def _skip_to_first_end(self, data: bytes) -> Lines:
        """The first line was too long: its end is the first one, and shows what ends the others."""
        end = _ANY_END.search(data)
        if end is None:
            return Lines(NO_LINES, skipped_bytes=len(data))
        self._undecided += data[end.end() :]
        lines = self._decide("nul" if end[0] == _NUL else "lf")
        return _added(Lines(NO_LINES, skipped_bytes=end.start()), lines)


class _Delimited:
    """Lines that end with ``delimiter``, LF or NUL.

    ``guesses``: the delimiter was derived from the first messages. The other one then ends a line, too, where a PRI
    follows, so that a wrong guess, or a sender that provokes one, merges no lines.
    """

    def __init__(self, max_line: int, delimiter: bytes, guesses: bool = False) -> None:
        self._max_line, self._delimiter, self._guesses = max_line, delimiter, guesses
        self._stop = _STOP[delimiter, guesses]
        self._pending = bytearray()
        self._is_skipping = False  # the pending bytes are the last ones of an overlong line

    @property
    def unfinished(self) -> int:
        return 0 if self._is_skipping else len(self._pending)

    @property
    def waits(self) -> bool:
        return self._guesses and not self._is_skipping and self._pending[-1:] == _OTHER_BYTE[self._delimiter]

    def feed(self, data: bytes | memoryview) -> Lines:
        # A line in many pieces is not searched again with each of them.
        if self._pending and not _has_stop(self._stop, self._pending, data):
            self._pending += data
            return self._drop_overlong()
        buffer = b"".join((self._pending, data)) if self._pending else data
        octets = np.frombuffer(buffer, np.uint8)
        stops = self._stops(buffer, octets)
        lines, overlong, skipped = self._cut(octets, stops)
        self._pending = bytearray(memoryview(buffer)[int(stops[-1]) + 1 if len(stops) else 0 :])
        return _added(Lines(lines, overlong, skipped_bytes=skipped), self._drop_overlong())

    def settle(self) -> Lines:
        if not self.waits:
            return Lines(NO_LINES)
        line = bytes(self._pending[:-1]).removesuffix(b"\r" if self._delimiter == _NUL else b"")
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
        return _added(settled, Lines(pa.array([line], pa.binary()) if line else NO_LINES))

    def _stops(self, buffer: bytes | memoryview, octets: Any) -> Ints:
        """Where lines end."""
        stops = np.flatnonzero(octets == self._delimiter[0])
        if self._guesses:
            others = [match.start() for match in _OTHER_END[self._delimiter].finditer(buffer)]
            stops = np.union1d(stops, np.array(others, np.int64)) if others else stops
        return stops

    def _cut(self, octets: Any, stops: Ints) -> tuple[pa.Array[Any], int, int]:
        """The lines that end at ``stops``, how many of them were too long, and the bytes of these."""
        if not len(stops):
            return NO_LINES, 0, 0
        starts = np.concatenate([[0], stops[:-1] + 1])
        returns = (octets[stops] == _NEWLINE) & (stops > starts) & (octets[stops - 1] == _RETURN)
        ends = stops - returns
        fits = ends - starts <= self._max_line
        overlong = 0
        if self._is_skipping:
            fits[0], overlong, self._is_skipping = False, -1, False
        if fits.all():
            return spans(octets, starts, ends), 0, 0
        skipped = int((stops - starts)[~fits].sum())
        return spans(octets, starts[fits], ends[fits]), overlong + int((~fits).sum()), skipped

    def _drop_overlong(self) -> Lines:
        # Where a PRI decides, it has to be complete.
        end_size = 2 + _PRI_BYTES if self._guesses else self._delimiter == _LF and self._pending.endswith(b"\r")
        if not self._is_skipping and len(self._pending) <= self._max_line + end_size:
            return Lines(NO_LINES)
        overlong, self._is_skipping = int(not self._is_skipping), True
        dropped = max(len(self._pending) - _CONTEXT_BYTES, 0)
        del self._pending[:dropped]
        return Lines(NO_LINES, overlong, skipped_bytes=dropped)


class _Counted:
    """Messages that say their length first (RFC 6587), and lines of text between them.

    ``needs_pri``: a number is a length only in front of a complete PRI. A length over ``max_line`` is text, as is what
    has none: it ends with a newline, or in front of the next length with a PRI, so that a wrong length costs one
    message and not the rest of the connection.
    """

    def __init__(self, max_line: int, needs_pri: bool) -> None:
        self._max_line, self._needs_pri = max_line, needs_pri
        self._pending = bytearray()
        self._wanted = 0  # bytes of the pending message with its length
        self._prefix = 0  # bytes of the length and the ends before it
        self._is_text = False  # the pending bytes are text without an end
        self._is_skipping = False  # and the last ones of an overlong line
        self._announced_end = -1  # where a message that is too large ends, from the first pending byte on

    waits = False

    @property
    def unfinished(self) -> int:
        return 0 if self._is_skipping else len(self._pending)

    def feed(self, data: bytes | memoryview) -> Lines:
        if self._wanted and len(self._pending) + len(data) < self._wanted:
            self._pending += data
            return Lines(NO_LINES)
        if self._is_text and not _has_stop(_TEXT_STOP, self._pending, data):
            self._pending += data
            return self._drop_overlong()
        buffer = b"".join((self._pending, data)) if self._pending else data
        lines, rest = self._split(buffer)
        self._announced_end -= rest
        self._pending = bytearray(memoryview(buffer)[rest:])
        return _added(lines, self._drop_overlong())

    def settle(self) -> Lines:
        return Lines(NO_LINES)

    def finish(self) -> Lines:
        line = bytes(self._pending)[self._prefix if self._wanted else 0 :]
        is_rest, is_line = self._is_skipping, bool(line.strip(b"\r\n\0"))
        self._pending.clear()
        self._wanted, self._is_text, self._is_skipping = 0, False, False
        if is_rest or len(line) > self._max_line:
            return Lines(NO_LINES, int(not is_rest), skipped_bytes=len(line))
        return Lines(pa.array([line], pa.binary()) if is_line else NO_LINES)

    def _split(self, buffer: bytes | memoryview) -> tuple[Lines, int]:
        """The messages and lines in ``buffer``, and where the rest begins that is not complete."""
        starts: list[int] = []
        ends: list[int] = []
        overlong = skipped = position = 0
        size, self._wanted = len(buffer), 0
        while True:
            while not self._is_text and (match := _ENDS_AND_COUNT.match(buffer, position)):
                begin = match.end(1) + 1
                end = begin + int(match[1])
                if not self._is_count(match):
                    if match[2] is not None or not self._needs_pri:
                        self._announced_end = end
                    break
                if end > size:
                    self._wanted, self._prefix = end - position, begin - position
                    break
                starts.append(begin)
                ends.append(end)
                position = end
            if not self._is_text:
                if self._wanted:
                    break
                position = _after(_ENDS, buffer, position)
                # Limit: at most 15 bytes wait for the rest of a count.
                if _may_be_count(buffer, position, self._needs_pri):
                    break
            stop = self._text_end(buffer, position)
            self._is_text = stop is None
            if stop is None:
                break
            end, following = stop
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
        if not self._needs_pri:
            return count <= self._max_line
        return count <= self._max_line and match[2] is not None and count >= len(match[2])

    def _text_end(self, buffer: bytes | memoryview, begin: int) -> tuple[int, int] | None:
        """The end of the text from ``begin`` on, and where what follows begins; None where it has no end yet."""
        for match in _TEXT_STOP.finditer(buffer, begin):
            if match[0] == _LF:
                is_return = match.start() > begin and buffer[match.start() - 1] == _RETURN
                return match.start() - is_return, match.end()
            # A text that ends with a digit stands directly in front of a length: where the text itself was announced
            # the announced end divides the digits.
            if match.start() < self._announced_end < match.end(1) and _count_at(
                buffer, self._announced_end, self._max_line
            ):
                return self._announced_end, self._announced_end
            if match.start() > begin and len(match[2]) <= int(match[1]) <= self._max_line:
                return match.start(), match.start()
        return None

    def _drop_overlong(self) -> Lines:
        room = self._max_line + _CONTEXT_BYTES  # the end of a text that fits may be a count that is not complete
        if not self._is_text or (not self._is_skipping and len(self._pending) <= room):
            return Lines(NO_LINES)
        overlong, self._is_skipping = int(not self._is_skipping), True
        dropped = max(len(self._pending) - _CONTEXT_BYTES, 0)
        self._announced_end -= dropped
        del self._pending[:dropped]
        return Lines(NO_LINES, overlong, skipped_bytes=dropped)


def _has_stop(stop: re.Pattern[bytes], pending: bytearray, data: bytes | memoryview) -> bool:
    """Whether ``data`` ends the pending line: so that a line in many pieces is not searched again with each of them."""
    if stop.search(data):
        return True
    return stop.search(pending[-_CONTEXT_BYTES:] + bytes(data[:_CONTEXT_BYTES])) is not None


def _count_at(buffer: bytes | bytearray | memoryview, position: int, max_line: int) -> re.Match[bytes] | None:
    """The length that begins at ``position``, if it is one: in front of a PRI, and at most ``max_line``."""
    match = _COUNT.match(buffer, position)
    return match if match and len(match[2]) <= int(match[1]) <= max_line else None


def _may_be_count(buffer: bytes | bytearray | memoryview, position: int, needs_pri: bool = True) -> bool:
    """Whether the last bytes, from ``position`` on, may be the beginning of a length."""
    match = _PARTIAL_COUNT.match(buffer, position)
    return match is not None and (needs_pri or match[1] is None or match.end(1) == match.end())


def _after(ends: re.Pattern[bytes], buffer: bytes | bytearray | memoryview, position: int) -> int:
    """Where what follows the ends of lines at ``position`` begins."""
    match = ends.match(buffer, position)
    return match.end() if match else position


def _added(first: Lines, following: Lines) -> Lines:
    """The lines of both, in order."""
    if not (len(following.lines) or following.overlong or following.skipped_bytes):
        return first
    lines = pa.concat_arrays([first.lines, following.lines]) if len(first.lines) else following.lines
    overlong, skipped_bytes = first.overlong + following.overlong, first.skipped_bytes + following.skipped_bytes
    return replace(first, lines=lines, overlong=overlong, skipped_bytes=skipped_bytes)


def line_counts(
    given: Lines, statistics: Statistics, reserves: bool = True, keeps_empty: bool = False
) -> tuple[pa.Array[Any], list[Command], Counts]:
    """The messages among the lines ``given``, the commands, and the counts of both and of what was too long.

    Lines that begin with ``\\0`` are reserved: ``\\0\\0STAT`` and the like are commands, by index of their
    line; others are counted with them and dropped. ``statistics`` counts them as it does datagrams.
    Where nothing ``reserves`` them, they are messages like all others. Empty lines are messages if ``keeps_empty``.
    """
    lines, joined, overlong = given.lines, given.joined, given.overlong
    filled = np.diff(bounds(lines)) > 0
    empty = 0 if keeps_empty else len(lines) - int(filled.sum())
    if empty:
        lines = lines.filter(from_numpy(filled))
    reserved = pc.starts_with(lines, "\0")
    count = reserved.true_count if reserves else 0
    counts = Counts({Name.LINES: len(lines) + empty + joined + overlong, Name.LINE_COMMAND: count})
    counts.absorb({Name.LINE_EMPTY: empty, Name.LINE_JOINED: joined, Name.LINE_OVERLONG: overlong})
    counts.absorb({Name.SKIPPED_BYTES: given.skipped_bytes})
    counts.absorb(dict.fromkeys((Name.LINE_MESSAGE, Name.SEEN, Name.ACCEPTED), len(lines) - count))
    for reason, number in given.refused.items():
        counts.absorb(dict.fromkeys((Name.LINES, Name.LINE_MESSAGE, Name.SEEN, f"{Name.REFUSED}{reason}"), number))
    if not count:
        return lines, [], counts
    at = pc.indices_nonzero(reserved)
    packets = list(zip(values_of(at), values_of(lines.take(at)), strict=True))
    commands = [command for index, line in packets if (command := parse_command(index, line)) is not None]
    meant = sum(line.startswith(PREFIX) for _, line in packets)
    statistics.v0_commands += len(commands)
    statistics.unknown_command += meant - len(commands)
    statistics.v0_invalid_type += count - meant
    return lines.filter(pc.invert(reserved)), commands, counts
