"""What a log does: appends and reads, by clients in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.peers.peer import told

CALLERS = ((1, 1), (8, 1), (64, 1), (1, 1000))
"""Callers, and entries a request. NATS has no requests of many: there, that many are on their way at once."""


def writes(peer: Any, seconds: float) -> dict[str, float]:
    """Entries a second, milliseconds of the server's CPU a request, and how many cores the client used."""
    return {
        f"append_{callers}_callers_{entries}_entries_{name}": value
        for callers, entries in CALLERS
        for name, value in _append(peer, callers, entries, seconds)
    }


def _append(peer: Any, callers: int, entries: int, seconds: float) -> Iterator[tuple[str, float]]:
    before = peer.cpu()
    found = told(*peer.appends_with, peer.address, f"t{callers}-{entries}", callers, entries, seconds)
    spent = peer.cpu() - before
    yield "per_s", found["requests"] * entries / found["seconds"]
    yield "cpu_ms_a_request", 1000 * spent / max(found["requests"], 1)
    yield "refused", found["failed"]
    yield "client_cores", found["cores"]


def reads(peer: Any) -> dict[str, float]:
    """Entries a second, by pages of 1,000 and by a stream, and how many cores the client used."""
    return {f"read_{name}": value for name, value in told(*peer.reads_with, peer.address).items()}
