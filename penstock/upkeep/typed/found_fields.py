"""Find the fields in the data of landed events, and the column types that hold all their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.config.syntax.json_path import Path, format_path
from penstock.landing.rows.engine import aggregate, pc
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.column_types import TYPES, Column, column_type
from penstock.landing.typed.evaluation import Evaluation
from penstock.landing.typed.typed_files import is_of_events

PREFERRED = ("boolean", "bigint", "double", "timestamp", "date", "string", "json")
"""Column types in order of preference."""
_POINTER = "'/' || replace(replace(name, '~', '~0'), '/', '~1')"
_VALUES = (
    f"SELECT name, json_extract(data, {_POINTER}) AS value FROM "  # noqa: S608  our own words
    "(SELECT data, unnest(list_distinct(json_keys(data))) AS name FROM columns WHERE starts_with(data, '{'))"
)
_TEXTS = "SELECT '' AS name, text::JSON AS value FROM columns"


@dataclass(frozen=True, slots=True)
class FoundField:
    """A field at a path of ``data``: how many values are not null, and how many of them each type holds."""

    path: Path
    present: int
    held: Mapping[str, int]

    @property
    def name(self) -> str:
        """The path as in the configuration."""
        return format_path(self.path)

    @property
    def proposed(self) -> str:
        """Return the first preferred type that holds all values; "" without values."""
        return next((kind for kind in PREFERRED if self.held[kind] == self.present), "") if self.present else ""


def find_fields(data: pa.Array[Any], nested: Iterable[Path] = (), kinds: Iterable[str] = ()) -> list[FoundField]:
    """Return the fields of JSON texts, the most frequent first, then the ``nested`` ones that occur.

    ``kinds``: types that are counted in addition to the plain ones, such as ``decimal(10,2)``.
    """
    counted = tuple(dict.fromkeys([*TYPES, *kinds]))
    fields = [_found_field((row["field"],), row) for row in aggregate(_count(_VALUES, counted), data=data).to_pylist()]
    columns = tuple(Column("", "json", format_path(path)) for path in nested)
    evaluation = Evaluation(columns, data)
    for column in columns:
        rows = aggregate(_count(_TEXTS, counted), text=evaluation.text(column.path).drop_null()).to_pylist()
        fields += [_found_field(column.path, row) for row in rows]
    return fields


def _found_field(path: Path, row: Mapping[str, int]) -> FoundField:
    return FoundField(path, row["present"], {kind: row[kind] for kind in row if kind not in ("field", "present")})


def _count(values: str, kinds: Sequence[str]) -> str:
    """Return the query that counts the values of each field, and how many of them each type holds."""
    held = ", ".join(
        f'count(*) FILTER (WHERE {column_type(kind).value.replace("{0}", "value")} IS NOT NULL) AS "{kind}"'
        for kind in kinds
    )
    present = "count(*) FILTER (WHERE value::VARCHAR <> 'null') AS present"
    return f"SELECT name AS field, {present}, {held} FROM ({values}) GROUP BY 1 ORDER BY 2 DESC, 1"  # noqa: S608  our own words


def recent_data(layout: Layout, event_type: str, max_events: int) -> pa.Array[Any]:
    """Return ``data`` of at most ``max_events`` events of a type, from the newest days on."""
    parts = [events["data"] for events in recent_events(layout, event_type, max_events)]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def recent_events(
    layout: Layout, event_type: str, max_events: int, columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield ``data`` and further columns of at most ``max_events`` events of a type, from the newest days on."""
    rows = 0
    for events in _read_events(layout, event_type, columns):
        yield events.slice(0, max_events - rows)
        rows += events.num_rows
        # Limit: newest days first, so that the proposal fits today's events and old files are not read.
        if rows >= max_events:
            break


def _read_events(layout: Layout, event_type: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    names = [name for name in table_of(layout).active() if is_of_events(name)]
    for name in sorted(names, key=lambda name: partition_value(name, "date"), reverse=True):
        with open_rows(layout.landed, name) as file:
            for batch in file.batches(["type", "data", *columns]):
                yield batch.filter(pc.equal(batch["type"], pa.scalar(event_type)))
