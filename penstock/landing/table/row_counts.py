"""Numbers of landed rows by type or by host, counted in the table's files without Spark or the daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import RowReader, TableFile, open_rows
from penstock.landing.table_paths import Layout, partition_value

TYPE = "type"
HOST = "host"

ReportProgress = Callable[[int, int], None]
"""Receives the number of files that were read, and of all files."""


class RowCounts:
    """Counts of rows by kind (event, syslog, message, quarantine) and type or host. Not thread-safe.

    A file is read once; counts are repeated while the table grows.
    """

    def __init__(self, layout: Layout, column: str, within: range | None = None) -> None:
        """Count by ``column`` (TYPE or HOST), in the buckets ``within`` (seconds since the epoch; None: all)."""
        self._layout, self._column, self._within = layout, column, within
        self._files: dict[tuple[str, int], Counter[tuple[str, str]]] = {}

    def count(self, report: ReportProgress = lambda number, of: None) -> Counter[tuple[str, str]]:
        """Return the number of committed rows by kind and value; "" for rows without a value."""
        files = table_of(self._layout).active()
        # A file whose deletion vector changed has another identity, and is read again.
        counted = self._files
        self._files = {file.identity: counted[file.identity] for file in files if file.identity in counted}
        for number, file in enumerate(files, 1):
            report(number, len(files))
            if file.identity not in self._files:
                self._files[file.identity] = self._count_file(file)
        return sum(self._files.values(), Counter())

    def _count_file(self, file: TableFile) -> Counter[tuple[str, str]]:
        kind = partition_value(file, "kind")
        counts: Counter[tuple[str, str]] = Counter()
        try:
            with open_rows(self._layout.landed, file) as reader:
                for rows in self._row_groups(reader):
                    # The stub knows no structs.
                    for entry in pc.value_counts(rows[self._column]).to_pylist():  # type: ignore[misc]
                        counts[kind, entry["values"] or ""] += entry["counts"]  # type: ignore[index]
        except FileNotFoundError:  # removed from the table since it was listed
            return Counter()
        return counts

    def _row_groups(self, reader: RowReader) -> Iterator[pa.Table]:
        """Yield the row groups, without rows of other buckets."""
        for group in reader.groups():
            rows = reader.read_group(group, [self._column, "bucket"])
            if self._within is not None:
                micros = pc.cast(rows["bucket"], pa.timestamp("us", "UTC")).cast(pa.int64())
                # Limit: a range without an end would overflow as microseconds.
                bounds = (self._within.start, min(self._within.stop, 1 << 40))
                since, until = (pa.scalar(bound * 1_000_000) for bound in bounds)
                rows = rows.filter(pc.and_(pc.greater_equal(micros, since), pc.less(micros, until)))
            yield rows
