"""Keys of typed tables."""

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from penstock.config.keys.values import Section
from penstock.config.syntax.json_path import check_path

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
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})", re.ASCII)
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


def _refuse_boolean(written: object) -> object:
    # A boolean would pass as the number 0 or 1.
    if isinstance(written, bool):
        raise ValueError(f"{str(written).lower()} is a boolean, and has no order or choices")
    return written


Bound = Annotated[str | int | float | None, BeforeValidator(_refuse_boolean)]
Choice = Annotated[str | int, BeforeValidator(_refuse_boolean)]


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

    min: Bound = Field(
        None, description="Least value; of a number, a decimal, a date or a timestamp, written like default."
    )
    max: Bound = Field(None, description="Greatest value, as min.")
    pattern: str = Field(
        "", description="Regular expression (RE2) that a string has to match somewhere; ^...$ for all of it."
    )
    enum: list[Choice] = Field(default_factory=list, description="Values that a string, int or bigint may have.")

    @model_validator(mode="after")
    def _check_contract(self) -> ColumnConfig:
        """Refuse rules that the column's type cannot have, and rules that no value meets."""
        bounds = {"min": self.min, "max": self.max}
        for key, bound in bounds.items():
            if bound is not None and not (_is_ordered(self.type) and _holds(self.type, bound)):
                raise ValueError(f"{key}: {bound!r} is not a bound of a column of the type {self.type}")
        low, high = (None if bound is None else _in_order(self.type, bound) for bound in bounds.values())
        if low is not None and high is not None and low > high:
            raise ValueError(f"min: {self.min!r} is greater than max, {self.max!r}")
        if self.pattern and self.type != "string":
            raise ValueError(f"pattern: a column of the type {self.type} has none, only string")
        if self.pattern:
            _is_match(self.pattern, "")
        for allowed in self.enum:
            if self.type not in ("string", "int", "bigint") or not _holds(self.type, allowed):
                raise ValueError(f"enum: {allowed!r} is not a choice of a column of the type {self.type}")
        return self

    @model_validator(mode="after")
    def _check_default(self) -> ColumnConfig:
        if self.default is not None:
            if self.required:
                raise ValueError("default: a required field has none")
            if not _holds(self.type, self.default):
                raise ValueError(f"default: {self.default!r} is not a value of the type {self.type}")
            if rule := self._rule_against(self.default):
                raise ValueError(f"default: {self.default!r} violates {rule} of the column")
        return self

    def _rule_against(self, default: str | bool | int | float) -> str:
        """Return the rule that a default of the column's type violates; "" without one."""
        if self.enum and default not in self.enum:
            return "enum"
        if self.pattern and not _is_match(self.pattern, str(default)):
            return "pattern"
        if self.min is not None and _in_order(self.type, default) < _in_order(self.type, self.min):
            return "min"
        return "max" if self.max is not None and _in_order(self.type, default) > _in_order(self.type, self.max) else ""


class TypedConfig(Section):
    """A table with real columns for the events of one type."""

    type: str = Field("", description="Type of the events; default: the table's name.")
    on_misfit: Literal["rest", "quarantine"] = Field(
        "rest",
        description=(
            "Destination of a field that does not fit its column: rest = the column rest; quarantine = the whole event."
        ),
    )
    on_violation: Literal["rest", "quarantine"] = Field(
        "rest",
        description=(
            "Destination of a field that violates its column's min, max, pattern or enum: rest = the column rest; "
            "quarantine = the whole event."
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


def _is_ordered(kind: str) -> bool:
    return kind in ("int", "bigint", "double", "date", "timestamp") or decimal_digits(kind) is not None


def _in_order(kind: str, bound: str | bool | int | float) -> Any:
    """Return a bound of the configuration as what compares like the column's values."""
    if kind == "timestamp":
        return datetime.fromisoformat(str(bound))
    return bound if kind in ("int", "bigint", "double", "date") else Decimal(bound)


def _is_match(pattern: str, text: str) -> bool:
    """Report whether a text matches. Raises ValueError for a text that is not a pattern."""
    # Fast path: only a configuration with patterns loads Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return bool(pc.match_substring_regex(pa.scalar(text), pattern).as_py())
    except pa.ArrowInvalid as error:
        raise ValueError(f"pattern: {pattern!r} is not a regular expression of RE2: {error}") from None


def _holds(kind: str, value: str | bool | int | float) -> bool:
    """Report whether a column of this type can have a value of the configuration."""
    if kind in ("int", "bigint"):
        bits = 31 if kind == "int" else 63
        return type(value) is int and -(1 << bits) <= value < 1 << bits
    if kind == "double":
        return not isinstance(value, bool | str) and abs(value) <= sys.float_info.max
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
        # The forms and years that the column can hold, or the bound would be null.
        return _TIMESTAMP.fullmatch(text) is not None and datetime.fromisoformat(text).astimezone(UTC) is not None
    except (ValueError, OverflowError):
        return False


def _expand_type(column: Any) -> Any:
    return {"type": column} if isinstance(column, str) else column
