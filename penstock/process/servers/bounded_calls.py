"""A bound on the calls of one kind that are open at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from typing import Any

import grpc

_EXHAUSTED = int(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
_UNAVAILABLE = int(grpc.StatusCode.UNAVAILABLE.value[0])


class BoundedCalls:
    """Open calls of all connections. Over ``limit`` the one that made progress least recently is cancelled.

    It is taken from the connection that opens the call too many, unless that one has no other: a connection with
    many idle calls costs itself its calls, and never the others theirs.
    """

    def __init__(self, limit: int, reason: str) -> None:
        self._limit, self._reason = limit, reason
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[Any, bytes, float]] = {}
        self._by_peer: defaultdict[bytes, dict[int, Any]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._calls)

    def last_progress(self) -> list[tuple[bytes, float]]:
        """Return gRPC's name of each call's peer, and the monotonic time of its last progress. On any thread."""
        with self._lock:
            return [(peer, last_s) for _, peer, last_s in self._calls.values()]

    def progress(self, call: Any) -> None:
        """Enter a call of cygrpc, or note that it has made progress. On any thread."""
        least_active = None
        with self._lock:
            earlier = self._calls.pop(id(call), None)
            peer = earlier[1] if earlier else call.peer()
            self._calls[id(call)] = call, peer, time.monotonic()
            of_peer = self._by_peer[peer]
            of_peer.pop(id(call), None)
            of_peer[id(call)] = call
            if len(self._calls) > self._limit:
                key = next(iter(of_peer if len(of_peer) > 1 else self._calls))
                least_active = self._remove(key)
        if least_active is not None:
            with contextlib.suppress(ValueError):  # it has just ended
                least_active.cancel(_EXHAUSTED, self._reason)

    def discard(self, call: Any) -> None:
        """Forget a call that is no longer of this kind. On any thread."""
        with self._lock:
            if id(call) in self._calls:
                self._remove(id(call))

    def cancel_all(self, reason: str) -> None:
        """Cancel all calls, which their clients may repeat. On any thread."""
        with self._lock:
            calls = [call for call, _, _ in self._calls.values()]
        for call in calls:
            with contextlib.suppress(ValueError):  # it has just ended
                call.cancel(_UNAVAILABLE, reason)

    def _remove(self, key: int) -> Any:
        call, peer, _ = self._calls.pop(key)
        of_peer = self._by_peer[peer]
        del of_peer[key]
        if not of_peer:
            del self._by_peer[peer]
        return call
