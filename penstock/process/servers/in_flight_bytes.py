"""A limit for the bytes of all requests that are being read, of all clients together, and for the time of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MIN_BYTES_PER_S = 16 << 10
"""Rate at which a large request must arrive after its initial time."""


@dataclass(eq=False, slots=True)
class RequestBytes:
    """The received bytes of one request; ``abort`` ends the request while it is not ``complete``."""

    abort: Callable[[], None]
    size: int = 0
    complete: bool = False


@dataclass(slots=True)
class InFlightBytes:
    """A budget of ``max_bytes`` for all requests in flight; ``timeout`` is the time in seconds for a small request.

    Owned by one event loop; not thread-safe.
    """

    max_bytes: int = 256 << 20
    timeout: float = 30.0
    size: int = field(default=0, init=False)
    _requests: set[RequestBytes] = field(default_factory=set, init=False)

    def time_for(self, size: int) -> float:
        """Return the seconds that a request of ``size`` bytes may take."""
        return self.timeout + size / MIN_BYTES_PER_S

    def grow(self, request: RequestBytes, size: int) -> None:
        """Count ``size`` more bytes of a request; over the limit the largest incomplete request is aborted."""
        self._requests.add(request)
        request.size += size
        self.size += size
        # Limit: complete requests stay, because their work is about to be done. An attacker holds the largest
        # incomplete request, so small clients survive a flood.
        while self.size > self.max_bytes and (incomplete := [r for r in self._requests if not r.complete]):
            largest = max(incomplete, key=lambda pending: pending.size)
            largest.abort()
            self.release(largest)

    def release(self, request: RequestBytes) -> None:
        """Return the bytes of a request that is answered or aborted."""
        if request in self._requests:
            self._requests.discard(request)
            self.size -= request.size
            request.size = 0
