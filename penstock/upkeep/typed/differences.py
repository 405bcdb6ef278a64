"""How the configuration of a typed table, the table, and what landed of late differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import deltalake
import pyarrow as pa

from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import LANDED_COLUMNS, REST, Column, TypedTable
from penstock.landing.typed.typed_delta import FOLDERS, TypedDelta
from penstock.upkeep.typed.found_fields import FoundField
from penstock.upkeep.typed.proposal import share


@dataclass(frozen=True, slots=True)
class Difference:
    """A column, or a field without one: its types where it has any, and what is different (or "")."""

    name: str
    configured: str
    table: str
    landed: str
    difference: str

    def document(self) -> dict[str, str]:
        """JSON-ready."""
        return asdict(self)


def differences(layout: Layout, wanted: TypedTable, fields: Sequence[FoundField], rows: int) -> list[Difference]:
    """Of all columns, those configured first, and of the fields that have none. ``rows``: events looked at."""
    there, found = _types(layout, wanted), {one.name: one for one in fields}
    told = [_of_column(one, there, found.get(one.field), wanted, rows) for one in wanted.columns]
    before = [name for name in there if name not in {one.name for one in wanted.columns}]
    told += [_no_longer(name, there[name], found.get(name), rows) for name in before]
    return [*told, *_without_column(fields, {*before, *(one.field for one in wanted.columns)}, rows)]


def _types(layout: Layout, wanted: TypedTable) -> Mapping[str, str]:
    """Of the table's columns of its own, by their names."""
    there = TypedDelta.configured(layout, wanted).exists
    return _named(TypedDelta(layout.typed(wanted.name)).schema) if there else {}


def _named(schema: pa.Schema) -> dict[str, str]:
    own = [one for one in schema if one.name not in (*LANDED_COLUMNS, *FOLDERS, REST)]
    fields: Any = deltalake.Schema.from_arrow(pa.schema(own)).fields
    return {one.name: _WORDS.get(one.type.type, one.type.type) for one in fields}


_WORDS = {"integer": "int", "long": "bigint"}


def _of_column(
    column: Column, there: Mapping[str, str], found: FoundField | None, wanted: TypedTable, rows: int
) -> Difference:
    kept = "string" if column.type == "json" else column.type
    table = there.get(column.name, "")
    landed = _landed(found, rows)
    if table and table != kept:
        what = "the pipeline does not start: a column keeps its type"
    elif not table:
        what = "comes with the next start of the pipeline"
    elif found and (misfits := found.present - found.held[column.type]):
        what = f"{misfits:,} of {found.present:,} do not fit: {'quarantine' if wanted.strict else REST}"
    elif column.required and (missing := rows - (found.present if found else 0)):
        what = f"{missing:,} of {rows:,} have none: quarantine"
    else:
        what = ""
    return Difference(column.name, column.type, table, landed, what)


def _no_longer(name: str, kind: str, found: FoundField | None, rows: int) -> Difference:
    return Difference(name, "", kind, _landed(found, rows), "no longer configured: null in what lands now")


def _without_column(fields: Sequence[FoundField], known: set[str], rows: int) -> Iterator[Difference]:
    for one in fields:
        if one.name not in known and one.present:
            yield Difference(one.name, "", "", _landed(one, rows), f"no column: {REST}")


def _landed(found: FoundField | None, rows: int) -> str:
    return f"{found.proposed or 'null'} in {share(found.present, rows)}" if found else ""
