"""Rows of a typed table that a refill would change: stored values compared with the ones of the configuration.

A table does not say by which rules its rows were written, so a changed contract, default or path is found in the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import Mask, as_mask, pc
from penstock.landing.table.table_file import open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.landing.typed.typed_files import ROW_KEY, matching_rows
from penstock.records import concatenated
from penstock.upkeep.typed.found_fields import recent_events

EXAMPLE_COLUMNS = ["topic", "partition", "offset", "uuid"]
"""Columns of ``landed`` that an example has."""
JOINED_BYTES = 256 << 20
"""Limit: events that are compared at once; 100,000 usual events have a tenth of it."""


@dataclass(slots=True)
class ChangedColumn:
    """A column, the number of rows whose value a refill would change, and examples with both values."""

    column: str
    rows: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def find_changed_rows(
    layout: Layout, configured: TypedTable, max_events: int, max_examples: int = 0
) -> list[ChangedColumn]:
    """Return the columns in which stored rows of the newest events differ from the configuration; write nothing.

    Columns of another type, and rows that the table lacks, are left out. Raises ArrowInvalid, OSError and
    PenstockErrors for files that cannot be read.
    """
    table = TypedDelta.configured(layout, configured)
    if not table.exists:
        return []
    stored_schema = table.schema_now
    columns = [
        column.name
        for column in configured.columns
        if column.name in stored_schema.names
        and configured.schema.field(column.name).type.equals(stored_schema.field(column.name).type)
    ]
    changed = {name: ChangedColumn(name) for name in columns}
    for events in _join(recent_events(layout, configured.type, max_events, [*EXAMPLE_COLUMNS, "timestamp"])):
        values = configured.compute(events["data"])
        for rows, stored in _stored_rows(table, events, columns):
            for name in columns:
                fresh = values[name].take(pa.array(rows))
                is_changed = _differ(stored[name], fresh)
                changed[name].rows += int(np.count_nonzero(is_changed))
                shown = np.flatnonzero(is_changed)[: max_examples - len(changed[name].examples)]
                if len(shown):
                    changed[name].examples += _examples(events, rows[shown], stored[name], fresh, shown)
    return [column for column in changed.values() if column.rows]


def _join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several batches at once: for each, all files of its days are read if the table lacks a row."""
    parts, size = list[pa.RecordBatch](), 0
    for batch in batches:
        parts.append(batch)
        if (size := size + batch.nbytes) >= JOINED_BYTES:
            yield concatenated(parts)
            parts, size = [], 0
    if parts:
        yield concatenated(parts)


def _stored_rows(
    table: TypedDelta, events: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[np.ndarray[Any, Any], pa.RecordBatch]]:
    """Yield the table's rows of events, and for each the number of its event."""
    keys = pa.table({name: events[name] for name in ROW_KEY})
    days: set[date] = {*pc.unique(events["timestamp"].cast(pa.date32())).to_pylist()}
    missing = events.num_rows
    names = [name for name in table.active() if date.fromisoformat(partition_value(name, "date")) in days]
    # Fast path: newest files first, and none after the last event is found.
    for name in sorted(names, key=lambda name: (partition_value(name, "date"), name.hour or 0), reverse=True):
        if not missing:
            return
        with open_rows(table.folder, name) as file:
            for batch in file.batches([*ROW_KEY, *columns]):
                of_events, of_batch = matching_rows(keys, pa.table({key: batch[key] for key in ROW_KEY}))
                missing -= len(of_events)
                if len(of_events):
                    yield of_events, batch.select(list(columns)).take(pa.array(of_batch))


def _differ(stored: pa.Array[Any], fresh: pa.Array[Any]) -> Mask:
    if pa.types.is_nested(fresh.type):
        pairs = zip(stored.to_pylist(), fresh.to_pylist(), strict=True)
        return np.fromiter((old != new for old, new in pairs), bool, len(fresh))
    stored = stored if stored.type.equals(fresh.type) else stored.cast(fresh.type)
    is_valid = as_mask(pc.is_valid(stored)), as_mask(pc.is_valid(fresh))
    differ: Mask = (is_valid[0] != is_valid[1]) | as_mask(pc.not_equal(stored, fresh))
    return differ


def _examples(
    events: pa.RecordBatch,
    rows: np.ndarray[Any, Any],
    stored: pa.Array[Any],
    fresh: pa.Array[Any],
    shown: np.ndarray[Any, Any],
) -> list[dict[str, Any]]:
    described = events.select(EXAMPLE_COLUMNS).take(pa.array(rows)).to_pylist()
    pairs = zip(described, stored.take(pa.array(shown)), fresh.take(pa.array(shown)), strict=True)
    return [{**event, "stored": _json_of(old), "configured": _json_of(new)} for event, old, new in pairs]


def _json_of(scalar: pa.Scalar[Any]) -> str:
    # Decimals and times have no JSON: as texts.
    return json.dumps(scalar.as_py(), ensure_ascii=False, default=str)
