"""What a receiver does: datagrams, as many as it takes without a loss."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.peer import told

SIZE = 256
STATISTICS_S = 1.2
RATES = [int(50_000 * 1.15**step) for step in range(22)]
"""Datagrams a second that are tried, until some are lost."""
COARSE = 3
"""Steps at once until the first loss; the rates between the last two are then tried one by one."""
FIGURES = ("per_s", "cpu_us", "sender_is_limit")


def lossless(kind: str, name: str, seconds: float) -> Callable[[Any], dict[str, float]]:
    """Return a measurement of the highest rate of the sender's ``kind`` without a loss, and of a message's CPU then.

    Neither the kernel nor the peer drops a message at that rate. CPU in us, of all processes. ``name`` begins the
    figures' names. ``sender_is_limit`` is 1 if the sender can do no more: the peer's own limit is higher then.
    """

    def work(peer: Any) -> dict[str, float]:
        passed, lossy, index, best = -1, len(RATES), 0, (0.0, 0.0, False)
        while passed < index < lossy:
            if (trial := _trial(kind, peer, RATES[index], seconds)) is None:
                lossy, index = index, passed + 1
                continue
            passed, best = index, trial
            if best[2]:
                break
            index = min(index + COARSE, lossy - 1) if lossy == len(RATES) else index + 1
        return dict(zip((f"{name}lossless_{figure}" for figure in FIGURES), best, strict=True))

    return work


def _trial(kind: str, peer: Any, rate: int, seconds: float) -> tuple[float, float, bool] | None:
    """Return messages a second, CPU in us a message, and whether the sender is the limit; None for a loss."""
    before, used = _lost(peer), peer.cpu()
    sent = _sent(kind, peer.udp, int(rate * seconds), rate)
    peer.settle()
    if _lost(peer) != before:
        return None
    reached = sent["sent"] / sent["seconds"]
    return reached, (peer.cpu() - used) / sent["sent"] * 1e6, reached < 0.9 * rate


def _lost(peer: Any) -> tuple[int | None, int]:
    return dropped(peer.udp[1]), peer.discarded()


def _sent(kind: str, to: tuple[str, int], count: int, rate: int) -> Any:
    found = told("sender", kind, *to, SIZE, count, rate)
    time.sleep(STATISTICS_S)  # datagrams in the socket, and the statistics of rsyslog
    return found


def dropped(port: int) -> int | None:
    """What the kernel dropped so far at a UDP port of 127.0.0.1; None while nobody listens there."""
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}":
            return int(fields[-1])
    return None
