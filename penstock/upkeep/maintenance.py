"""Background maintenance of a landed table: deletes rows, merges small files, removes obsolete files, checks all files.

Runs in one thread of the pipeline process, in parallel with the landing. Rows and files are removed by age only while
the clock is believed (``believed_clock``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.config import PipelineConfig
from penstock.landing.requests.deletions import newest_request, pending_deletions
from penstock.landing.storage.object_errors import translate_full_disk
from penstock.landing.table.delta_table import KEEP_HOURS, SchemaDiffers
from penstock.landing.table.landed_table import has_landed_table
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import TypedTable, configured_tables
from penstock.landing.typed.typed_tables import TypedTableAhead
from penstock.process.process_end import stop_thread
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.compaction.compaction import repair_entries
from penstock.upkeep.compaction.typed_compaction import compact_all, remove_old
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions, request_expired
from penstock.upkeep.repair.reread_rows import RowSources
from penstock.upkeep.repair.scrub import Scrub

REQUEST_POLL_S = 2.0
"""Interval between checks for deletion requests; each is one directory listing."""
RETENTION_INTERVAL_S = 600.0
FIRST_SWEEP_DELAY_S, SWEEP_INTERVAL_S = 60.0, 1800.0
FOLLOW_INTERVAL_S = 10.0
"""Interval between reads of the settings that the daemon has after reloads."""
SCRUB_INTERVAL_S = 60.0
"""Time between checks of one file of the tables: 1,440 files a day, at most 128 MB each."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The settings of maintenance.

    ``merge_every`` is in seconds (0: never), ``window`` of duplicates in microseconds; ``retention`` maps a kind or
    type to seconds. ``typed``: the tables that the landing writes.
    """

    merge_every: float = 0.0
    window: int = 0
    retention: Mapping[str, float] = field(default_factory=dict)
    typed: tuple[TypedTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Follow:
    """The settings that the log daemon has after reloads: ``read`` returns the keys ``config.reloadable.FOLLOWED``.

    ``is_binding``: the daemon has the pipeline's own configuration, as under ``penstock up``. Otherwise a key is
    followed only if it is equal at first: a pipeline with other options keeps its own.
    """

    read: Callable[[], PipelineConfig]
    is_binding: bool


class Maintenance:
    """The maintenance thread of one table. ``all_proved`` reports whether every committed batch is proved.

    Order: a proof reads rows from the table again, so a row that is deleted before its proof would look like a loss.
    """

    def __init__(
        self,
        layout: Layout,
        upkeep: Upkeep,
        clock: BelievedClock,
        all_proved: Callable[[], bool] = lambda: True,
        topics: Path | None = None,
        follow: Follow | None = None,
        sources: RowSources | None = None,
    ) -> None:
        """``topics``: the folder of the log, if it is on this machine; ``follow``: settings that a reload changes;
        ``sources``: Kafka, if its topics are landed.
        """
        self._follow, self._follow_at = follow, time.monotonic()
        # A pipeline that is restarted after a reload has the settings from before it, until it has read the new ones.
        self._is_current = follow is None or not follow.is_binding
        self._followed: Sequence[str] | None = None
        self._change_typed: Callable[[Sequence[TypedTable]], None] | None = None
        self._refused: Sequence[TypedTable] | None = None
        self._repair_is_due = False
        self._scrub, self._scrub_at = Scrub(layout, topics, sources), time.monotonic() + SCRUB_INTERVAL_S
        self._layout, self._upkeep, self._clock, self._all_proved = layout, upkeep, clock, all_proved
        self._expire_at = time.monotonic()
        self._merge_at = time.monotonic() + upkeep.merge_every
        self._sweep_at = time.monotonic() + FIRST_SWEEP_DELAY_S
        self._executed_up_to = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread. It waits for the table if that is not created yet."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Stop the thread and return whether it ended within ``timeout_s``. Interrupted work has changed nothing."""
        return stop_thread(self._thread, self._stop, timeout_s)

    @property
    def typed(self) -> tuple[TypedTable, ...]:
        """The typed tables after reloads."""
        return self._upkeep.typed

    def attach(self, change_typed: Callable[[Sequence[TypedTable]], None] | None) -> None:
        """Change typed tables by this function; None while no query runs."""
        self._change_typed = change_typed

    def _run(self) -> None:
        delay_s = REQUEST_POLL_S
        while not self._stop.wait(delay_s):
            self._clock.watch()
            # All run even if one fails: on a full disk a deletion may fail while the sweep still frees space.
            tasks = (self._follow_reload, self._run_due_deletions, self._merge_and_sweep, self._check_file)
            failures = [task for task in tasks if not self._try(task)]
            delay_s = min(delay_s * 2, RETENTION_INTERVAL_S) if failures else REQUEST_POLL_S

    def _try(self, task: Callable[[], None]) -> bool:
        try:
            if has_landed_table(self._layout):
                with translate_full_disk(self._layout.store or self._layout.tables):
                    task()
        except Exception as error:  # noqa: BLE001 - reported, and tried again later and later
            _LOGGER.warning("maintenance failed and is retried: %s", str(error).partition("\n")[0])
            return False
        return True

    def step(self) -> None:
        """Run the due tasks once."""
        self._follow_reload()
        self._run_due_deletions()
        self._merge_and_sweep()

    def _follow_reload(self) -> None:
        """Take over the settings of a reload. Raises PenstockError while the daemon does not answer."""
        now = time.monotonic()
        if self._follow is None or now < self._follow_at:
            return
        self._follow_at = now + FOLLOW_INTERVAL_S
        settings = self._follow.read()
        read: dict[str, Any] = {
            "retention": settings.retention,
            "merge_every": settings.merge_files_every,
            "typed": configured_tables(settings),
        }
        if self._followed is None:
            own = [name for name in read if not self._follow.is_binding and read[name] != getattr(self._upkeep, name)]
            self._followed = [name for name in read if name not in own]
            if own:
                _LOGGER.info(
                    "maintenance: the daemon has other settings of the pipeline (%s): not followed", ", ".join(own)
                )
        self._is_current = True
        changes = {name: read[name] for name in self._followed if read[name] != getattr(self._upkeep, name)}
        if "typed" in changes and not self._follow_typed(changes["typed"]):
            del changes["typed"]
        if changes:
            _LOGGER.info("maintenance: follows a reload of the pipeline's settings (%s)", ", ".join(changes))
            self._upkeep = replace(self._upkeep, **changes)
            self._expire_at, self._merge_at = now, now + self._upkeep.merge_every

    def _follow_typed(self, tables: Sequence[TypedTable]) -> bool:
        """Let the landing write these typed tables; report whether it does."""
        if self._change_typed is None or tables == self._refused:
            return False
        try:
            self._change_typed(tables)
        except (SchemaDiffers, TypedTableAhead) as error:
            self._refused = tables
            _LOGGER.error("the typed tables of the reloaded configuration are not written: %s", error)
            return False
        return True

    def _run_due_deletions(self) -> None:
        """Turn expired retention into deletion requests, then execute open requests if every batch is proved."""
        now = time.monotonic()
        if is_due := now >= self._expire_at:
            self._expire_at = now + RETENTION_INTERVAL_S
            self._clock.store_time()
            self._request_expired_rows()
        # Order: the complaint is noted before its cause is gone. A repair that failed is due at the next step; after a
        # crash the next merge or sweep does it.
        self._repair_is_due = note_foreign_changes(self._layout, retry=is_due) > 0 or self._repair_is_due
        if self._repair_is_due:
            repair_entries(self._layout)
            self._repair_is_due = False
        # Order: the proofs first, see the class.
        if self._has_open_requests() and self._all_proved():
            executed = execute_deletions(self._layout, self._upkeep.window, self._clock.expected_micros())
            if executed:
                _LOGGER.info("maintenance: executed %d deletion requests", executed)

    def _request_expired_rows(self) -> None:
        if not self._is_current:
            self._expire_at = 0.0  # as soon as the settings are read
            return
        if self._upkeep.retention and not self._has_open_requests() and (time_s := self._clock.now()) is not None:
            request_expired(self._layout, dict(self._upkeep.retention), time_s)

    def _merge_and_sweep(self) -> None:
        """Merge small files, and remove files that no reader can need any more."""
        now = time.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_INTERVAL_S
            # delta-rs compares its own reading of the clock with times that were written when a file was replaced.
            if self._clock.now_if_steady(KEEP_HOURS) is not None:
                remove_old(self._layout)
        if self._upkeep.merge_every and now >= self._merge_at:
            self._merge_at = now + self._upkeep.merge_every
            self._merge()

    def _check_file(self) -> None:
        """Check one file of the tables. A proof reads the files of its batch, so only once all are proved."""
        now = time.monotonic()
        if now >= self._scrub_at and self._all_proved():
            self._scrub_at = now + SCRUB_INTERVAL_S
            self._scrub.check_next(self._upkeep.typed)

    def _has_open_requests(self) -> bool:
        # Fast path: reading all requests is slow, so the number up to which all are executed is remembered.
        if (newest := newest_request(self._layout)) > self._executed_up_to and not pending_deletions(self._layout):
            self._executed_up_to = newest
        return newest > self._executed_up_to

    def _merge(self) -> None:
        started_at = time.monotonic()
        removed, added = compact_all(self._layout)
        if removed:
            _LOGGER.info(
                "maintenance: merged %d files into %d in %.1f s", removed, added, time.monotonic() - started_at
            )
