"""The columns of a typed table, and how their values are taken out of ``data``: by DuckDB, whole columns at a time.

A value is in its column where that holds it as it is. Otherwise, as a field that has no column, it is in ``rest``: a
JSON object of what is nowhere else (``data`` itself where that is no object). So nothing is only in one of many rows'
reasons to fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.config import PipelineConfig
from penstock.config.keys.typed import OWN_COLUMNS, TypedConfig
from penstock.landing.rows.engine import compute, json_pointer, quoted
from penstock.landing.rows.table_rows import RFC3339
from penstock.landing.table_paths import TYPED_MARK
from penstock.landing.table_schema import LANDED, MICROS

REST = "rest"
LANDED_COLUMNS = tuple(name for name in OWN_COLUMNS if name not in (REST, "date"))
"""Columns that are as they are in the table ``landed``."""
_WHOLE = "regexp_full_match({0}::VARCHAR, '-?[0-9]+')"
_NUMBER = "json_type({0}) IN ('BIGINT', 'UBIGINT', 'DOUBLE')"
_TEXT = "starts_with({0}::VARCHAR, '\"')"
_INSIDE = "({0} ->> '$')"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = f"try_cast(CASE WHEN regexp_full_match({_INSIDE}, {quoted(RFC3339)}) THEN {_INSIDE} END AS TIMESTAMPTZ)"
_DAY = f"try_cast(CASE WHEN regexp_full_match({_INSIDE}, {quoted(_DATE)}) THEN {_INSIDE} END AS DATE)"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """``value``: of SQL, of the JSON text ``{0}``; null where it does not fit."""

    arrow: pa.DataType
    value: str


TYPES = {
    "string": ColumnType(pa.string(), f"CASE WHEN {_TEXT} THEN {_INSIDE} END"),
    "boolean": ColumnType(pa.bool_(), "CASE {0}::VARCHAR WHEN 'true' THEN true WHEN 'false' THEN false END"),
    "int": ColumnType(pa.int32(), f"CASE WHEN {_WHOLE} THEN try_cast({{0}}::VARCHAR AS INTEGER) END"),
    "bigint": ColumnType(pa.int64(), f"CASE WHEN {_WHOLE} THEN try_cast({{0}}::VARCHAR AS BIGINT) END"),
    "double": ColumnType(
        pa.float64(),
        f"CASE WHEN {_NUMBER} AND isfinite(try_cast({{0}}::VARCHAR AS DOUBLE)) THEN {{0}}::VARCHAR::DOUBLE END",
    ),
    "date": ColumnType(
        pa.date32(), f"CASE WHEN {_TEXT} AND {_DAY} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN {_DAY} END"
    ),
    "timestamp": ColumnType(
        MICROS,
        f"CASE WHEN {_TEXT} AND {_TIME} BETWEEN TIMESTAMPTZ '0001-01-01 00:00:00+00' "
        f"AND TIMESTAMPTZ '9999-12-31 23:59:59.999999+00' THEN {_TIME} END",
    ),
    "json": ColumnType(pa.string(), "CASE WHEN {0}::VARCHAR <> 'null' THEN {0}::VARCHAR END"),
}
"""By the name that it has in the configuration."""


@dataclass(frozen=True, slots=True)
class Column:
    """``field``: of ``data``, the one that it has; ``type``: of TYPES."""

    name: str
    type: str
    field: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class TypedTable:
    """The table ``events_<name>`` of the events of a type; with ``strict`` an event that does not fit is none."""

    name: str
    type: str
    columns: tuple[Column, ...] = ()
    strict: bool = False

    @property
    def view(self) -> str:
        """The name that readers have for it."""
        return TYPED_MARK + self.name

    @property
    def schema(self) -> pa.Schema:
        """What a reader sees."""
        taken = [LANDED.field(name) for name in LANDED_COLUMNS]
        own = [pa.field(one.name, TYPES[one.type].arrow) for one in self.columns]
        return pa.schema([*taken, *own, pa.field(REST, pa.string()), LANDED.field("date")])

    @property
    def given(self) -> dict[str, str]:
        """``found``: the JSON texts of the fields, where ``data`` is an object; and ``value1`` and so on."""
        paths = ", ".join(json_pointer(one.field) for one in self.columns)
        found = f"CASE WHEN starts_with(data, '{{') THEN TRY(json_extract(data, [{paths}]::VARCHAR[])) END"
        values = (TYPES[one.type].value.replace("{0}", f"found[{n}]") for n, one in self._numbered())
        return {"found": found, **{f"value{n}": value for n, value in enumerate(values, 1)}}

    @property
    def values(self) -> dict[str, str]:
        """What is in each column of its own, and in ``rest``."""
        return {**{one.name: f"value{n}" for n, one in self._numbered()}, REST: self._rest()}

    @property
    def condition(self) -> str:
        """Whether all fits."""
        rules = (f"value{n} IS NOT NULL" if one.required else _fits(n) for n, one in self._numbered())
        return " AND ".join(["found IS NOT NULL", *rules])

    def _rest(self) -> str:
        """The object without what is in columns, and null where nothing is left."""
        numbers = [n for n, _ in self._numbered()]
        held = " + ".join(f"(found[{n}] IS NOT NULL AND {_fits(n)})::INT" for n in numbers) or "0"
        gone = ", ".join(
            f"CASE WHEN {_fits(n)} THEN {quoted(_json(one.field) + ':null')} END" for n, one in self._numbered()
        )
        patch = f"'{{' || concat_ws(',', {gone or 'NULL'}) || '}}'"
        left = f"nullif(json_merge_patch(data, {patch})::VARCHAR, '{{}}')"
        return f"CASE WHEN found IS NULL THEN data WHEN len(json_keys(data)) <> {held} THEN {left} END"

    def _numbered(self) -> Iterator[tuple[int, Column]]:
        return enumerate(self.columns, 1)


def configured_tables(pipeline: PipelineConfig) -> tuple[TypedTable, ...]:
    """Those that are configured."""
    return tuple(_typed(name, told) for name, told in pipeline.typed.items())


def strict_tables(tables: Iterable[TypedTable]) -> tuple[TypedTable, ...]:
    """Those whose events have to fit."""
    return tuple(one for one in tables if one.strict)


def compute_columns(table: TypedTable, data: pa.Array[Any]) -> Mapping[str, pa.Array[Any]]:
    """The columns that are its own, and ``rest``, of JSON texts."""
    return compute(table.values, table.given, data=data)


def _typed(name: str, told: TypedConfig) -> TypedTable:
    columns = (Column(one, of.type, of.field or one, of.required) for one, of in told.columns.items())
    return TypedTable(name, told.type or name, tuple(columns), told.on_misfit == "quarantine")


def _fits(number: int) -> str:
    return f"(value{number} IS NOT NULL OR coalesce(found[{number}]::VARCHAR, 'null') = 'null')"


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
