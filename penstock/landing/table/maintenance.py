"""Maintenance that runs by itself beside the landing: small files are merged now and then."""

from __future__ import annotations

import logging
import threading
import time

from penstock.landing.table.begun_table import DELTA, begun_as
from penstock.landing.table.compaction import compact_table
from penstock.landing.table_paths import Layout

_LOGGER = logging.getLogger(__name__)


class Maintenance:
    """Merges the small files of a Delta table every so many seconds (0: never), in a thread of its own."""

    def __init__(self, layout: Layout, every: float) -> None:
        self._layout, self._every = layout, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Begin, where there is anything to do."""
        if self._every > 0:
            self._thread.start()

    def stop(self, patience: float) -> None:
        """End, at most ``patience`` seconds later; a merge that was cut off has changed nothing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._merge()
            except Exception as error:  # noqa: BLE001 - such as a full disk: reported, and tried again
                _LOGGER.warning("small files could not be merged: %s", str(error).partition("\n")[0])

    def _merge(self) -> None:
        if begun_as(self._layout) == DELTA:
            began = time.monotonic()
            removed, added = compact_table(self._layout.landed)
            if removed:
                _LOGGER.info("%d files became %d in %.1f s", removed, added, time.monotonic() - began)
