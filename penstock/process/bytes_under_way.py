"""Bytes of the requests that are being read, of all clients together, and how long each may take to come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

LEAST_RATE = 16 << 10
"""Bytes a second that a request has to come at, once its time has passed."""


@dataclass(eq=False, slots=True)
class Held:
    """Bytes of one request; ``give_up`` ends it while it is not ``whole``."""

    give_up: Callable[[], None]
    size: int = 0
    whole: bool = False


@dataclass(slots=True)
class BytesUnderWay:
    """At most ``most`` bytes of requests; ``timeout``: seconds for one that is small."""

    most: int = 256 << 20
    timeout: float = 30.0
    size: int = field(default=0, init=False)
    _held: set[Held] = field(default_factory=set, init=False)

    def time_for(self, size: int) -> float:
        """Seconds that a request may take of which there are ``size`` bytes."""
        return self.timeout + size / LEAST_RATE

    def grown(self, held: Held, size: int) -> None:
        """More of a request has come: where there is no room, the largest one that is not whole yet goes."""
        self._held.add(held)
        held.size += size
        self.size += size
        while self.size > self.most and (coming := [one for one in self._held if not one.whole]):
            largest = max(coming, key=lambda one: one.size)
            largest.give_up()
            self.released(largest)

    def released(self, held: Held) -> None:
        """A request is answered, or given up."""
        if held in self._held:
            self._held.discard(held)
            self.size -= held.size
            held.size = 0
