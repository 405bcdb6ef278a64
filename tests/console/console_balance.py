"""A balance as the daemon answers it, for the tests of the console."""

from __future__ import annotations

import time
from typing import Any

from penstock.console.daemon_poll import Daemon


def balance(accepted: int = 100, **counts: int) -> dict[str, Any]:
    pending = 10
    return {
        "unaccounted": 0,
        "pending": pending,
        "listeners": [{"name": "in", "counts": {"taken": accepted, "accepted": accepted, **counts}, "books": []}],
        "routes": [
            {"source": "in", "handler": "log", "accepted": accepted, "delivered": accepted, "in_buffer": 0},
            {"source": "grpc", "handler": "log", "accepted": 5, "delivered": 5, "in_buffer": 0},
        ],
        "topics": [
            {
                "topic": "events",
                "end": accepted,
                "logged": accepted,
                "pending": pending,
                "fates": {"landed.event": accepted - pending - 3, "quarantined.bad_json": 2, "duplicate": 1},
                "read_by_pipeline": True,
            }
        ],
    }


def daemon(*samples: dict[str, Any], every: float = 10.0) -> Daemon:
    """A daemon that has answered ``samples``, one each ``every`` seconds."""
    from penstock.console.daemon_poll import counters

    seen = Daemon("http://127.0.0.1:1")
    for number, sample in enumerate(samples):
        seen.balance = sample
        seen.history.add(number * every, counters(sample))
    seen.stat = {"listeners": {"in": {"receive_buffer": 212992}}}
    seen.error, seen.at = "", time.monotonic()
    return seen
