"""Conditions on a few columns, as in SQL, that select rows of the table. All conditions have to hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.syntax.json_path import BadPath, parse_path
from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import compute, json_pointer
from penstock.landing.rows.json_events import decode_payloads
from penstock.landing.rows.long_numbers import NUMBERS_AS_STRINGS
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask, RowReader, TableFile, open_rows
from penstock.landing.table_paths import partition_value

IN, NOT_IN, BEFORE = "in", "not in", "<"
FOLDER_COLUMNS = ("kind", "date")
ROW_COLUMNS = ("uuid", "host", "type", "topic")
DATA_PREFIX = "data."
_TEXT = r"'(?:[^']|'')*'"
_QUOTED_KEY = r'"(?:[^"\\]|\\.)*"'
_PLAIN_KEY = r"""[^\s."'=<>()\[\]\x00-\x1f]+"""
"""A key without quotes: as in ``config.syntax.json_path``, but it ends where a condition continues."""
_COLUMN = rf"[a-z]++(?:\.(?:{_PLAIN_KEY}+|{_QUOTED_KEY}))*+"
"""Invariant: possessive, so that no end of a key is read as ``in``: ``data.admin('x')`` is no ``data.adm in ('x')``."""
_CONDITION = re.compile(
    rf"\s*(?P<column>{_COLUMN})\s*(?:(?P<sign>=|<)\s*(?P<text>{_TEXT})"
    rf"|(?P<is_in>in)\s*\(\s*(?P<texts>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))\s*",
    re.IGNORECASE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)


class BadCondition(PenstockError, ValueError):
    """A condition that cannot be parsed; the text names the reason."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column of FOLDER_COLUMNS or ROW_COLUMNS, or on a field of ``data`` (``data.user.id``), a path
    as in ``config.syntax.json_path``.

    BEFORE applies to ``date`` only.
    """

    column: str
    sign: str
    values: tuple[str, ...]

    @property
    def is_field(self) -> bool:
        """Whether it is on a field of ``data``."""
        return self.column.startswith(DATA_PREFIX)

    def holds_for_folder(self, folder_value: str) -> bool:
        """Return whether it holds for all rows of a folder with this value."""
        if self.sign == BEFORE:
            return folder_value < self.values[0]
        return (folder_value in self.values) == (self.sign == IN)

    def holds_for_rows(self, column: pa.ChunkedArray[Any]) -> Mask:
        """Return a mask of the values of a column for which it holds."""
        is_listed: Mask = pc.is_in(column, value_set=pa.array(self.values, pa.string())).to_numpy().astype(bool)
        return is_listed if self.sign == IN else ~is_listed

    def holds_for_field(self, rows: pa.Table) -> Mask:
        """Return a mask of rows with ``data``, and perhaps ``payload``, whose field is one of the values, as text.

        A number counts by its digits: ``1.10`` is not ``1.1``. Objects and lists have no text. A payload is the event,
        so its path begins there.
        """
        keys = parse_path(self.column)
        mask = self._has_values(rows["data"], keys[1:])
        if "payload" in rows.column_names:
            # Messages and rows in quarantine have no ``data``, but may have personal data.
            mask |= self._has_values(rows["payload"], keys)
        return mask

    def _has_values(self, column: pa.ChunkedArray[Any], keys: Sequence[str]) -> Mask:
        # Fast path: a text without the value and without escapes cannot have it, so few texts are parsed.
        may_match: Any = pc.match_substring(column, "\\")
        for value in self.values:
            may_match = pc.or_(may_match, pc.match_substring(column, value))
        indices = np.flatnonzero(pc.fill_null(may_match, False).to_numpy())
        mask: Mask = np.zeros(len(column), bool)
        if len(indices):
            texts: Any = decode_payloads(column.take(pa.array(indices, pa.int64())).combine_chunks())
            fields = compute({"field": _field_as_written(keys)}, data=texts)["field"]
            listed: Any = pc.is_in(fields, value_set=pa.array(self.values, pa.string()))
            mask[indices] = listed.to_numpy(zero_copy_only=False)
        return mask


def _field_as_written(keys: Sequence[str]) -> str:
    """Return SQL of the text of a field of the JSON text ``data``; null if there is none, or an object or list.

    Trailing commas and NaN are not an error: a correction may turn such a payload into an event, so erasures find it.
    """
    pointer = json_pointer(*keys)
    # DuckDB writes numbers with a point or exponent in its own way, and -0 as 0.
    text = (
        f"CASE json_type(data, {pointer}) WHEN 'VARCHAR' THEN json_extract_string(data, {pointer}) "
        f"WHEN 'BOOLEAN' THEN json_extract_string(data, {pointer}) "
        "WHEN 'OBJECT' THEN NULL WHEN 'ARRAY' THEN NULL WHEN 'NULL' THEN NULL "
        f"ELSE json_extract_string({NUMBERS_AS_STRINGS}, {pointer}) END"
    )
    # A pointer's number also counts the elements of a list, which have no path.
    parents = [json_pointer(*keys[:depth]) for depth, key in enumerate(keys) if key.isdecimal()]
    are_objects = " AND ".join(["json_valid(data)", *(f"json_type(data, {parent}) = 'OBJECT'" for parent in parents)])
    return f"CASE WHEN {are_objects} THEN {text} END"


def parse_conditions(text: str) -> list[Condition]:
    """Parse ``host = 'a' and type in ('b', 'c') and date < '2026-01-01'``. Raises BadCondition."""
    conditions, offset = [], 0
    while True:
        match = _CONDITION.match(text, offset)
        if match is None:
            raise BadCondition(
                f"no condition at {text[offset : offset + 20]!r}: write host = 'web-1', or type in ('a', 'b')"
            )
        conditions.append(_build_condition(match))
        offset = match.end()
        if offset == len(text):
            return conditions
        conjunction = _AND.match(text, offset)
        if conjunction is None:
            raise BadCondition(f"no `and` at {text[offset : offset + 20]!r}: only `and` joins conditions")
        offset = conjunction.end()


def _build_condition(match: re.Match[str]) -> Condition:
    name = match["column"]
    first, dot, path = name.partition(".")
    column = f"{first.lower()}{dot}{path}"
    if column not in (*FOLDER_COLUMNS, *ROW_COLUMNS) and not column.startswith(DATA_PREFIX):
        columns = ", ".join((*ROW_COLUMNS, *FOLDER_COLUMNS))
        raise BadCondition(f"no condition on {column!r}: use one of {columns}, or a field such as data.user.id")
    if path:
        try:
            parse_path(column)
        except BadPath as error:
            raise BadCondition(str(error)) from None
    values = tuple(text[1:-1].replace("''", "'") for text in re.findall(_TEXT, match["texts"] or match["text"]))
    sign = BEFORE if match["sign"] == "<" else IN
    if sign == BEFORE and column != "date":
        raise BadCondition("`<` applies to date only")
    return Condition(column, sign, tuple(map(_parse_day, values)) if column == "date" else values)


def _parse_day(text: str) -> str:
    # Dates are compared as texts with the names of folders, so that 20260131 has to become 2026-01-31 first.
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadCondition(f"{text!r} is not a date: write 2026-01-31") from None


def matching_rows(table: TablePath, name: TableFile, conditions: Sequence[Condition]) -> Mask:
    """Return a mask of the rows of a file for which all conditions hold; empty if none can. Raises DamagedFile,
    OSError.
    """
    folder_conditions = [condition for condition in conditions if condition.column in FOLDER_COLUMNS]
    row_conditions = [condition for condition in conditions if condition.column not in FOLDER_COLUMNS]
    # Fast path: the folder's name decides without reading the file.
    if not all(condition.holds_for_folder(partition_value(name, condition.column)) for condition in folder_conditions):
        return np.zeros(0, bool)
    try:
        with open_rows(table, name) as file:
            if not row_conditions:
                return np.ones(file.rows, bool)
            is_event = partition_value(name, "kind") == MessageKind.EVENT
            return _matching_rows_of_groups(file, row_conditions, ("data",) if is_event else ("data", "payload"))
    except pa.ArrowInvalid as error:
        raise DamagedFile(f"{table / name}: {str(error).partition(chr(10))[0]}") from None


def _matching_rows_of_groups(file: RowReader, conditions: Sequence[Condition], json_columns: Sequence[str]) -> Mask:
    """Return a mask of all rows of a file, reading only the row groups that may match.

    ``json_columns`` have the fields that conditions are on.
    """
    numbers = {*file.groups()}
    for condition in conditions:
        if condition.sign == IN and not condition.is_field:
            numbers &= {*file.groups(condition.column, condition.values)}
    is_match: Mask = np.zeros(file.rows, bool)
    plain = {condition.column for condition in conditions if not condition.is_field}
    columns, spans = sorted({*plain, *(json_columns if len(plain) < len(conditions) else ())}), file.group_spans()
    for number in sorted(numbers):
        rows = file.read_group(number, columns)
        of_group: Mask = np.ones(rows.num_rows, bool)
        for condition in conditions:
            of_group &= (
                condition.holds_for_field(rows)
                if condition.is_field
                else condition.holds_for_rows(rows[condition.column])
            )
        is_match[slice(*spans[number])] = of_group
    return is_match
