"""The thread of an export: reads changes of the tables since the target's position, and applies them.

The thread may be killed at any moment: each step begins at the position that the target has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.config.keys.export import CLICKHOUSE, DUCKDB, POSTGRESQL, ExportConfig
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.requests.deletions import RETENTION
from penstock.landing.rows.engine import pc
from penstock.landing.table.delta_table import KEEP_HOURS
from penstock.landing.table.landed_table import has_landed_table
from penstock.landing.table_paths import Layout
from penstock.upkeep.changes import NoSuchSource, read_changes
from penstock.upkeep.export.target import Target

MAX_BACKOFF_S = 60.0
"""Limit: time between two attempts while the target is away."""
UPKEEP_INTERVAL_S = 1800.0
"""Time between two merges of small files in a Delta table."""
_LOGGER = logging.getLogger(__name__)


class Exporter:
    """A running export. Owned by the pipeline; all work happens in its thread, or in ``step``."""

    def __init__(self, layout: Layout, config: ExportConfig, settled_now: Callable[[float], float | None]) -> None:
        """``settled_now``: see ``BelievedClock``; replaced files are removed only at a time that it returns."""
        self._layout, self._config, self._settled_now = layout, config, settled_now
        self._failure, self._batch, self._upkeep_at = "", -1, time.monotonic() + UPKEEP_INTERVAL_S
        self._deletion = 0
        # Until the first step, the export counts as up to date at its start.
        self._exported_at = time.time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"export-{config.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._store()
        self._thread.start()

    def request_stop(self) -> None:
        """Make the thread export what landed last and end."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread, and return whether it ended within ``timeout_s``."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        delay_s = self._config.every
        while not self._stop.wait(delay_s):
            delay_s = self._config.every if self._try_step() else min(delay_s * 2, max(MAX_BACKOFF_S, delay_s))
        self._try_step()

    def _try_step(self) -> bool:
        try:
            self.step()
            self._failure = ""
        except Exception as error:  # noqa: BLE001 - of drivers and of the tables; reported, and tried again
            failure = str(error).partition("\n")[0] or type(error).__name__
            if failure != self._failure:
                self._failure = failure
                _LOGGER.warning("export %s: not up to date, and retried: %s", self._config.name, failure)
            self._store()
            return False
        return True

    def step(self) -> int:
        """Bring the target up to date; return the number of added rows. Raises TargetAway, TargetMoved."""
        started_at = time.time()
        if not has_landed_table(self._layout):
            return 0
        with open_target(self._config, self._layout) as target:
            position = target.position()
            try:
                changes = read_changes(self._layout, self._config.source, position)
            except NoSuchSource:
                if self._config.source.startswith("events_"):
                    return 0  # the pipeline creates a typed table before its first batch
                raise
            rows = 0
            if changes.next.batch >= 0 and changes.next != position:
                deleted = changes.deleted
                if not self._config.retention:
                    deleted = deleted.filter(pc.not_equal(deleted["why"], pa.scalar(RETENTION)))
                rows = target.apply(changes, deleted, position)
            self._keep_up(target)
        self._exported_at, self._failure, self._batch = started_at, "", changes.next.batch
        self._deletion = changes.next.deletion or 0
        self._store()
        return rows

    def _keep_up(self, target: Target) -> None:
        """Merge small files of a Delta table and remove replaced ones, if it is time."""
        if time.monotonic() < self._upkeep_at or self._config.scheme in (*POSTGRESQL, *CLICKHOUSE, *DUCKDB):
            return
        from penstock.upkeep.export.delta_copy import DeltaTarget

        assert isinstance(target, DeltaTarget)
        self._upkeep_at = time.monotonic() + UPKEEP_INTERVAL_S
        target.merge()
        # Deleted rows are in replaced files until then.
        if self._settled_now(KEEP_HOURS) is not None:
            target.vacuum(KEEP_HOURS)

    def _store(self) -> None:
        """Store the state of the export, for the log daemon's metrics and for ``penstock export list``."""
        self._layout.exports.mkdir(parents=True, exist_ok=True)
        document = {
            "at": self._exported_at,
            "failure": self._failure,
            "batch": self._batch,
            "deletion": self._deletion,
            "retention": self._config.retention,
        }
        write_document(self._layout.exports / f"{self._config.name}.json", document)


class Exporters:
    """All exports of a pipeline."""

    def __init__(
        self, layout: Layout, configs: Sequence[ExportConfig], settled_now: Callable[[float], float | None]
    ) -> None:
        self._exporters = [Exporter(layout, config, settled_now) for config in configs]
        # Those that are no longer configured are not late.
        names = {f"{config.name}.json" for config in configs}
        for path in layout.exports.glob("*.json"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def start(self) -> None:
        """Start a thread for each export: a target that is away delays no other one."""
        for exporter in self._exporters:
            exporter.start()

    def stop(self, timeout_s: float) -> bool:
        """Export what landed last, stop all threads, and return whether they ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        for exporter in self._exporters:
            exporter.request_stop()
        ended = [exporter.join(max(0.0, deadline - time.monotonic())) for exporter in self._exporters]
        return all(ended)


def read_state(layout: Layout, name: str) -> dict[str, Any]:
    """Return ``batch``, ``until`` (ISO, "" for never) and ``failure`` of an export."""
    try:
        state = read_document(layout.exports / f"{name}.json")
        until = datetime.fromtimestamp(float(state["at"]), UTC).isoformat(timespec="seconds")
        return {"batch": int(state["batch"]), "until": until, "failure": str(state["failure"])}
    except FileNotFoundError:
        return {"batch": -1, "until": "", "failure": "no pipeline has run it yet"}
    except (DamagedFile, KeyError, TypeError, ValueError, OverflowError, OSError):
        return {"batch": -1, "until": "", "failure": "its state is damaged: the next step writes it again"}


def open_target(config: ExportConfig, layout: Layout) -> Target:
    """Open the target of an export. Raises TargetAway, OSError, UnsafeFile, KeyError (of the password)."""
    # Imported late: each needs a library that others do without.
    if config.scheme in POSTGRESQL:
        from penstock.upkeep.export.postgresql import PostgresqlTarget

        return PostgresqlTarget(config)
    if config.scheme in CLICKHOUSE:
        from penstock.upkeep.export.clickhouse import ClickhouseTarget

        return ClickhouseTarget(config)
    if config.scheme in DUCKDB:
        from penstock.upkeep.export.duckdb_file import DuckdbTarget

        return DuckdbTarget(config)
    from penstock.upkeep.export.delta_copy import DeltaTarget

    return DeltaTarget(config, layout)
