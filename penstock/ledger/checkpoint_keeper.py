"""Keeps checkpoints of a ledger: at the start, every now and then, and at the end."""

from __future__ import annotations

import logging
import threading
import time

from penstock.ledger.ledger import Ledger

INTERVAL = 60.0
"""Seconds between two checkpoints at least: so much of the log has to be read again after a crash."""
SHARE = 0.01
"""How much of a processor's time they take at most."""
_LOGGER = logging.getLogger(__name__)


class CheckpointKeeper:
    """Keeps checkpoints of ``ledger`` on a thread of its own, until it is stopped."""

    def __init__(self, ledger: Ledger, interval: float = INTERVAL) -> None:
        self._ledger, self._interval = ledger, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._pause = interval

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return once the last checkpoint is kept; before the log is closed."""
        self._stop.set()
        self._thread.join()
        self._keep()

    def _run(self) -> None:
        self._keep()  # what this start had to read: a daemon that dies every minute would have to read more each time
        while not self._stop.wait(self._pause):
            self._keep()

    def _keep(self) -> None:
        begin = time.thread_time()
        try:
            self._ledger.keep()
        except Exception as error:  # noqa: BLE001 - a full disk, say: the thread goes on, the next one may fit
            _LOGGER.warning("the ledger's checkpoint is not kept: %s", error)
        self._pause = max(self._interval, (time.thread_time() - begin) / SHARE)
