"""Which fields the data of events has that landed, and which types of columns hold their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.landing.rows.engine import pc, summed_up
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.landing.typed.columns import TYPES
from penstock.landing.typed.typed_files import is_of_events

PREFERRED = ("boolean", "bigint", "double", "timestamp", "date", "string", "json")
"""The first of these types that holds all values is proposed."""
_POINTER = "'/' || replace(replace(name, '~', '~0'), '/', '~1')"
_VALUES = (
    f"SELECT name, json_extract(data, {_POINTER}) AS value FROM "  # noqa: S608  our own words
    "(SELECT data, unnest(list_distinct(json_keys(data))) AS name FROM columns WHERE starts_with(data, '{'))"
)
_HELD = ", ".join(
    f'count(*) FILTER (WHERE {one.value.replace("{0}", "value")} IS NOT NULL) AS "{name}"'
    for name, one in TYPES.items()
)
_QUERY = f"""
SELECT name AS field, count(*) FILTER (WHERE value::VARCHAR <> 'null') AS present, {_HELD}
FROM ({_VALUES}) GROUP BY 1 ORDER BY 2 DESC, 1
"""  # noqa: S608  our own words


@dataclass(frozen=True, slots=True)
class FoundField:
    """A field of ``data``: in how many events it is not null, and how many of its values each type of column holds."""

    name: str
    present: int
    held: Mapping[str, int]

    @property
    def proposed(self) -> str:
        """The type that holds all; "" where there is no value."""
        return next((kind for kind in PREFERRED if self.held[kind] == self.present), "") if self.present else ""


def fields_of(data: pa.Array[Any]) -> list[FoundField]:
    """Of JSON texts, those that most of them have first."""
    rows = summed_up(_QUERY, data=data).to_pylist()
    return [FoundField(row["field"], row["present"], {kind: row[kind] for kind in TYPES}) for row in rows]


def data_of_late(layout: Layout, of_type: str, most: int) -> pa.Array[Any]:
    """``data`` of at most so many events of a type: of the days of late, as their files come."""
    found: list[pa.Array[Any]] = []
    rows = 0
    for one in _of_type(layout, of_type):
        found.append(one.slice(0, most - rows))
        rows += len(found[-1])
        if rows >= most:
            break
    return pa.concat_arrays(found) if found else pa.array([], pa.string())


def _of_type(layout: Layout, of_type: str) -> Iterator[pa.Array[Any]]:
    names = [name for name in table_of(layout).active() if is_of_events(name)]
    for name in sorted(names, key=lambda name: partition_value(name, "date"), reverse=True):
        with open_rows(layout.landed, name) as file:
            for batch in file.batches(["type", "data"]):
                yield batch.filter(pc.equal(batch["type"], pa.scalar(of_type)))["data"]
