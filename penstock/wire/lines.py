"""Lines of a TCP connection: bytes in as they come, whole lines out.

Two framings: "newline" (plog: ``\\n`` ends a line, ``\\r\\n`` is stripped) and "syslog" (RFC 6587), where
each message either says its length first, in octets, or ends with a newline: its first character tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name
from penstock.records import values_of
from penstock.wire.datagrams import Ints, spans
from penstock.wire.plog.commands import PREFIX, Command, parse_command
from penstock.wire.plog.statistics import Statistics

Framing = Literal["newline", "syslog"]
Spans = tuple[Ints, Ints]

_NEWLINE, _RETURN = 10, 13
_ANY_NEWLINE = re.compile(rb"\n")
_COUNT = re.compile(rb"([1-9][0-9]{0,9}) ")
_PARTIAL_COUNT = re.compile(rb"[1-9][0-9]{0,9}\Z")
_BEFORE_COUNT = re.compile(rb"\n(?=[1-9][0-9]{0,9} )")


@dataclass(frozen=True, slots=True)
class Lines:
    """``lines``: type binary, without their ends; ``overlong``: how many were dropped for their length."""

    lines: pa.Array[Any]
    overlong: int = 0


NO_LINES = pa.array([], pa.binary())


class LineSplitter:
    """Finds the lines of one connection; holds at most one line of ``max_line`` bytes.

    ``max_line`` counts without the line's end. A longer line is dropped, and the connection goes on.
    """

    def __init__(self, max_line: int, framing: Framing = "newline") -> None:
        self._max_line = max_line
        self._may_count = framing == "syslog"
        self._pending = bytearray()
        self._wanted = 0  # bytes of the pending message, where it said its length
        self._skip = 0  # octets of an overlong message that are still to come
        self._skipping = False  # the rest of an overlong line is still to come
        self._after_count = False  # a message that said its length just ended

    @property
    def unfinished(self) -> int:
        """Bytes of a line whose end has not come."""
        return len(self._pending)

    def feed(self, data: bytes | memoryview) -> Lines:
        """The lines that ``data`` ends; they are copied out of it."""
        if self._skip or self._skipping or self._after_count:
            data = self._without_skipped(bytes(data))
        if self._is_more_of_pending(data):
            self._pending += data
            return Lines(NO_LINES, self._drop_pending())
        buffer = b"".join((self._pending, data)) if self._pending else data
        spans_found, overlong, end = self._counted(buffer) if self._may_count else self._newlines(buffer)
        self._pending = bytearray(memoryview(buffer)[end:])
        overlong += self._drop_pending()
        return Lines(_cut(buffer, spans_found), overlong)

    def finish(self) -> Lines:
        """The last line, where the connection ended without a newline; a message cut short, as far as it came."""
        line = bytes(self._pending)
        count = _COUNT.match(line) if self._wanted else None
        self._pending.clear()
        self._wanted = 0
        if len(line) > self._max_line + (count.end() if count else 0):
            return Lines(NO_LINES, 1)
        return Lines(pa.array([line[count.end() :] if count else line], pa.binary()) if line else NO_LINES)

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
        if self._skipping:
            end = data.find(b"\n")
            self._skipping = end < 0
            return data[end + 1 :] if end >= 0 else b""
        return data

    def _is_more_of_pending(self, data: bytes | memoryview) -> bool:
        """Whether ``data`` only makes the pending line longer: so that a line in many pieces is not read again."""
        if self._wanted:
            return len(self._pending) + len(data) < self._wanted
        is_line = not self._may_count or (bool(self._pending) and not _PARTIAL_COUNT.match(self._pending))
        return is_line and not _ANY_NEWLINE.search(data)

    def _drop_pending(self) -> int:
        """Drop the pending line if it is too long already; 1 if so."""
        room = self._max_line + self._pending.endswith(b"\r")
        may_be_count = self._may_count and _PARTIAL_COUNT.match(self._pending)
        if self._wanted or may_be_count or len(self._pending) <= room:
            return 0
        self._pending.clear()
        self._skipping = True
        return 1

    def _newlines(self, buffer: bytes | memoryview) -> tuple[list[Spans], int, int]:
        """Spans of the lines in ``buffer``, how many were too long, and where the last one ended."""
        ends = np.flatnonzero(np.frombuffer(buffer, np.uint8) == _NEWLINE)
        found, overlong = self._run(buffer, 0, ends)
        return [found], overlong, int(ends[-1]) + 1 if len(ends) else 0

    def _run(self, buffer: bytes | memoryview, begin: int, newlines: Ints) -> tuple[Spans, int]:
        """The lines from ``begin`` on that end at ``newlines``, without those too long, and how many these are."""
        octets = np.frombuffer(buffer, np.uint8)
        starts = np.concatenate([[begin], newlines[:-1] + 1])[: len(newlines)]
        ends = newlines - ((newlines > starts) & (octets[newlines - 1] == _RETURN))
        fits = ends - starts <= self._max_line
        if fits.all():
            return (starts, ends), 0
        return (starts[fits], ends[fits]), int((~fits).sum())

    def _counted(self, buffer: bytes | memoryview) -> tuple[list[Spans], int, int]:
        """As ``_newlines``, for messages of which each may say its length first."""
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
    lines: pa.Array[Any], overlong: int, statistics: Statistics, reserves: bool = True
) -> tuple[pa.Array[Any], list[Command], Counts]:
    """The messages among ``lines``, the commands, and the counts of both and of what was too long.

    Lines that begin with ``\\0`` are reserved: ``\\0\\0STAT`` and the like are commands, by index of their
    line; others are counted with them and dropped. ``statistics`` counts them as it does datagrams.
    Where nothing ``reserves`` them, they are messages like all others.
    """
    reserved = pc.starts_with(lines, "\0")
    count = reserved.true_count if reserves else 0
    counts = Counts({Name.LINES: len(lines) + overlong, Name.LINE_COMMAND: count, Name.LINE_OVERLONG: overlong})
    counts.absorb(dict.fromkeys((Name.LINE_MESSAGE, Name.SEEN, Name.ACCEPTED), len(lines) - count))
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
