"""Types of columns in typed tables: Arrow types, and the SQL of their values for the JSON text of a field.

The SQL decides what a column can hold. ``conversion`` gives the same values faster for usual texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from penstock.config.keys.typed import array_items, decimal_digits, struct_fields
from penstock.config.syntax.json_path import Path, parse_path
from penstock.landing.rows.engine import json_pointer, sql_literal
from penstock.landing.rows.long_numbers import AS_NUMBER, AS_STRING, unmarked
from penstock.landing.table_schema import MICROS

_WHOLE = "regexp_full_match({0}::VARCHAR, '-?[0-9]+')"
_NUMBER = "json_type({0}) IN ('BIGINT', 'UBIGINT', 'DOUBLE')"
_TEXT = "starts_with({0}::VARCHAR, '\"')"
_INSIDE = "({0} ->> '$')"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MICROSECONDS = r"\.[0-9]{1,6}0{0,3}"
"""A column has microseconds: of the nine digits of RFC3339 nanoseconds, the last three must be zeros."""
_CLOCK = f"T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}({_MICROSECONDS})?(Z|[+-][0-9]{{2}}:[0-9]{{2}})"
_TIME = (
    f"try_cast(CASE WHEN regexp_full_match({_INSIDE}, {sql_literal(_DATE + _CLOCK)}) THEN {_INSIDE} END AS TIMESTAMPTZ)"
)
_DAY = f"try_cast(CASE WHEN regexp_full_match({_INSIDE}, {sql_literal(_DATE)}) THEN {_INSIDE} END AS DATE)"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """An Arrow type, and the SQL expression of its value for the JSON text ``{0}``; null if the text does not fit."""

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
"""Plain types by their name in the configuration."""
EXACT_DIGITS = 15
"""Digits of a JSON number with a point that DuckDB reads exactly."""


@cache
def column_type(name: str, *, marked: bool = False) -> ColumnType:
    """Return the type of this name, also ``decimal(10,2)``, ``array<string>`` and ``struct<id:string,age:int>``.

    ``marked``: the value is for a text in which long numbers are marked (``long_numbers``).
    """
    if items := array_items(name):
        return _array_type(column_type(items, marked=marked))
    if fields := struct_fields(name):
        return _struct_type({field: column_type(kind, marked=marked) for field, kind in fields.items()})
    digits = decimal_digits(name)
    plain = _decimal_type(*digits) if digits else TYPES[name]
    # A decimal accepts a string of digits; all other types need the number.
    text = unmarked("{0}", AS_STRING if digits else AS_NUMBER)
    return ColumnType(plain.arrow, plain.value.replace("{0}", f"{text}::JSON")) if marked else plain


def _decimal_type(precision: int, scale: int) -> ColumnType:
    whole = f"[1-9][0-9]{{0,{precision - scale - 1}}}|0" if precision > scale else "0"
    pattern = f"-?({whole})" + (f"(\\.[0-9]{{1,{scale}}}0*)?" if scale else "")
    # Long numbers are strings here, unless their text cannot be marked (``long_numbers``).
    is_exact = (
        f"({_TEXT} OR json_type({{0}}) IN ('BIGINT', 'UBIGINT') "
        f"OR length(regexp_replace({_INSIDE}, '^[-0.]+|e.*|[^0-9]', '', 'g')) <= {EXACT_DIGITS})"
    )
    fits = f"regexp_full_match({_INSIDE}, {sql_literal(pattern)}) AND {is_exact}"
    value = f"try_cast({_INSIDE} AS DECIMAL({precision}, {scale}))"
    # DuckDB writes a number below 1e-6 with an exponent.
    is_small = f"json_type({{0}}) = 'DOUBLE' AND contains({_INSIDE}, 'e-') AND {is_exact}"
    exponent = f"try_cast(regexp_extract({_INSIDE}, 'e-([0-9]+)', 1) AS INTEGER)"
    has_room = f"len(regexp_extract({_INSIDE}, '[.]([0-9]+)', 1)) + {exponent} <= {scale}"
    # Workaround: DuckDB (2.0) casts an exponent only to types with a digit before the point.
    zeros, digits = f"repeat('0', {exponent} - 1)", f"replace(regexp_extract({_INSIDE}, '[0-9.]+'), '.', '')"
    plain = f"regexp_extract({_INSIDE}, '^-?') || '0.' || {zeros} || {digits}"
    small = f"try_cast({plain} AS DECIMAL({precision}, {scale}))"
    exact = f"CASE WHEN {fits} THEN {value} WHEN {is_small} AND {has_room} THEN {small} END"
    return ColumnType(pa.decimal128(precision, scale), exact)


def _array_type(items: ColumnType) -> ColumnType:
    """Return the type of lists whose items all fit or are null."""
    value = items.value.replace("{0}", "item")
    texts = "TRY_CAST({0} AS JSON[])"
    misfits = f"list_filter({texts}, lambda item: ({value}) IS NULL AND coalesce(item::VARCHAR, 'null') <> 'null')"
    values = f"list_transform({texts}, lambda item: {value})"
    return ColumnType(
        pa.list_(items.arrow), f"CASE WHEN starts_with({{0}}::VARCHAR, '[') AND len({misfits}) = 0 THEN {values} END"
    )


def _struct_type(fields: Mapping[str, ColumnType]) -> ColumnType:
    """Return the type of objects that have no other fields, and whose fields all fit, are null, or are missing."""
    texts = {name: f"json_extract({{0}}, {json_pointer(name)})" for name in fields}
    values = {name: kind.value.replace("{0}", texts[name]) for name, kind in fields.items()}
    fits = " AND ".join(
        f"(({values[name]}) IS NOT NULL OR coalesce({texts[name]}::VARCHAR, 'null') = 'null')" for name in fields
    )
    taken = " + ".join(f"({text} IS NOT NULL)::INT" for text in texts.values())
    is_complete = f"starts_with({{0}}::VARCHAR, '{{') AND len(json_keys({{0}})) = {taken}"
    return ColumnType(
        pa.struct([(name, kind.arrow) for name, kind in fields.items()]),
        f"CASE WHEN {is_complete} AND {fits} THEN {_pack(values)} END",
    )


def _pack(values: Mapping[str, str]) -> str:
    return f"struct_pack({', '.join(f'{_quoted(name)} := {value}' for name, value in values.items())})"


def _quoted(name: str) -> str:
    return f'"{name}"'


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a column's contract: ``name`` is its key (min, max, pattern, enum), ``bounds`` are JSON texts."""

    name: str
    bounds: tuple[str, ...]

    @property
    def needs(self) -> str:
        """The rule in words."""
        words = {"min": "at least", "max": "at most", "pattern": "a match of", "enum": "one of"}
        return f"{words[self.name]} {', '.join(self.bounds)}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column for a field of ``data``; ``type`` as in ``column_type``, ``field`` a path (``config.syntax.json_path``).

    ``default``: the JSON text of the value for a field that is missing or null; "" without one. ``rules``: what the
    values have to meet (``penstock.landing.typed.contracts``).
    """

    name: str
    type: str
    field: str
    required: bool = False
    default: str = ""
    rules: tuple[Rule, ...] = ()

    @property
    def path(self) -> Path:
        """The keys of the path."""
        return parse_path(self.field)


@cache
def leaves(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns; of a column of structs, its fields."""
    return tuple(leaf for column in columns for leaf in (leaves(fields_of(column)) or (column,)))


@cache
def structs(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of structs, and structs in them."""
    return tuple(struct for column in columns if fields_of(column) for struct in (column, *structs(fields_of(column))))


@cache
def fields_of(column: Column) -> tuple[Column, ...]:
    """Return the fields of a column of structs as columns; none for another type."""
    return tuple(Column(name, kind, f"{column.field}.{name}") for name, kind in struct_fields(column.type).items())


@cache
def numbered_paths(columns: tuple[Column, ...]) -> Mapping[Path, int]:
    """Return the paths to extract, columns before the objects that they are in, with numbers from 1."""
    paths = [leaf.path for leaf in leaves(columns)]
    objects = (path[:n] for path in paths for n in range(1, len(path)))
    return {path: n for n, path in enumerate(dict.fromkeys([*paths, *objects]), 1)}


@cache
def keys_of_objects(columns: tuple[Column, ...]) -> Mapping[Path, list[str]]:
    """Return the keys that lead to columns, by the path of the object that they are in."""
    keys: dict[Path, dict[str, None]] = {}
    for leaf in leaves(columns):
        for n, key in enumerate(leaf.path):
            keys.setdefault(leaf.path[:n], {})[key] = None
    return {path: list(keys_of_object) for path, keys_of_object in keys.items()}
