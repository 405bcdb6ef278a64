"""Lines of a TCP connection: bytes in as they come, whole lines out.

Framings: "lf" (``\\n`` ends a line, ``\\r\\n`` is stripped), "nul" (``\\0`` ends it), "octet" (RFC 6587: each message
either says its length first, in octets, or ends with a newline: its first character tells), and "auto", which is
"octet" or "nul": what the connection's first messages are like tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name
from penstock.records import values_of
from penstock.wire.datagrams import Ints, spans
from penstock.wire.plog.commands import PREFIX, Command, parse_command
from penstock.wire.plog.statistics import Statistics

Framing = Literal["lf", "nul", "octet", "auto"]
Spans = tuple[Ints, Ints]

UNDECIDED = 32 << 10
"""Bytes of a connection by which it is known what ends its messages."""
_LF, _NUL, _ENDS = b"\n", b"\0", b"\n\0"
_NEWLINE, _RETURN = 10, 13
_ANY = {ends: re.compile(rb"[%b]" % ends) for ends in (_LF, _NUL, _ENDS)}
_END_BEFORE_PRI = re.compile(rb"[\n\0](?=(?:[1-9][0-9]{0,9} )?<)")
_COUNT = re.compile(rb"([1-9][0-9]{0,9}) ")
_PARTIAL_COUNT = re.compile(rb"[1-9][0-9]{0,9}\Z")
_BEFORE_COUNT = re.compile(rb"\n(?=[1-9][0-9]{0,9} )")


@dataclass(frozen=True, slots=True)
class Lines:
    """``lines``: type binary, without their ends; ``overlong``: how many were dropped for their length.

    ``joined``: how many are a part of one of ``lines`` that another one began; ``refused``: how many more there were
    that no message could be made of, by reason.
    """

    lines: pa.Array[Any]
    overlong: int = 0
    joined: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


NO_LINES = pa.array([], pa.binary())


class LineSplitter:
    """Finds the lines of one connection; holds at most one line of ``max_line`` bytes.

    ``max_line`` counts without the line's end. A longer line is dropped, and the connection goes on.
    """

    def __init__(self, max_line: int, framing: Framing = "lf") -> None:
        self._max_line = max_line
        self._may_count = framing in ("octet", "auto")
        self._delimiter = _NUL if framing == "nul" else _LF
        self._undecided = framing == "auto"  # between newline and NUL
        self._pending = bytearray()
        self._wanted = 0  # bytes of the pending message, where it said its length
        self._skip = 0  # octets of an overlong message that are still to come
        self._skipping = False  # the rest of an overlong line is still to come
        self._after_count = False  # a message that said its length just ended

    @property
    def unfinished(self) -> int:
        """Bytes of a line whose end has not come."""
        return len(self._pending)

    @property
    def waits(self) -> bool:
        """Whether what came may be whole, and only more of it, or silence, will tell."""
        return self._undecided and self._pending[-1:] in (_LF, _NUL)

    def feed(self, data: bytes | memoryview) -> Lines:
        """The lines that ``data`` ends; they are copied out of it."""
        if self._skip or self._skipping or self._after_count:
            data = self._without_skipped(bytes(data))
        if self._is_more_of_pending(data):
            self._pending += data
            return Lines(NO_LINES, self._drop_pending())
        buffer = b"".join((self._pending, data)) if self._pending else data
        if self._undecided and not (buffer and self._decide(buffer)):
            self._pending = bytearray(buffer)
            return Lines(NO_LINES, self._drop_pending())
        return self._split(buffer)

    def settle(self) -> Lines:
        """The lines that are whole, as no more came for some time."""
        if not self._undecided:
            return Lines(NO_LINES)
        self._choose(self._pending.endswith(_NUL))
        return self._split(bytes(self._pending))

    def _split(self, buffer: bytes | memoryview) -> Lines:
        spans_found, overlong, end = self._counted(buffer) if self._may_count else self._delimited(buffer)
        self._pending = bytearray(memoryview(buffer)[end:])
        overlong += self._drop_pending()
        return Lines(_cut(buffer, spans_found), overlong)

    def finish(self) -> Lines:
        """The last lines: also one whose end did not come, and a message cut short, as far as it came."""
        settled = self.settle()
        line = bytes(self._pending)
        count = _COUNT.match(line) if self._wanted else None
        self._pending.clear()
        self._wanted = 0
        if len(line) > self._max_line + (count.end() if count else 0):
            return Lines(settled.lines, settled.overlong + 1)
        last = pa.array([line[count.end() :] if count else line], pa.binary()) if line else NO_LINES
        return Lines(pa.concat_arrays([settled.lines, last]) if len(settled.lines) else last, settled.overlong)

    def _decide(self, buffer: bytes | memoryview) -> bool:
        """Learn from what has come whether newlines or NULs end messages; whether that is known now.

        Behind the end of a message stands the next one's PRI. A newline inside a message that a NUL ends (a
        traceback's) is followed by more of it.
        """
        if buffer[:1] != b"<":
            self._choose(False)
        elif (end := _END_BEFORE_PRI.search(buffer)) or (
            len(buffer) > UNDECIDED and (end := _ANY[_ENDS].search(buffer))
        ):
            self._choose(end[0] == _NUL)
        return not self._undecided

    def _choose(self, nul: bool) -> None:
        self._undecided = False
        if nul:
            self._delimiter, self._may_count = _NUL, False

    def _without_skipped(self, data: bytes) -> bytes:
        """``data`` without the rest of an overlong line or message."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            self._after_count = not self._skip
            data = data[skipped:]
        if self._after_count and data:
            self._after_count = False
            return data[data[0] == _NEWLINE :]
        if self._skipping and self._undecided and (first := _ANY[_ENDS].search(data)):
            self._choose(first[0] == _NUL)
        if self._skipping:
            end = data.find(self._delimiter)
            self._skipping = end < 0
            return data[end + 1 :] if end >= 0 else b""
        return data

    def _is_more_of_pending(self, data: bytes | memoryview) -> bool:
        """Whether ``data`` only makes the pending line longer: so that a line in many pieces is not read again."""
        if self._wanted:
            return len(self._pending) + len(data) < self._wanted
        if self._undecided:
            return bool(self._pending) and self._pending[-1] not in _ENDS and not _ANY[_ENDS].search(data)
        is_line = not self._may_count or (bool(self._pending) and not _PARTIAL_COUNT.match(self._pending))
        return is_line and not _ANY[self._delimiter].search(data)

    def _drop_pending(self) -> int:
        """Drop the pending line if it is too long already; 1 if so."""
        room = self._max_line + (self._delimiter == _LF and self._pending.endswith(b"\r"))
        may_be_count = self._may_count and _PARTIAL_COUNT.match(self._pending)
        if self._undecided and len(self._pending) <= UNDECIDED:
            return 0
        if self._wanted or may_be_count or len(self._pending) <= room:
            return 0
        self._pending.clear()
        self._skipping = True
        return 1

    def _delimited(self, buffer: bytes | memoryview) -> tuple[list[Spans], int, int]:
        """Spans of the lines in ``buffer``, how many were too long, and where the last one ended."""
        ends = np.flatnonzero(np.frombuffer(buffer, np.uint8) == self._delimiter[0])
        found, overlong = self._run(buffer, 0, ends)
        return [found], overlong, int(ends[-1]) + 1 if len(ends) else 0

    def _run(self, buffer: bytes | memoryview, begin: int, stops: Ints) -> tuple[Spans, int]:
        """The lines from ``begin`` on that end at ``stops``, without those too long, and how many these are."""
        octets = np.frombuffer(buffer, np.uint8)
        starts = np.concatenate([[begin], stops[:-1] + 1])[: len(stops)]
        returns = (self._delimiter == _LF) & (stops > starts) & (octets[stops - 1] == _RETURN)
        ends = stops - returns
        fits = ends - starts <= self._max_line
        if fits.all():
            return (starts, ends), 0
        return (starts[fits], ends[fits]), int((~fits).sum())

    def _counted(self, buffer: bytes | memoryview) -> tuple[list[Spans], int, int]:
        """As ``_delimited``, for messages of which each may say its length first."""
        newlines = np.flatnonzero(np.frombuffer(buffer, np.uint8) == _NEWLINE)
        stops = np.array([match.start() for match in _BEFORE_COUNT.finditer(buffer)], np.int64)
        found: list[Spans] = []
        overlong, at, self._wanted = 0, 0, 0
        while at < len(buffer) and not self._wanted:
            if _COUNT.match(buffer, at):
                spans_found, dropped, at = self._messages(buffer, at)
            elif not len(run := _until(newlines, stops, at)):
                break
            else:
                spans_found, dropped = self._run(buffer, at, run)
                at = int(run[-1]) + 1
            found.append(spans_found)
            overlong += dropped
        return found, overlong, at

    def _messages(self, buffer: bytes | memoryview, at: int) -> tuple[Spans, int, int]:
        """Messages from ``at`` on that say their length, one after the other; how many were too long; their end."""
        starts: list[int] = []
        ends: list[int] = []
        overlong = 0
        while count := _COUNT.match(buffer, at):
            begin, end = count.end(), count.end() + int(count[1])
            if end - begin > self._max_line:
                overlong += 1
                self._skip = max(end - len(buffer), 0)
            elif end > len(buffer):
                self._wanted = end - at
                break
            else:
                starts.append(begin)
                ends.append(end)
            # Some senders end a message with a newline even though they said its length.
            at = min(end, len(buffer)) + (buffer[end : end + 1] == b"\n")
            self._after_count = at == end == len(buffer)
        return (np.array(starts, np.int64), np.array(ends, np.int64)), overlong, at


def line_counts(
    given: Lines, statistics: Statistics, reserves: bool = True
) -> tuple[pa.Array[Any], list[Command], Counts]:
    """The messages among the lines ``given``, the commands, and the counts of both and of what was too long.

    Lines that begin with ``\\0`` are reserved: ``\\0\\0STAT`` and the like are commands, by index of their
    line; others are counted with them and dropped. ``statistics`` counts them as it does datagrams.
    Where nothing ``reserves`` them, they are messages like all others.
    """
    lines, joined, overlong = given.lines, given.joined, given.overlong
    reserved = pc.starts_with(lines, "\0")
    count = reserved.true_count if reserves else 0
    counts = Counts({Name.LINES: len(lines) + joined + overlong, Name.LINE_COMMAND: count})
    counts.absorb({Name.LINE_JOINED: joined, Name.LINE_OVERLONG: overlong})
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


def _until(newlines: Ints, stops: Ints, at: int) -> Ints:
    """The newlines from ``at`` on, up to the first after which a message says its length."""
    first = np.searchsorted(newlines, at)
    stop = np.searchsorted(stops, at)
    last = np.searchsorted(newlines, stops[stop], side="right") if stop < len(stops) else len(newlines)
    return newlines[first:last]


def _cut(buffer: bytes | memoryview, found: list[Spans]) -> pa.Array[Any]:
    """The found spans of ``buffer`` as one array."""
    if not found:
        return NO_LINES
    starts, ends = found[0] if len(found) == 1 else (np.concatenate(each) for each in zip(*found, strict=True))
    return spans(np.frombuffer(buffer, np.uint8), starts, ends)
