"""The drains of all listeners: more of them or fewer while the daemon runs, all emptied at its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from penstock.handover.drain import Drain
from penstock.log import Log

PATIENCE = 1.0
"""Seconds for which the end of a drain is waited for."""


class Drains:
    """One drain per listener whose log buffer is in ``folder``. May be used from any thread."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._folder, self._log = folder, log
        self._lock = threading.Lock()
        self._drains: dict[str, Drain] = {}
        self._wakes: dict[str, int | None] = {}
        self._stopped = False

    def start(self, wakes: Mapping[str, int | None]) -> None:
        """Drain these listeners, woken by their eventfds, from now on; one drain of a log buffer at a time."""
        with self._lock:
            for name, wake in sorted(wakes.items()):
                if self._stopped:
                    return
                if known := self._drains.pop(name, None):  # it waits for an eventfd that nobody writes to any more
                    known.stop()
                    known.join()
                    self._close(name)
                self._wakes[name] = wake
                self._drains[name] = Drain(name, self._folder, self._log, wake)
                self._drains[name].start()

    def keep(self, configured: Collection[str]) -> None:
        """No receiver fills the other log buffers any more: their drains end once they have emptied them."""
        with self._lock:
            gone = {name: drain for name, drain in self._drains.items() if name not in configured}
            for drain in gone.values():
                drain.leave()
            for name, drain in gone.items():
                drain.join(PATIENCE)
                if not drain.is_alive():  # else it is seen to the next time
                    del self._drains[name]
                    self._close(name)

    def _close(self, name: str) -> None:
        if (wake := self._wakes.pop(name, None)) is not None:
            os.close(wake)

    def stop(self) -> None:
        """Empty the log buffers, then end."""
        with self._lock:
            self._stopped = True
            drains = list(self._drains.values())
        for drain in drains:
            drain.stop()
        for drain in drains:
            drain.join()
