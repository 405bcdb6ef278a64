"""Messages that span several lines of one connection: indented traces, or all lines up to the next beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import bounds, values_of
from penstock.wire.datagrams import Ints, joined_runs
from penstock.wire.framing.line_framing import NO_LINES, Lines

INDENTED = r"\A[^ \t]"
"""First line of a message: not indented; the following lines are."""


class LineJoiner:
    """Joiner of one connection's lines into messages; holds the message whose last line may be missing.

    ``begins``: pattern of the first line of a message (RE2, matched anywhere in the line). A message has at most
    ``max_lines`` lines and ``max_size`` bytes: lines that do not fit begin another message.
    """

    def __init__(self, begins: str, max_lines: int, max_size: int) -> None:
        self._begins, self._max_lines, self._max_size = begins, max_lines, max_size
        self._open_lines: pa.Array[Any] = NO_LINES
        self.held_bytes = 0

    @property
    def held_lines(self) -> int:
        """Number of lines of the message that may be incomplete."""
        return len(self._open_lines)

    def feed(self, new: Lines) -> Lines:
        """Return the messages that the ``new`` lines complete."""
        if not len(new.lines):
            return new
        lines = pa.concat_arrays([self._open_lines, new.lines]) if len(self._open_lines) else new.lines
        begins = pc.match_substring_regex(lines, self._begins).to_numpy(zero_copy_only=False).copy()
        begins[0] = True
        sizes = np.diff(bounds(lines)).astype(np.int64) + 1
        starts = self._within_limits(np.flatnonzero(begins), sizes)
        last = int(starts[-1])
        # The copy releases the memory of the whole read; a slice would keep it alive.
        self._open_lines, self.held_bytes = _copied(lines[last:]), int(sizes[last:].sum())
        messages = _joined(lines[:last], starts[:-1])
        return replace(new, lines=messages.lines, joined=messages.joined)

    def flush(self) -> Lines:
        """Return the held message: no more lines of it are expected."""
        lines, self._open_lines, self.held_bytes = self._open_lines, NO_LINES, 0
        return _joined(lines, np.zeros(min(len(lines), 1), np.int64))

    def _within_limits(self, starts: Ints, sizes: Ints) -> Ints:
        """Return ``starts`` of messages and the starts that the limits add; usually there are none."""
        counts = np.diff(starts, append=len(sizes))
        totals = np.add.reduceat(sizes, starts) - 1
        large = (counts > self._max_lines) | (totals > self._max_size)
        if not large.any():
            return starts
        added = [
            self._cut(int(starts[index]), sizes[starts[index] : starts[index] + counts[index]])
            for index in np.flatnonzero(large)
        ]
        return np.sort(np.concatenate([starts, *added]))

    def _cut(self, begin: int, sizes: Ints) -> Ints:
        """Return the beginnings of the parts of an oversized message, except the first."""
        ends, index = np.cumsum(sizes), 0
        cuts: list[int] = []
        while True:
            room = (ends[index - 1] if index else 0) + self._max_size + 1
            index = min(max(int(np.searchsorted(ends, room, side="right")), index + 1), index + self._max_lines)
            if index >= len(sizes):
                return np.array(cuts, np.int64)
            cuts.append(begin + index)


def _copied(lines: pa.Array[Any]) -> pa.Array[Any]:
    return pa.array(values_of(lines), pa.binary())


def _joined(lines: pa.Array[Any], starts: Ints) -> Lines:
    if len(starts) == len(lines):
        return Lines(lines)
    return Lines(joined_runs(lines, starts, b"\n"), joined=len(lines) - len(starts))
