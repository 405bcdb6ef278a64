"""Columns of a typed table, and the SQL that takes their values out of ``data``: DuckDB, whole columns at a time.

Invariant: nothing of ``data`` is lost. A value that its column can hold exactly is in the column. Every other value,
and each field without a column, is in ``rest``, where it was: a JSON object, or ``data`` itself if it is not an object.
An object all of whose fields are in columns is not in ``rest``; one that was empty is. If the key of such a
field occurs twice, the column has the first value, and all of ``data`` is in ``rest``.
Limit: a column of doubles has the double that is nearest to a number, like every reader of JSON with doubles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from penstock.config import PipelineConfig
from penstock.config.json_path import Path, parse_path
from penstock.config.keys.typed import OWN_COLUMNS, TypedConfig, array_items, decimal_digits, struct_fields
from penstock.landing.rows.engine import compute, json_pointer, sql_literal
from penstock.landing.rows.long_numbers import AS_NUMBER, AS_STRING, MARKED, mark_long_numbers, unmarked
from penstock.landing.rows.type_schemas import OBJECT, FieldRule
from penstock.landing.table_paths import TYPED_MARK
from penstock.landing.table_schema import LANDED, MICROS

REST = "rest"
LANDED_COLUMNS = tuple(name for name in OWN_COLUMNS if name not in (REST, "date"))
"""Columns with the values of the table ``landed``."""
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
_EXACT_DIGITS = 15
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
        f"OR length(regexp_replace({_INSIDE}, '[^0-9]', '', 'g')) <= {_EXACT_DIGITS})"
    )
    fits = f"regexp_full_match({_INSIDE}, {sql_literal(pattern)}) AND {is_exact}"
    value = f"CASE WHEN {fits} THEN try_cast({_INSIDE} AS DECIMAL({precision}, {scale})) END"
    return ColumnType(pa.decimal128(precision, scale), value)


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
class Column:
    """A column for a field of ``data``; ``type`` as in ``column_type``, ``field`` a path as in ``config.json_path``.

    ``default``: the JSON text of the value for a field that is missing or null; "" without one.
    """

    name: str
    type: str
    field: str
    required: bool = False
    default: str = ""

    @property
    def path(self) -> Path:
        """The keys of the path."""
        return parse_path(self.field)


@dataclass(frozen=True, slots=True)
class TypedTable:
    """The table ``events_<name>`` of the events of a type; with ``strict``, events that do not fit are quarantined."""

    name: str
    type: str
    columns: tuple[Column, ...] = ()
    strict: bool = False

    @property
    def view(self) -> str:
        """The name of the table for readers."""
        return TYPED_MARK + self.name

    @property
    def schema(self) -> pa.Schema:
        """The columns for readers."""
        landed = [LANDED.field(name) for name in LANDED_COLUMNS]
        typed = [pa.field(column.name, column_type(column.type).arrow) for column in self.columns]
        return pa.schema([*landed, *typed, pa.field(REST, pa.string()), LANDED.field("date")])

    @property
    def inputs(self) -> dict[str, str]:
        """SQL of inputs: ``marked`` (``long_numbers``), ``fields`` (see ``_inputs``), ``value1``, ``value2``, ..."""
        return {"marked": MARKED, **self._inputs}

    @property
    def _inputs(self) -> dict[str, str]:
        """SQL of ``fields``, the JSON texts if ``data`` is an object, of its keys, and of the values in the texts."""
        pointers = ", ".join(json_pointer(*path) for path in _numbered_paths(self.columns))
        # One call extracts all fields, so each text is parsed once. TRY: a transformation may have broken the JSON.
        fields = f"CASE WHEN starts_with(data, '{{') THEN TRY(json_extract(data, [{pointers}]::VARCHAR[])) END"
        keys = "CASE WHEN fields IS NOT NULL THEN json_keys(data) END"
        return {
            "fields": fields,
            "keys_of_data": keys,
            **{f"value{n}": self._value(leaf) for n, leaf in self._numbered()},
        }

    def _value(self, leaf: Column) -> str:
        """Return SQL of the value of a leaf."""
        text = self.text(leaf.path)
        value = column_type(leaf.type).value.replace("{0}", text)
        if "decimal" not in leaf.type and "json" not in leaf.type:
            return value
        marked = f"CASE WHEN {text} IS NOT NULL THEN TRY(json_extract(marked, {json_pointer(*leaf.path)})) END"
        exact = column_type(leaf.type, marked=True).value.replace("{0}", marked)
        return f"CASE WHEN marked IS NULL THEN {value} ELSE {exact} END"

    @property
    def values(self) -> dict[str, str]:
        """SQL of the typed columns, and of ``rest``."""
        numbers = {leaf: n for n, leaf in self._numbered()}
        return {**{column.name: self._column(column, numbers) for column in self.columns}, REST: self._rest()}

    def _column(self, column: Column, numbers: Mapping[Column, int]) -> str:
        """Return SQL of a column, or of a field in a column of structs."""
        text = self.text(column.path)
        if fields := _fields_of(column):
            packed = _pack({field.name: self._column(field, numbers) for field in fields})
            return f"CASE WHEN starts_with({text}::VARCHAR, '{{') THEN {packed} END"
        value = f"value{numbers[column]}"
        if not column.default:
            return value
        default = column_type(column.type).value.replace("{0}", f"{sql_literal(column.default)}::JSON")
        return f"CASE WHEN coalesce({text}::VARCHAR, 'null') = 'null' THEN {default} ELSE {value} END"

    @property
    def rules(self) -> list[FieldRule]:
        """The rules that hold for events whose fields all fit."""
        rules = [FieldRule((), OBJECT, "fields IS NOT NULL")]
        for struct in _structs(self.columns):
            is_absent = "false" if struct.required else f"coalesce({self.text(struct.path)}::VARCHAR, 'null') = 'null'"
            is_object = f"starts_with({self.text(struct.path)}::VARCHAR, '{{')"
            rules.append(FieldRule(struct.path, OBJECT, f"({is_absent} OR {is_object})"))
        for n, leaf in self._numbered():
            condition = f"value{n} IS NOT NULL" if leaf.required else self._fits(n)
            rules.append(FieldRule(leaf.path, leaf.type, condition))
        return rules

    def evaluate(self, expressions: Mapping[str, str], data: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
        """Return the values of SQL expressions on JSON texts and the inputs."""
        marked = mark_long_numbers(data)
        if marked.null_count == len(marked):
            # Fast path: usually there is no long number, and DuckDB leaves out what is for them.
            return compute(dict(expressions), {"marked": "NULL::VARCHAR", **self._inputs}, data=data)
        return compute(dict(expressions), self._inputs, data=data, marked=marked)

    def _rest(self) -> str:
        """Return SQL of the object without the values that are in columns; null if no value remains."""
        taken = " + ".join(f"({self._is_in_columns((key,))})::INT" for key in self._children(())) or "0"
        # A merge patch removes the keys that it sets to null.
        patched = f"json_merge_patch(coalesce(marked, data), '{{' || {self._removals(())} || '}}')::VARCHAR"
        remaining = f"nullif(CASE WHEN marked IS NULL THEN {patched} ELSE {unmarked(patched, AS_NUMBER)} END, '{{}}')"
        # A merge patch removes all values of a repeated key.
        remaining = f"CASE WHEN {self._has_repeated_keys()} THEN data ELSE {remaining} END"
        # Fast path: if all keys are in columns, none is repeated, and nothing is patched.
        return f"CASE WHEN fields IS NULL THEN data WHEN len(keys_of_data) <> {taken} THEN {remaining} END"

    def _has_repeated_keys(self) -> str:
        """Return SQL that holds if a key that leads to columns occurs twice in its object."""
        conditions = []
        for path, keys in _keys_of_objects(self.columns).items():
            keys_of_object = f"json_keys({self.text(path)})" if path else "keys_of_data"
            names = ", ".join(map(sql_literal, keys))
            occurrences = f"len(list_filter({keys_of_object}, lambda key: key IN ({names})))"
            present = " + ".join(f"({self.text((*path, key))} IS NOT NULL)::INT" for key in keys)
            conditions.append(f"coalesce({occurrences} > {present}, false)")
        return " OR ".join(conditions) or "false"

    def _removals(self, path: Path) -> str:
        """Return SQL of the members of a merge patch for the object at a path; an empty text removes nothing."""
        removals = ", ".join(self._removal((*path, key)) for key in self._children(path))
        return f"concat_ws(',', {removals or 'NULL'})"

    def _removal(self, path: Path) -> str:
        key = _json(path[-1])
        removal = f"WHEN {self._is_in_columns(path)} THEN {sql_literal(key + ':null')}"
        if self._children(path):
            # Invariant: a patch of an object replaces a value that is none. This one is not empty only if a field
            # in it was extracted, so the value is an object.
            inner = f"nullif({self._removals(path)}, '')"
            removal += f" ELSE {sql_literal(key + ':{')} || {inner} || '}}'"
        return f"CASE {removal} END"

    def _is_in_columns(self, path: Path) -> str:
        """Return SQL that holds if a column has the value, or if the value is an object and columns have all of it."""
        conditions = [
            f"({self.text(path)} IS NOT NULL AND {self._fits(n)})" for n, leaf in self._numbered() if leaf.path == path
        ]
        if children := self._children(path):
            text = self.text(path)
            taken = " + ".join(f"({self._is_in_columns((*path, key))})::INT" for key in children)
            if any(struct.path == path for struct in _structs(self.columns)):
                # A column of structs also has the empty object, and null.
                conditions.append(f"coalesce({text}::VARCHAR IN ('{{}}', 'null'), false)")
            conditions.append(f"coalesce(len(json_keys({text})) = nullif({taken}, 0), false)")
        return " OR ".join(conditions)

    def _fits(self, number: int) -> str:
        text = self.text(_leaves(self.columns)[number - 1].path)
        return f"(value{number} IS NOT NULL OR coalesce({text}::VARCHAR, 'null') = 'null')"

    def text(self, path: Path) -> str:
        """Return SQL of the JSON text at the path of a column, or of an object around one; null if there is none."""
        numbers = _numbered_paths(self.columns)
        text = f"fields[{numbers[path]}]"
        # A JSON pointer takes a number for an index if the value is a list, but a path has keys only.
        guards = [path[:n] for n in range(1, len(path)) if path[n][:1] in "0123456789-#"]
        objects = " AND ".join(f"starts_with(fields[{numbers[guard]}]::VARCHAR, '{{')" for guard in guards)
        return f"(CASE WHEN {objects} THEN {text} END)" if objects else text

    def _children(self, path: Path) -> list[str]:
        """Return the keys below a path that lead to columns."""
        return _keys_of_objects(self.columns).get(path, [])

    def _numbered(self) -> Iterator[tuple[int, Column]]:
        """Return the columns whose values are extracted (of structs, their fields) with numbers."""
        return enumerate(_leaves(self.columns), 1)


@cache
def _leaves(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns; of a column of structs, its fields."""
    return tuple(leaf for column in columns for leaf in (_leaves(_fields_of(column)) or (column,)))


@cache
def _structs(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of structs, and structs in them."""
    return tuple(
        struct for column in columns if _fields_of(column) for struct in (column, *_structs(_fields_of(column)))
    )


@cache
def _fields_of(column: Column) -> tuple[Column, ...]:
    """Return the fields of a column of structs as columns; none for another type."""
    return tuple(Column(name, kind, f"{column.field}.{name}") for name, kind in struct_fields(column.type).items())


@cache
def _numbered_paths(columns: tuple[Column, ...]) -> Mapping[Path, int]:
    """Return the paths to extract, columns before the objects that they are in, with numbers from 1."""
    paths = [leaf.path for leaf in _leaves(columns)]
    objects = (path[:n] for path in paths for n in range(1, len(path)))
    return {path: n for n, path in enumerate(dict.fromkeys([*paths, *objects]), 1)}


@cache
def _keys_of_objects(columns: tuple[Column, ...]) -> Mapping[Path, list[str]]:
    """Return the keys that lead to columns, by the path of the object that they are in."""
    keys: dict[Path, dict[str, None]] = {}
    for leaf in _leaves(columns):
        for n, key in enumerate(leaf.path):
            keys.setdefault(leaf.path[:n], {})[key] = None
    return {path: list(keys_of_object) for path, keys_of_object in keys.items()}


def configured_tables(pipeline: PipelineConfig) -> tuple[TypedTable, ...]:
    """Return the typed tables of the configuration."""
    return tuple(_configured_table(name, config) for name, config in pipeline.typed.items())


def strict_tables(tables: Iterable[TypedTable]) -> tuple[TypedTable, ...]:
    """Return the tables whose events must fit."""
    return tuple(table for table in tables if table.strict)


def compute_columns(table: TypedTable, data: pa.Array[Any]) -> Mapping[str, pa.Array[Any]]:
    """Return the typed columns, and ``rest``, of JSON texts."""
    return table.evaluate(table.values, data)


def _configured_table(name: str, config: TypedConfig) -> TypedTable:
    columns = (
        Column(
            name_of_column,
            column.type,
            column.field or name_of_column,
            column.required,
            "" if column.default is None else json.dumps(column.default),
        )
        for name_of_column, column in config.columns.items()
    )
    return TypedTable(name, config.type or name, tuple(columns), config.on_misfit == "quarantine")


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
