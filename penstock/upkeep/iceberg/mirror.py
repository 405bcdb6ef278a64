"""The thread that keeps Iceberg tables of a catalog up to date with the Delta tables.

The thread may be killed at any moment: each step compares the tables again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.config.keys.pipeline import IcebergConfig
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.mirror_lag import store_mirrored
from penstock.landing.storage.object_path import S3_ARGUMENTS, ObjectPath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables
from penstock.landing.writing.written_file import copy_rows
from penstock.process.process_end import stop_thread
from penstock.upkeep.compaction.compaction import apply_vectors, removed_on_failure

if TYPE_CHECKING:
    from penstock.upkeep.iceberg.mirrored_table import DeltaSnapshot, MirroredTable, NotMirrored

METADATA_FOLDER = "_iceberg"
"""Folder of the metadata below the tables: readers of the data can read it, too."""
_S3_PROPERTIES = {
    "access_key": "s3.access-key-id",
    "secret_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint_override": "s3.endpoint",
}
"""PyIceberg's names of PyArrow's options for S3."""
_SYNCED_IO = "penstock.upkeep.iceberg.synced_io.SyncedFileIO"
_LOGGER = logging.getLogger(__name__)


class IcebergMirror:
    """The mirror of the tables of a layout. Owned by the pipeline; all work happens in its thread, or in ``step``."""

    def __init__(self, layout: Layout, config: IcebergConfig, now_if_steady: Callable[[float], float | None]) -> None:
        """``now_if_steady``: see ``BelievedClock``; snapshots expire only at a time that it returns."""
        self._layout, self._config, self._now_if_steady = layout, config, now_if_steady
        self._expire_at, self._failure = 0.0, ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="iceberg", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if not self._layout.mirrored.exists():
            # Order: before the first snapshot, because from then on files are removed only after they left it.
            store_mirrored(self._layout, 0.0)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Mirror what landed last, stop the thread, and return whether it ended within ``timeout_s``."""
        return stop_thread(self._thread, self._stop, timeout_s)

    def _run(self) -> None:
        while not self._stop.wait(self._config.every):
            self._try_step()
        self._try_step()

    def _try_step(self) -> None:
        try:
            self.step()
            self._failure = ""
        except Exception as error:  # noqa: BLE001 - of PyIceberg, which has no common error; reported, and tried again
            failure = f"{type(error).__name__}: {error}".partition("\n")[0]
            if failure != self._failure:
                self._failure = failure
                _LOGGER.warning(
                    "iceberg: the catalog %s is not updated, retried every %g s: %s",
                    self._config.catalog,
                    self._config.every,
                    failure,
                )

    def step(self) -> int:
        """Bring all Iceberg tables up to date; return the number of files that were added or removed."""
        if not has_landed_table(self._layout):
            return 0
        # Imported late: only a mirror needs PyIceberg, which takes a second.
        from pyiceberg.catalog import load_catalog

        from penstock.upkeep.iceberg.mirrored_table import (
            EXPIRY_INTERVAL_S,
            SNAPSHOT_HOURS,
            MirroredTable,
            NotMirrored,
        )

        # Order: before the snapshots, so that all of them are without the rows of this deletion.
        started_at, deletion, changed = time.time(), table_of(self._layout).last_deletion(), 0
        catalog = load_catalog(self._config.catalog, **catalog_properties(self._layout, self._config))
        is_expiring = time.monotonic() >= self._expire_at
        believed_s = self._now_if_steady(SNAPSHOT_HOURS) if is_expiring else None
        failure: NotMirrored | None = None
        for list_snapshot in _tables(self._layout):
            snapshot = list_snapshot()
            name = snapshot.table.folder.name.rpartition("/")[2]
            location = f"{_root(self._layout)}/{METADATA_FOLDER}/{name}"
            table = MirroredTable(catalog, f"{self._config.namespace}.{name}", location)
            try:
                changed += self._update(table, snapshot, list_snapshot)
                if believed_s is not None:
                    table.expire(believed_s)
            except NotMirrored as error:
                # The other tables are brought up to date nevertheless: this one may wait for its user.
                failure = failure or error
        if failure is not None:
            raise failure
        if believed_s is not None:
            self._expire_at = time.monotonic() + EXPIRY_INTERVAL_S
        store_mirrored(self._layout, started_at, deletion)
        return changed

    def _update(self, table: MirroredTable, snapshot: DeltaSnapshot, list_snapshot: Callable[[], DeltaSnapshot]) -> int:
        from penstock.upkeep.iceberg.mirrored_table import ForeignFiles

        try:
            return table.update(snapshot)
        except ForeignFiles as error:
            rewrite_files(self._layout, snapshot.table, error.names)
            return table.update(list_snapshot())


def _tables(layout: Layout) -> Iterator[Callable[[], DeltaSnapshot]]:
    """Yield what lists the files of each table; ``landed`` first: typed tables may be ahead of it, never behind."""
    landed = table_of(layout)
    yield lambda: _snapshot(layout, landed, landed.active)
    batch = landed.newest()
    for typed in existing_typed_tables(layout):
        # Only batches that ``landed`` has: a later one may be replaced when it is repeated.
        yield partial(_snapshot, layout, typed, partial(typed.through, batch), batch)
    if (proofs := DeltaTable(layout.proof_table)).exists:
        yield lambda: _snapshot(layout, proofs, proofs.active)


def rewrite_files(layout: Layout, table: DeltaTable, names: Sequence[str]) -> None:
    """Rewrite files of another program with the same rows, in the types of the table."""
    with hold_upkeep_lock(layout), removed_on_failure(table) as written:
        files = [file for file in table.active() if file in names and file.is_plain]
        written += [copy_rows(table.folder, file, form=table.form) for file in files]
        table.replace(files, written)


def _snapshot(
    layout: Layout, table: DeltaTable, listed: Callable[[], list[TableFile]], batch: int | None = None
) -> DeltaSnapshot:
    from penstock.upkeep.iceberg.mirrored_table import DeltaSnapshot

    if with_vectors := [file for file in table.active() if not file.is_plain]:
        # An Iceberg table over such a file would bring the deleted rows back.
        with hold_upkeep_lock(layout):
            apply_vectors(table, with_vectors)
    while True:
        version, files, newest = table.version(), listed(), table.newest()
        # The pipeline may commit between the reads; then they are repeated.
        if table.version() == version:
            return DeltaSnapshot(table, files, version, newest if batch is None else min(newest, batch))


def catalog_properties(layout: Layout, config: IcebergConfig) -> dict[str, str]:
    """Return PyIceberg's properties of the catalog: access to the tables' store, then the configured ones."""
    if not isinstance(layout.store, ObjectPath):
        return {"py-io-impl": _SYNCED_IO, **config.options}
    names = {key.lower().removeprefix("aws_"): text for key, text in layout.store.options.items()}
    store = {_S3_PROPERTIES[S3_ARGUMENTS[name]]: text for name, text in names.items() if name in S3_ARGUMENTS}
    return {**store, **config.options}


def _root(layout: Layout) -> str:
    return f"file://{layout.tables}" if layout.store is None else str(layout.store)
