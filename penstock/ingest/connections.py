"""The connections of a TCP listener, what each holds, and which of them goes when there is no room for all."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from penstock.wire.lines import LineSplitter


@dataclass(slots=True, eq=False)
class Connection:
    """One sender; ``heard`` is the monotonic time at which it sent something last."""

    sock: socket.socket
    address: str
    lines: LineSplitter
    heard: float

    @property
    def is_open(self) -> bool:
        return self.sock.fileno() >= 0


class Connections:
    """Those of one listener: at most ``most``, with ``most_unfinished`` bytes of unfinished lines in all."""

    def __init__(self, most: int, most_unfinished: int) -> None:
        self._most, self._most_unfinished = most, most_unfinished
        self._all: set[Connection] = set()
        self._unfinished: dict[Connection, int] = {}
        self._held = 0

    @property
    def exceed(self) -> bool:
        """Whether there are too many of them, or they hold too much."""
        return len(self._all) > self._most or self._held > self._most_unfinished

    def add(self, connection: Connection) -> None:
        self._all.add(connection)

    def remove(self, connection: Connection) -> None:
        self._held -= self._unfinished.pop(connection, 0)
        self._all.discard(connection)

    def fed(self, connection: Connection) -> None:
        """Take note of what ``connection`` holds now."""
        held = connection.lines.unfinished
        self._held += held - self._unfinished.pop(connection, 0)
        if held:
            self._unfinished[connection] = held

    def first_to_go(self) -> Connection | None:
        """The one with the most unfinished bytes; where none has any, the one that is silent for the longest time."""
        if self._unfinished:
            return max(self._unfinished, key=self._unfinished.__getitem__)
        return min(self._all, key=lambda each: each.heard, default=None)

    def silent_since(self, time: float) -> list[Connection]:
        """Those not heard since monotonic ``time``."""
        return [each for each in self._all if each.heard <= time]
