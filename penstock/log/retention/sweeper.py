"""The thread that sweeps a log at a fixed interval."""

from __future__ import annotations

import logging
import threading

from penstock.log.log import Log

SWEEP_INTERVAL_S = 300.0
"""Interval between sweeps; the same as slogd's."""
_LOGGER = logging.getLogger(__name__)


class Sweeper:
    """A thread that sweeps ``log`` every ``interval`` seconds until it is stopped."""

    def __init__(self, log: Log, interval_s: float = SWEEP_INTERVAL_S) -> None:
        self._log = log
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._log.sweep()
            except Exception:  # the next sweep tries again: an exception must not end the thread
                _LOGGER.exception("retention: the log could not be swept")

    def stop(self) -> None:
        """Return when the current sweep has ended."""
        self._stop.set()
        self._thread.join()
