"""How ``penstock up`` tells the ledger of what becomes of its processes: by the daemon's HTTP API."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config import Settings

TIMEOUT = 2.0
PAUSE = 5.0
"""Seconds in which nothing is tried after it failed: who waits here looks after processes."""


class LedgerDoor:
    """A way of events to the ledger."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._number = 0
        self._not_before = 0.0

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Post them; the number that is answered for, 0 where it has to be later."""
        import httpx  # slow to import

        from penstock.config.daemon_access import Access

        if time.monotonic() < self._not_before:
            return 0
        try:
            with Access(self._settings).client(timeout=TIMEOUT) as client:
                for event in events:
                    client.post("/ledger", json=event).raise_for_status()
        except (httpx.HTTPError, OSError):
            self._not_before = time.monotonic() + PAUSE
            return 0
        self._number += 1
        return self._number

    def poll_answers(self) -> int:
        """All that was sent is kept."""
        return self._number
