"""Keys of typed tables."""

from __future__ import annotations

import re
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


def _check_type(kind: str) -> str:
    items = array_items(kind) or kind
    if items in PLAIN_TYPES:
        return kind
    if (digits := decimal_digits(items)) is not None:
        precision, scale = digits
        if not (1 <= precision <= MAX_DIGITS and scale <= precision):
            raise ValueError(f"{kind!r}: a decimal has 1 to {MAX_DIGITS} digits, and at most as many behind the point")
        return kind
    raise ValueError(f"{kind!r} is not a type: {', '.join(PLAIN_TYPES)}, decimal(10,2), or array<...> of one of them")


class ColumnConfig(Section):
    """A column of a typed table."""

    type: Annotated[str, AfterValidator(_check_type)] = Field(
        description=(
            "string, boolean, int, bigint, double, decimal(10,2), date, timestamp (RFC 3339, with a zone), json, or "
            "array<...> of one of them."
        )
    )
    field: Annotated[str, AfterValidator(lambda path: check_path(path) if path else path)] = Field(
        "", description='Path of the field in data, such as user.id or "http.method"; default: the column\'s name.'
    )
    required: bool = Field(False, description="Quarantine events without this field.")


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


def _expand_type(column: Any) -> Any:
    return {"type": column} if isinstance(column, str) else column
