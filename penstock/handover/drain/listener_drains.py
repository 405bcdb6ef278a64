"""The drains of all listeners: added and removed while the daemon runs, all emptied at its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.handover.drain.drain import Drain
from penstock.log import Log

JOIN_TIMEOUT_S = 1.0
"""Limit for the end of one drain, because the lock is held during the wait."""


class Drains:
    """A drain for each listener with a log buffer in ``folder``. Thread-safe."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._folder, self._log = folder, log
        self._lock = threading.Lock()
        self._drains: dict[str, Drain] = {}
        self._wakes: dict[str, int | None] = {}
        self._stopped = False

    def start(self, wakes: Mapping[str, int | None]) -> None:
        """Start drains of these listeners with their eventfds; an existing drain is stopped first."""
        with self._lock:
            for name, wake in sorted(wakes.items()):
                if self._stopped:
                    return
                if old_drain := self._drains.pop(name, None):
                    # A new eventfd replaces the old one, which nobody signals any more. One drain per buffer at a time.
                    old_drain.stop()
                    old_drain.join()
                    self._close(name)
                self._wakes[name] = wake
                self._drains[name] = Drain(name, self._folder, self._log, wake)
                self._drains[name].start()

    def retain(self, configured: Collection[str]) -> None:
        """End the drains of all other listeners once their log buffers, which get no more frames, are empty."""
        with self._lock:
            removed = {name: drain for name, drain in self._drains.items() if name not in configured}
            for drain in removed.values():
                drain.leave()
            for name, drain in removed.items():
                drain.join(JOIN_TIMEOUT_S)
                if not drain.is_alive():  # otherwise the next call removes it
                    del self._drains[name]
                    self._close(name)

    def _close(self, name: str) -> None:
        if (wake := self._wakes.pop(name, None)) is not None:
            os.close(wake)

    def stop(self) -> None:
        """Empty the log buffers, then end."""
        with self._lock:
            # After this no drain can be added, so the list below is complete.
            self._stopped = True
            drains = list(self._drains.values())
        for drain in drains:
            drain.stop()
        for drain in drains:
            drain.join()
