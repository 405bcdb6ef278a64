"""What a receiver does: datagrams, as many as it takes without a loss."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.peer import told

SIZE = 256
RATES = [int(50_000 * 1.15**step) for step in range(22)]
"""Datagrams a second that are tried, until some are lost."""


def lossless(kind: str, name: str, seconds: float) -> Callable[[Any], dict[str, float]]:
    """Finds the highest rate of the sender's ``kind`` at which the kernel drops nothing, and a message's CPU then.

    CPU in us, of all processes. ``name`` begins the figures' names.
    """

    def work(peer: Any) -> dict[str, float]:
        best, spent = 0.0, 0.0
        for rate in RATES:
            before, used = dropped(peer.udp[1]), peer.cpu()
            sent = _sent(kind, peer.udp, int(rate * seconds), rate)
            if dropped(peer.udp[1]) != before:
                break
            best, spent = sent["sent"] / sent["seconds"], (peer.cpu() - used) / sent["sent"] * 1e6
            if best < 0.9 * rate:  # the sender can do no more
                break
        return {f"{name}lossless_per_s": best, f"{name}lossless_cpu_us": spent}

    return work


def _sent(kind: str, to: tuple[str, int], count: int, rate: int) -> Any:
    found = told("sender", kind, *to, SIZE, count, rate)
    time.sleep(1)  # what is on its way arrives
    return found


def dropped(port: int) -> int | None:
    """What the kernel dropped so far at a UDP port of 127.0.0.1; None while nobody listens there."""
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}":
            return int(fields[-1])
    return None
