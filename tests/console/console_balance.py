"""A balance and a daemon for the tests of the console."""

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


def daemon(*samples: dict[str, Any], interval_s: float = 10.0) -> Daemon:
    """Return a daemon that has answered ``samples``, ``interval_s`` apart."""
    from penstock.console.daemon_poll import counters

    console_daemon = Daemon("http://127.0.0.1:1")
    for number, sample in enumerate(samples):
        console_daemon.balance = sample
        console_daemon.history.add(number * interval_s, counters(sample))
    console_daemon.stat = {"listeners": {"in": {"receive_buffer": 212992}}}
    console_daemon.error, console_daemon.answered_s = "", time.monotonic()
    return console_daemon
