"""Landed rows by type or by host, counted in the table's own files. No Spark, no daemon."""

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
"""Is told how many of how many files were read."""


class RowCounts:
    """Counts rows by kind (event, syslog, message, quarantine) and type or host; a file is read once."""

    def __init__(self, layout: Layout, column: str, within: range | None = None) -> None:
        """``column``: TYPE or HOST. ``within``: seconds since the epoch of the buckets that count; None: all."""
        self._layout, self._column, self._within = layout, column, within
        self._files: dict[tuple[str, int], Counter[tuple[str, str]]] = {}

    def count(self, report: ReportProgress = lambda number, of: None) -> Counter[tuple[str, str]]:
        """Rows that are committed now by kind and value; "" where a row has none."""
        names = table_of(self._layout).active()
        known = self._files
        self._files = {name.identity: known[name.identity] for name in names if name.identity in known}
        for number, name in enumerate(names, 1):
            report(number, len(names))
            if name.identity not in self._files:
                self._files[name.identity] = self._count(name)
        return sum(self._files.values(), Counter())

    def _count(self, name: TableFile) -> Counter[tuple[str, str]]:
        kind = partition_value(name, "kind")
        try:
            with open_rows(self._layout.landed, name) as file:
                found = self._by_value(file)
        except FileNotFoundError:  # taken out of the table since it was listed
            return Counter()
        return Counter({(kind, value): rows for value, rows in found.items() if rows})

    def _by_value(self, file: RowReader) -> Counter[str]:
        found: Counter[str] = Counter()
        for rows in self._rows(file):
            for counted in pc.value_counts(rows[self._column]).to_pylist():  # type: ignore[misc]  # the stub of structs
                found[counted["values"] or ""] += counted["counts"]  # type: ignore[index]  # as above
        return found

    def _rows(self, file: RowReader) -> Iterator[pa.Table]:
        """The row groups, with the rows of the buckets that count."""
        for group in file.groups():
            rows = file.read_group(group, [self._column, "bucket"])
            if self._within is not None:
                micros = pc.cast(rows["bucket"], pa.timestamp("us", "UTC")).cast(pa.int64())
                bounds = (self._within.start, min(self._within.stop, 1 << 40))
                since, until = (pa.scalar(bound * 1_000_000) for bound in bounds)
                rows = rows.filter(pc.and_(pc.greater_equal(micros, since), pc.less(micros, until)))
            yield rows
