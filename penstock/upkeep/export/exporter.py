"""The thread of an export: reads changes of the tables since the target's position, and applies them.

The thread may be killed at any moment: each step begins at the position that the target has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import pyarrow as pa

from penstock.config.keys.export import CLICKHOUSE, DUCKDB, POSTGRESQL, ExportConfig
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.offset_runs import Runs, joined
from penstock.landing.requests.deletions import REQUESTED, RETENTION, DeletionRecord
from penstock.landing.rows.engine import pc
from penstock.landing.table.delta_table import KEEP_HOURS
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table_paths import Layout
from penstock.upkeep.changes import NoSuchSource, Position, read_changes
from penstock.upkeep.export.target import Target, TargetInUse

MAX_BACKOFF_S = 60.0
"""Limit: time between two attempts while the target is away."""
UPKEEP_INTERVAL_S = 1800.0
"""Time between two merges of small files in a Delta table."""
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class AppliedDeletions:
    """The deletions that an export applied or skipped, for their certificates.

    ``skipped``: deletions of retention that it did not follow; up to ``unknown`` they may be, too. ``erased``: the last
    deletion whose rows are in no file of a Delta table; ``waiting``: later ones, with the time (seconds) at which their
    rows had left the table.
    """

    skipped: list[int] = field(default_factory=list)
    unknown: int = 0
    erased: int = 0
    waiting: list[tuple[int, float]] = field(default_factory=list)

    @classmethod
    def load(cls, layout: Layout, name: str) -> Self | None:
        """Load the state of an export; None if there is none, or if it is damaged."""
        try:
            state = read_document(layout.exports / f"{name}.json")["applied"]
            waiting = [(int(number), float(time_s)) for number, time_s in state["waiting"]]
            skipped = [int(number) for number in state["skipped"]]
            return cls(skipped, int(state["unknown"]), int(state["erased"]), waiting)
        except (DamagedFile, KeyError, TypeError, ValueError, OverflowError, OSError):
            return None

    def rewind(self, number: int) -> None:
        """Forget deletions after this one, which the target has not seen: it was restored."""
        self.erased = min(self.erased, number)
        self.waiting = [entry for entry in self.waiting if entry[0] <= number]

    def skip(self, numbers: Sequence[int]) -> None:
        """Enter deletions that are not followed."""
        self.skipped = sorted({*self.skipped, *numbers})

    def wait(self, number: int) -> None:
        """Enter the last deletion whose rows have left the table by now."""
        if number > max([self.erased, *(waiting for waiting, _ in self.waiting)]):
            # Crash: a deletion that was applied without being entered is entered later, so its files are waited for.
            self.waiting.append((number, time.time()))

    def erase(self, limit_s: float) -> None:
        """Enter that files which left the table before a time are removed."""
        self.erased = max([self.erased, *(number for number, time_s in self.waiting if time_s <= limit_s)])
        self.waiting = [(number, time_s) for number, time_s in self.waiting if time_s > limit_s]


class Exporter:
    """A running export. Owned by the pipeline; all work happens in its thread, or in ``step``."""

    def __init__(self, layout: Layout, config: ExportConfig, now_if_steady: Callable[[float], float | None]) -> None:
        """``now_if_steady``: see ``BelievedClock``; replaced files are removed only at a time that it returns."""
        self._layout, self._config, self._now_if_steady = layout, config, now_if_steady
        self._failure, self._batch, self._upkeep_at = "", -1, time.monotonic() + UPKEEP_INTERVAL_S
        self._deletion = 0
        self._applied = AppliedDeletions.load(layout, config.name)
        # Of the previous run: a start must not end the alarm about a target that is away. A first run counts as up to
        # date until its first step.
        self._exported_at = _stored_time(layout, config)
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
        """Bring the target up to date; return the number of added rows. Raises TargetAway, TargetInUse, TargetMoved."""
        started_at = time.time()
        if not has_landed_table(self._layout):
            return self._finish_early(started_at)
        with open_target(self._config, self._layout) as target:
            position = self._position(target)
            try:
                changes = read_changes(self._layout, self._config.source, position)
            except NoSuchSource:
                if self._config.source.startswith("events_"):
                    return self._finish_early(started_at)  # the pipeline creates a typed table before its first batch
                raise
            applied = self._applied or AppliedDeletions(unknown=(position and position.deletion) or 0)
            self._applied = applied
            if position is not None and position.deletion is not None:
                applied.rewind(position.deletion)
            rows = 0
            if changes.next.batch >= 0 and changes.next != position:
                if position is None and target.has_other_rows():
                    # The first step replaces all rows: not those of the owner's own table, or of another export.
                    raise TargetInUse(self._config.name, self._config.target_table, self._config.to)
                deleted = changes.deleted
                if not self._config.retention:
                    is_retention = pc.equal(deleted["why"], pa.scalar(RETENTION))
                    applied.skip(pc.unique(deleted.filter(is_retention)["deletion"]).to_pylist())
                    deleted = deleted.filter(pc.invert(is_retention))
                    # Crash: before the target has the position, since later steps do not see the deletions again.
                    self._store()
                rows = target.apply(changes, deleted, position)
                if changes.is_complete:
                    # No row of an earlier deletion is added; files of earlier rows may still be there.
                    applied = self._applied = AppliedDeletions()
            applied.wait(changes.next.deletion or 0)
            self._keep_up(target, applied)
        self._exported_at, self._failure, self._batch = started_at, "", changes.next.batch
        self._deletion = changes.next.deletion or 0
        self._store()
        return rows

    def _position(self, target: Target) -> Position | None:
        """Return the position of the target, None after another program brought a Delta table back."""
        position = target.position()
        if position is None or self._is_database:
            return position
        from penstock.upkeep.export.delta_copy import DeltaTarget

        assert isinstance(target, DeltaTarget)
        commit = target.find_step_back(lambda: self._deleted_runs(position.deletion or 0))
        if commit is None:
            return position
        _LOGGER.error(
            "export %s: version %d of %s is %s of %s, which brought rows back: all rows are copied again",
            *(self._config.name, commit.version, self._config.to, commit.operation, commit.engine),
        )
        # Order: forgotten durably before the step, which a kill may end.
        target.forget()
        return None

    def _deleted_runs(self, last: int) -> dict[str, Runs]:
        """Return the offsets that the target no longer has, by topic, up to a deletion."""
        followed = (REQUESTED, RETENTION) if self._config.retention else (REQUESTED,)
        deletions = DeletionRecord(self._layout).runs_since(0)
        return joined(runs for deletion, _, runs in deletions if deletion.number <= last and deletion.why in followed)

    def _finish_early(self, started_at: float) -> int:
        """Store the time of a step without anything to export: no row is late."""
        self._exported_at, self._failure = started_at, ""
        self._store()
        return 0

    @property
    def _is_database(self) -> bool:
        return self._config.scheme in (*POSTGRESQL, *CLICKHOUSE, *DUCKDB)

    def _keep_up(self, target: Target, applied: AppliedDeletions) -> None:
        """Merge small files of a Delta table and remove replaced ones, if it is time."""
        if time.monotonic() < self._upkeep_at or self._is_database:
            return
        from penstock.upkeep.export.delta_copy import DeltaTarget

        assert isinstance(target, DeltaTarget)
        self._upkeep_at = time.monotonic() + UPKEEP_INTERVAL_S
        target.merge()
        # Deleted rows are in replaced files until then.
        limit_s = time.time() - KEEP_HOURS * 3600
        if self._now_if_steady(KEEP_HOURS) is not None and target.vacuum(KEEP_HOURS):
            applied.erase(limit_s)

    def _store(self) -> None:
        """Store the state of the export, for the log daemon's metrics and for ``penstock export list``."""
        self._layout.exports.mkdir(parents=True, exist_ok=True)
        document = {
            "at": self._exported_at,
            "failure": self._failure,
            "batch": self._batch,
            "deletion": self._deletion,
            "retention": self._config.retention,
            "source": self._config.source,
            "database": self._is_database,
            **({} if self._applied is None else {"applied": asdict(self._applied)}),
        }
        write_document(self._layout.exports / f"{self._config.name}.json", document)


class Exporters:
    """All exports of a pipeline."""

    def __init__(
        self, layout: Layout, configs: Sequence[ExportConfig], now_if_steady: Callable[[float], float | None]
    ) -> None:
        self._exporters = [Exporter(layout, config, now_if_steady) for config in configs]
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


def _stored_time(layout: Layout, config: ExportConfig) -> float:
    """Return the time (seconds since the epoch) up to which an export has all rows; now without a state."""
    try:
        state = read_document(layout.exports / f"{config.name}.json")
        return min(float(state["at"]), time.time()) if state["source"] == config.source else time.time()
    except (DamagedFile, KeyError, TypeError, ValueError, OverflowError, OSError):
        return time.time()


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
    owner = table_of(layout).identity
    # Imported late: each needs a library that others do without.
    if config.scheme in POSTGRESQL:
        from penstock.upkeep.export.postgresql import PostgresqlTarget

        return PostgresqlTarget(config, owner)
    if config.scheme in CLICKHOUSE:
        from penstock.upkeep.export.clickhouse import ClickhouseTarget

        return ClickhouseTarget(config, owner)
    if config.scheme in DUCKDB:
        from penstock.upkeep.export.duckdb_file import DuckdbTarget

        return DuckdbTarget(config, owner)
    from penstock.upkeep.export.delta_copy import DeltaTarget

    return DeltaTarget(config, layout, owner)
