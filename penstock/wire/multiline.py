"""Lines of one connection that are one message: a trace's lines that are indented, or all up to the next beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import bounds, values_of
from penstock.wire.datagrams import Ints, joined_runs
from penstock.wire.lines import NO_LINES, Lines

INDENTED = r"\A[^ \t]"
"""The first line of a message is not indented; the others are."""


class LineJoiner:
    """Joins the lines of one connection, by newlines; holds the message whose last line may not have come.

    ``begins``: what the first line of a message matches (RE2, anywhere in it). A message has at most ``max_lines``
    lines and ``max_size`` bytes: what does not fit begins another one.
    """

    def __init__(self, begins: str, max_lines: int, max_size: int) -> None:
        self._begins, self._max_lines, self._max_size = begins, max_lines, max_size
        self._held: pa.Array[Any] = NO_LINES
        self.held_bytes = 0

    @property
    def held_lines(self) -> int:
        """Lines of the message that is not known to be whole."""
        return len(self._held)

    def feed(self, new: Lines) -> Lines:
        """The messages that are whole now that ``new`` lines have come."""
        if not len(new.lines):
            return new
        lines = pa.concat_arrays([self._held, new.lines]) if len(self._held) else new.lines
        begins = pc.match_substring_regex(lines, self._begins).to_numpy(zero_copy_only=False).copy()
        begins[0] = True
        sizes = np.diff(bounds(lines)).astype(np.int64) + 1
        starts = self._within_limits(np.flatnonzero(begins), sizes)
        last = int(starts[-1])
        self._held, self.held_bytes = _copied(lines[last:]), int(sizes[last:].sum())
        whole = _joined(lines[:last], starts[:-1])
        return replace(new, lines=whole.lines, joined=whole.joined)

    def flush(self) -> Lines:
        """What is held, as no more of it will come."""
        held, self._held, self.held_bytes = self._held, NO_LINES, 0
        return _joined(held, np.zeros(min(len(held), 1), np.int64))

    def _within_limits(self, starts: Ints, sizes: Ints) -> Ints:
        """``starts`` of messages, and those that limits add; almost always there are none."""
        counts = np.diff(starts, append=len(sizes))
        totals = np.add.reduceat(sizes, starts) - 1
        large = (counts > self._max_lines) | (totals > self._max_size)
        if not large.any():
            return starts
        added = [
            self._cut(int(starts[at]), sizes[starts[at] : starts[at] + counts[at]]) for at in np.flatnonzero(large)
        ]
        return np.sort(np.concatenate([starts, *added]))

    def _cut(self, begin: int, sizes: Ints) -> Ints:
        """Where the parts of one message that is too large begin, but for the first."""
        ends, at = np.cumsum(sizes), 0
        cuts: list[int] = []
        while True:
            room = (ends[at - 1] if at else 0) + self._max_size + 1
            at = min(max(int(np.searchsorted(ends, room, side="right")), at + 1), at + self._max_lines)
            if at >= len(sizes):
                return np.array(cuts, np.int64)
            cuts.append(begin + at)


def _copied(lines: pa.Array[Any]) -> pa.Array[Any]:
    """Without the memory of the lines before."""
    return pa.array(values_of(lines), pa.binary())


def _joined(lines: pa.Array[Any], starts: Ints) -> Lines:
    """One message for each of ``starts``."""
    if len(starts) == len(lines):
        return Lines(lines)
    return Lines(joined_runs(lines, starts, b"\n"), joined=len(lines) - len(starts))
