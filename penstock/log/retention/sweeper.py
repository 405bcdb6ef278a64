"""Sweeps a log every few minutes."""

from __future__ import annotations

import logging
import threading

from penstock.log.log import Log

INTERVAL = 300.0
"""Seconds between two sweeps: as slogd's."""
_LOGGER = logging.getLogger(__name__)


class Sweeper:
    """Sweeps ``log`` on a thread of its own every ``interval`` seconds, until it is stopped."""

    def __init__(self, log: Log, interval: float = INTERVAL) -> None:
        self._log = log
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._log.sweep()
            except Exception:
                _LOGGER.exception("the log was not swept")

    def stop(self) -> None:
        """Return once the sweep that runs is done."""
        self._stop.set()
        self._thread.join()
