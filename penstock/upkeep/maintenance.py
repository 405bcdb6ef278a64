"""Background maintenance of a landed table: deletes rows, merges small files, removes obsolete files.

Runs in one thread of the pipeline process, in parallel with the landing. Rows and files are removed by age only while
the clock is believed (``believed_clock``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.landing.requests.deletions import newest_request, pending_deletions
from penstock.landing.table.delta_table import KEEP_HOURS
from penstock.landing.table.landed_table import has_landed_table
from penstock.landing.table_paths import Layout
from penstock.process.process_end import stop_thread
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.compaction.typed_compaction import compact_all, remove_old
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import carry_out, expire

LOOK = 2.0
"""Seconds between looks whether somebody asked for a deletion: one listing of a folder."""
EXPIRE_EVERY = 600.0
SWEEP_FIRST, SWEEP_EVERY = 60.0, 1800.0
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What there is to be done to a table: files are merged every so many seconds (0: never), rows kept as long as
    ``retention`` says by kind or type. ``window``: of duplicates, in microseconds.
    """

    merge_every: float = 0.0
    window: int = 0
    retention: Mapping[str, float] = field(default_factory=dict)


class Maintenance:
    """The maintenance thread of one table. ``settled`` reports whether every committed batch is proved.

    Order: a proof reads rows from the table again, so a row that is deleted before its proof would look like a loss.
    """

    def __init__(
        self, layout: Layout, upkeep: Upkeep, clock: BelievedClock, settled: Callable[[], bool] = lambda: True
    ) -> None:
        self._layout, self._upkeep, self._clock, self._settled = layout, upkeep, clock, settled
        self._expire_at = time.monotonic()
        self._merge_at = time.monotonic() + upkeep.merge_every
        self._sweep_at = time.monotonic() + SWEEP_FIRST
        self._done = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Begin; a table that is to be begun yet is waited for."""
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """End; whether it has, which is waited for so many seconds, once. What is cut off then has changed nothing."""
        return stop_thread(self._thread, self._stop, patience)

    def _run(self) -> None:
        pause = LOOK
        while not self._stop.wait(pause):
            self._clock.watch()
            failed = [what for what in (self._take_out, self._put_together) if not self._done_with(what)]
            pause = min(pause * 2, EXPIRE_EVERY) if failed else LOOK

    def _done_with(self, what: Callable[[], None]) -> bool:
        """Whether it went well. One that fails, as on a full disk, does not keep the other from its turn."""
        try:
            if has_landed_table(self._layout):
                what()
        except Exception as error:  # noqa: BLE001 - reported, and tried again later and later
            _LOGGER.warning("the table could not be maintained: %s", str(error).partition("\n")[0])
            return False
        return True

    def step(self) -> None:
        """Do what is due."""
        self._take_out()
        self._put_together()

    def _take_out(self) -> None:
        """Turn expired retention into deletion requests, then execute open requests if every batch is proved."""
        now = time.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_EVERY
            self._clock.keep()
            self._request_expired_rows()
        note_foreign_changes(self._layout)
        if self._waits() and self._settled():
            done = carry_out(self._layout, self._upkeep.window, self._clock.expected_micros())
            if done:
                _LOGGER.info("%d deletions done", done)

    def _request_expired_rows(self) -> None:
        if self._upkeep.retention and not self._waits() and (time_s := self._clock.now()) is not None:
            expire(self._layout, dict(self._upkeep.retention), time_s)

    def _put_together(self) -> None:
        """Merge small files, and remove files that no reader can need any more."""
        now = time.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY
            # delta-rs compares its own reading of the clock with times that were written when a file was replaced.
            if self._clock.settled_now(KEEP_HOURS) is not None:
                remove_old(self._layout)
        if self._upkeep.merge_every and now >= self._merge_at:
            self._merge_at = now + self._upkeep.merge_every
            self._merge()

    def _waits(self) -> bool:
        """Whether a deletion is to be done."""
        if (asked := newest_request(self._layout)) > self._done and not pending_deletions(self._layout):
            self._done = asked
        return asked > self._done

    def _merge(self) -> None:
        began = time.monotonic()
        removed, added = compact_all(self._layout)
        if removed:
            _LOGGER.info("%d files became %d in %.1f s", removed, added, time.monotonic() - began)
