"""Rebuild a typed table from the table ``landed``, after its columns or their rules have changed.

Invariant: readers see the old table or the new one, never a mixture: one commit replaces all files, and the columns.
Crash: complete files are listed in a document (``Layout.typed_refill``), and the next run continues after them.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby

import deltalake.schema
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.landing_lock import PipelineRunning, acquire_landing_lock, hold_upkeep_lock, is_running
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import BEFORE_FIRST_BATCH, TypedDelta, read_starts, write_starts
from penstock.landing.typed.typed_files import is_of_events, write_typed
from penstock.landing.writing.written_file import WrittenFile
from penstock.upkeep.typed.fill import NotBegun

Report = Callable[[int, int], None]
"""Receives the number of finished days, and of all."""


class RefillWaits(PenstockError, RuntimeError):
    """The rows are converted, but a pipeline that runs would go on with the old columns."""


class ColumnsNotConfigured(PenstockError, ValueError):
    """The table has columns that the new one would not have."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete file of the new table that no commit names yet."""

    name: str
    kind: str
    date: str
    rows: int
    size: int
    statistics: str

    @classmethod
    def from_written(cls, file: WrittenFile) -> StagedFile:
        """Return the description of a file that a commit needs."""
        return cls(file.name, file.kind, file.date, file.rows, file.size, file.statistics)


def refill(
    layout: Layout, configured: TypedTable, *, drop: bool = False, report: Report = lambda finished, total: None
) -> int:
    """Rebuild the table as configured and return the number of its rows. ``drop``: also without further columns.

    A pipeline may land at the same time if the columns stay the same. Raises NotBegun, ColumnsNotConfigured,
    RefillWaits.
    """
    table = TypedDelta.configured(layout, configured)
    if not table.exists:
        raise NotBegun(f"{table.folder} does not exist yet: start the pipeline, which creates it")
    with hold_upkeep_lock(layout):
        # Order: before the commit. A document of a later version is an error, which must change nothing.
        starts = read_starts(layout)
        old, new = column_types(table.schema_now), column_types(configured.schema)
        if (unconfigured := [name for name in old if name not in new]) and not drop:
            raise ColumnsNotConfigured(
                f"{configured.view} has columns that are not configured: {', '.join(unconfigured)}. A refill removes "
                "them: repeat it with --drop-columns"
            )
        staging = _Staging(layout, configured, table)
        batch, files = staging.convert(report)
        if old == new:
            if is_running(layout) and configured.name not in starts:
                raise NotBegun(f"the pipeline does not write {configured.view}: start it with this configuration first")
            table.delete_rows(table.through(batch), files)
        else:
            with _hold_landing_lock(layout, configured):
                # Rows that landed during the conversion.
                batch, files = staging.convert(report)
                table.rebuild(batch, files)
        # Invariant: each refill lowers the start, so that readers of changes and exports read all rows again.
        # Order: after the commit; who reads in between reads all rows twice.
        lower = min(BEFORE_FIRST_BATCH, starts.get(configured.name, BEFORE_FIRST_BATCH) - 1)
        write_starts(layout, {**starts, configured.name: lower})
        # Order: last. Crash: a list of files that are in the table is ignored.
        staging.path.unlink(missing_ok=True)
    return sum(file.rows for file in files)


class _Staging:
    """The files of the new table, by the file of ``landed`` that each was made of; under the lock of upkeep."""

    def __init__(self, layout: Layout, configured: TypedTable, table: TypedDelta) -> None:
        self.path = layout.typed_refill(configured.name)
        self._layout, self._configured, self._folder = layout, configured, table.folder
        self._rules = hashlib.sha256(repr(configured).encode()).hexdigest()
        active = {*table.active()}
        # Order: read before the first file is written. A file of the table is there already if a run was killed
        # between its commit and the removal of the document; one that is missing was removed as unused for hours.
        self._staged = {
            source: files
            for source, files in self._read().items()
            if all(file.name not in active and (self._folder / file.name).exists() for file in files)
        }

    def convert(self, report: Report) -> tuple[int, list[StagedFile]]:
        """Convert the files of ``landed`` that are not staged; return its newest batch, and all files to commit."""
        batch, sources = self._list_sources()
        days = [(day, list(names)) for day, names in groupby(sources, lambda name: partition_value(name, "date"))]
        for finished, (_, names) in enumerate(days):
            report(finished, len(days))
            if missing := [name for name in names if name.live is not None or name not in self._staged]:
                self._staged.update({str(name): self._convert_file(name) for name in missing})
                self._write()
        return batch, [file for name in sources for file in self._staged[name]]

    def _list_sources(self) -> tuple[int, list[TableFile]]:
        landed = table_of(self._layout)
        while True:
            batch = landed.newest()
            names = [name for name in landed.active() if is_of_events(name)]
            # The pipeline may commit between the two reads; then both are read again.
            if landed.newest() == batch:
                return batch, names

    def _convert_file(self, name: TableFile) -> list[StagedFile]:
        written = write_typed(self._layout.landed, name, {self._folder: self._configured})
        return [StagedFile.from_written(file) for file in written.values()]

    def _read(self) -> dict[str, list[StagedFile]]:
        try:
            document = read_document(self.path)
            if document["rules"] == self._rules:
                return {
                    str(source): [StagedFile(**file) for file in files] for source, files in document["files"].items()
                }
        except (FileNotFoundError, DamagedFile, KeyError, TypeError, AttributeError):
            pass  # Files of other rules are removed with other files that no commit names.
        return {}

    def _write(self) -> None:
        staged = {source: [asdict(file) for file in files] for source, files in self._staged.items()}
        write_document(self.path, {"rules": self._rules, "files": staged})


@contextmanager
def _hold_landing_lock(layout: Layout, configured: TypedTable) -> Iterator[None]:
    """Keep pipelines from starting. Raises RefillWaits if one runs."""
    try:
        handle = acquire_landing_lock(layout, threading.Event(), patience=0)
    except PipelineRunning:
        raise RefillWaits(
            f"{configured.view}: all rows are converted, but its columns change, and a pipeline that runs would go on "
            "with the old ones: stop the pipeline and repeat the command, which then takes only moments"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def column_types(schema: pa.Schema) -> Mapping[str, str]:
    """Return the columns of a schema with their types in Delta."""
    fields: Sequence[deltalake.schema.Field] = deltalake.Schema.from_arrow(schema).fields
    return {field.name: str(field.type) for field in fields}
