"""The thread that writes the ledger's checkpoints: at the start, at intervals, and at the end.

Order: the last checkpoint is written before the log is closed, because it reads the end of ``_ledger``.
"""

from __future__ import annotations

import logging
import threading
import time

from penstock.ledger.ledger import Ledger

MIN_INTERVAL_S = 60.0
"""Minimum interval between checkpoints: a start after a crash reads this much of the log again."""
MAX_CPU_SHARE = 0.01
"""Limit for the CPU time of checkpoints, as a share of one core: a large book is written less often."""
_LOGGER = logging.getLogger(__name__)


class CheckpointKeeper:
    """The checkpoint thread of ``ledger``. Owned by the log daemon: stopped before the log is closed."""

    def __init__(self, ledger: Ledger, interval: float = MIN_INTERVAL_S) -> None:
        self._ledger, self._interval = ledger, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._pause = interval

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the last checkpoint and return. Call before the log is closed."""
        self._stop.set()
        self._thread.join()
        self._write_checkpoint()

    def _run(self) -> None:
        self._write_checkpoint()
        # Crash: the first checkpoint is written at once. A daemon that dies every minute would otherwise read more at
        # each start.
        while not self._stop.wait(self._pause):
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        begin = time.thread_time()
        try:
            self._ledger.write_checkpoint()
        except Exception as error:  # noqa: BLE001 - on a full disk the thread continues: a later checkpoint may fit
            _LOGGER.warning("ledger: checkpoint was not written, the next start reads more: %s", error)
        self._pause = max(self._interval, (time.thread_time() - begin) / MAX_CPU_SHARE)
