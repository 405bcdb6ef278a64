"""Keys of typed tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

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
"""Columns that every typed table has besides those of its own."""


class ColumnConfig(Section):
    """A column of a typed table."""

    type: Literal["string", "boolean", "int", "bigint", "double", "date", "timestamp", "json"] = Field(
        description="string, boolean, int, bigint, double, date, timestamp (with a zone, as RFC 3339 has it) or json"
    )
    field: str = Field("", description="the field of data that it has; default: the column's name")
    required: bool = Field(False, description="whether an event without it is quarantined")


class TypedConfig(Section):
    """A table with real columns for the events of one type."""

    type: str = Field("", description="type of the events; default: the table's name")
    on_misfit: Literal["rest", "quarantine"] = Field(
        "rest", description="where a value goes that its column cannot hold; quarantine: the whole event"
    )
    columns: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,127}$")],
        Annotated[ColumnConfig, BeforeValidator(lambda told: _with_type(told))],
    ] = Field(default_factory=dict, description='columns by name: path = "string"')

    @model_validator(mode="after")
    def _names_differ(self) -> TypedConfig:
        names = [name.lower() for name in self.columns]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"columns: two have the name {min(twice)!r}; small and capital letters are the same")
        if taken := [name for name in self.columns if name.lower() in OWN_COLUMNS]:
            raise ValueError(
                f"columns.{taken[0]}: every typed table has such a column; call it otherwise: "
                f'data_{taken[0]} = {{ type = "{self.columns[taken[0]].type}", field = "{taken[0]}" }}'
            )
        return self

    @model_validator(mode="after")
    def _what_is_required_can_be(self) -> TypedConfig:
        if self.on_misfit == "rest":
            for name, column in self.columns.items():
                if column.required:
                    raise ValueError(f'columns.{name}.required needs on_misfit = "quarantine"')
        return self


def _with_type(told: Any) -> Any:
    return {"type": told} if isinstance(told, str) else told
