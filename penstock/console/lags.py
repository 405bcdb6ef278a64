"""How far readers are behind, over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

EVERY = 15.0
"""Seconds between two looks."""
KEPT = 240
"""Looks that are kept: an hour."""
MOST_READERS = 2000

Reader = tuple[str, str]
"""Topic and name."""


class Lags:
    """Entries that each reader had still to read, at each look."""

    def __init__(self) -> None:
        self._lines: dict[Reader, deque[tuple[float, int]]] = {}

    def add(self, at: float, cursors: Iterable[Mapping[str, Any]]) -> None:
        """A look ``at`` (seconds of a clock that never goes back); readers that are gone are forgotten."""
        before, self._lines = self._lines, {}
        for cursor, _ in zip(cursors, range(MOST_READERS), strict=False):
            reader = (str(cursor.get("topic", "")), str(cursor["name"]))
            line = self._lines[reader] = before.get(reader) or deque(maxlen=KEPT)
            line.append((at, int(cursor.get("lag_entries", 0))))

    def of(self, topic: str) -> dict[str, list[tuple[float, int]]]:
        """The readers of a topic by name, with entries behind over time."""
        return {name: list(line) for (read, name), line in self._lines.items() if read == topic}
