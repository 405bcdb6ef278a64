"""Keys of typed tables."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from penstock.config.json_path import check_path
from penstock.config.keys.values import Section

OWN_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "received",
    "source",
    "landed_at",
    "type",
    "uuid",
    "host",
    "event_time",
    "rest",
    "date",
)
"""Columns of every typed table in addition to its own."""


PLAIN_TYPES = ("string", "boolean", "int", "bigint", "double", "date", "timestamp", "json")
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_ARRAY = re.compile(r"array<(.*)>")
_STRUCT = re.compile(r"struct<(.*)>")
_STRUCT_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127}):(.+)")
MAX_DIGITS = 38
"""Digits of a decimal in Arrow, Delta and Iceberg."""


def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of ``decimal(10,2)``; None for another type."""
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def array_items(kind: str) -> str:
    """Return the type of the items of ``array<string>``; "" for another type."""
    match = _ARRAY.fullmatch(kind)
    return match[1] if match else ""


def struct_fields(kind: str) -> dict[str, str]:
    """Return the types of the fields of ``struct<id:string,age:int>``; none for another type. Raises ValueError."""
    match = _STRUCT.fullmatch(kind)
    fields: dict[str, str] = {}
    for text in _split_fields(match[1]) if match else ():
        field = _STRUCT_FIELD.fullmatch(text)
        if field is None:
            raise ValueError(f"{text!r} is not a field of a struct: write name:type")
        if field[1].lower() in {name.lower() for name in fields}:
            raise ValueError(f"{kind!r} has two fields {field[1]!r}; upper and lower case are equal")
        fields[field[1]] = field[2]
    return fields


def _split_fields(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    fields, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            fields.append("")
        else:
            fields[-1] += character
    return fields


def _check_type(text: str) -> str:
    kind = re.sub(r"\s", "", text)
    items = array_items(kind) or kind
    if items in PLAIN_TYPES:
        return kind
    if (digits := decimal_digits(items)) is not None:
        precision, scale = digits
        if not (1 <= precision <= MAX_DIGITS and scale <= precision):
            raise ValueError(f"{kind!r}: a decimal has 1 to {MAX_DIGITS} digits, and at most as many behind the point")
        return kind
    if fields := struct_fields(items):
        for field_type in fields.values():
            _check_type(field_type)
        return kind
    raise ValueError(
        f"{text!r} is not a type: {', '.join(PLAIN_TYPES)}, decimal(10,2), struct<name:string,...>, "
        "or array<...> of one of them"
    )


class ColumnConfig(Section):
    """A column of a typed table."""

    type: Annotated[str, AfterValidator(_check_type)] = Field(
        description=(
            "string, boolean, int, bigint, double, decimal(10,2), date, timestamp (RFC 3339, with a zone), json, "
            "struct<id:string,age:int>, or array<...> of one of them."
        )
    )
    field: Annotated[str, AfterValidator(lambda path: check_path(path) if path else path)] = Field(
        "", description='Path of the field in data, such as user.id or "http.method"; default: the column\'s name.'
    )
    required: bool = Field(False, description="Quarantine events without this field.")
    default: str | bool | int | float | None = Field(
        None, description="Value of the column if the field is missing or null; of a plain type or a decimal."
    )

    @model_validator(mode="after")
    def _check_default(self) -> ColumnConfig:
        if self.default is not None:
            if self.required:
                raise ValueError("default: a required field has none")
            if not _holds(self.type, self.default):
                raise ValueError(f"default: {self.default!r} is no value of the type {self.type}")
        return self


class TypedConfig(Section):
    """A table with real columns for the events of one type."""

    type: str = Field("", description="Type of the events; default: the table's name.")
    on_misfit: Literal["rest", "quarantine"] = Field(
        "rest",
        description=(
            "Destination of a field that does not fit its column: rest = the column rest; quarantine = the whole event."
        ),
    )
    columns: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,127}$")],
        Annotated[ColumnConfig, BeforeValidator(lambda column: _expand_type(column))],
    ] = Field(default_factory=dict, description='columns by name: path = "string"')

    @model_validator(mode="after")
    def _check_names(self) -> TypedConfig:
        names = [name.lower() for name in self.columns]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"columns: two have the name {min(duplicates)!r}; upper and lower case are equal")
        if reserved := [name for name in self.columns if name.lower() in OWN_COLUMNS]:
            raise ValueError(
                f"columns.{reserved[0]}: every typed table has this column; use another name: "
                f'data_{reserved[0]} = {{ type = "{self.columns[reserved[0]].type}", field = "{reserved[0]}" }}'
            )
        return self

    @model_validator(mode="after")
    def _check_required(self) -> TypedConfig:
        if self.on_misfit == "rest":
            for name, column in self.columns.items():
                if column.required:
                    raise ValueError(f'columns.{name}.required needs on_misfit = "quarantine"')
        return self


def _holds(kind: str, value: str | bool | int | float) -> bool:
    """Report whether a column of this type can have a value of the configuration."""
    if kind in ("int", "bigint"):
        bits = 31 if kind == "int" else 63
        return type(value) is int and -(1 << bits) <= value < 1 << bits
    if kind == "double":
        return not isinstance(value, bool | str) and math.isfinite(value)
    if digits := decimal_digits(kind):
        # A number of TOML with a point is a double, which would have other digits.
        return type(value) in (int, str) and _fits_decimal(str(value), *digits)
    if kind in ("date", "timestamp"):
        return isinstance(value, str) and _is_time(kind, value)
    return type(value) is {"string": str, "boolean": bool}.get(kind)


def _fits_decimal(text: str, precision: int, scale: int) -> bool:
    match = re.fullmatch(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?", text)
    return match is not None and len(match[1].lstrip("0")) <= precision - scale and len(match[2] or "") <= scale


def _is_time(kind: str, text: str) -> bool:
    try:
        if kind == "date":
            return date.fromisoformat(text).isoformat() == text
        return datetime.fromisoformat(text).tzinfo is not None and "T" in text
    except ValueError:
        return False


def _expand_type(column: Any) -> Any:
    return {"type": column} if isinstance(column, str) else column
