"""Files of a table for tests of lists and commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.landing.event_rules import MessageKind
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import FileWriter, WrittenFile

AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def write_file(
    table: DeltaTable, offsets: Sequence[int], kind: str = "message", day: date | None = None
) -> WrittenFile:
    """Write a file with these offsets, without committing it."""
    writer = FileWriter(table.folder, MessageKind(kind), day or AT.date())
    base = {"topic": "t", "timestamp": AT, "landed_at": AT, "bucket": AT}
    writer.write(pa.RecordBatch.from_pylist([{**base, "offset": n} for n in offsets], schema=FILE_SCHEMA))
    return writer.close()


def offsets_in(landed: Path, names: Sequence[str]) -> list[int]:
    """Return the offsets in files of the table, which must exist."""
    return sorted(n for name in names for n in pq.read_table(landed / name, partitioning=None)["offset"].to_pylist())
