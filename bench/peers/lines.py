"""What a receiver does: lines over TCP, each parsed into the fields of RFC 5424, until all of them are written."""

from __future__ import annotations

import time
from typing import Any

from bench.peers.peer import told

SIZE = 256
LINES_PER_SECOND = 150_000
"""Lines that are sent for each second of the measurement; senders wait for a peer that is slower."""


def parsed(peer: Any, seconds: float) -> dict[str, float]:
    """Return CPU in us a line, of all processes of the peer, and lines a second. Raises AssertionError for a loss."""
    before, used, began = peer.stored(), peer.cpu(), time.perf_counter()
    sent = int(told("sender", "syslog_lines", *peer.tcp, SIZE, int(LINES_PER_SECOND * seconds), 0)["sent"])
    written = peer.stored(before + sent) - before
    assert written == sent, f"{peer.name} wrote {written} of {sent} lines"
    return {
        "tcp_parsed_cpu_us": (peer.cpu() - used) / sent * 1e6,
        "tcp_parsed_per_s": sent / (time.perf_counter() - began),
    }
