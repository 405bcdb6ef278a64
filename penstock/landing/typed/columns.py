"""Typed tables: the columns of the events of one type, as configured.

Invariant: nothing of ``data`` is lost. A value that its column can hold exactly is in the column. Every other value,
and each field without a column, is in ``rest``, where it was: a JSON object, or ``data`` itself if it is not an object.
An object all of whose fields are in columns is not in ``rest``; one that was empty is. If the key of such a
field occurs twice, the column has the first value, and all of ``data`` is in ``rest``.
Limit: a column of doubles has the double that is nearest to a number, like every reader of JSON with doubles.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.config import PipelineConfig
from penstock.config.keys.typed import OWN_COLUMNS, TypedConfig
from penstock.landing.rows.engine import Mask
from penstock.landing.rows.type_schemas import FieldRule
from penstock.landing.table_paths import TYPED_MARK
from penstock.landing.table_schema import LANDED
from penstock.landing.typed.column_types import Column, column_type
from penstock.landing.typed.contracts import json_of, rules_of
from penstock.landing.typed.evaluation import Evaluation

REST = "rest"
LANDED_COLUMNS = tuple(name for name in OWN_COLUMNS if name not in (REST, "date"))
"""Columns with the values of the table ``landed``."""


@dataclass(frozen=True, slots=True)
class TypedTable:
    """The table ``events_<name>`` of the events of a type; with ``strict``, events that do not fit are quarantined,
    with ``strict_contracts`` events that violate the rules of a column.
    """

    name: str
    type: str
    columns: tuple[Column, ...] = ()
    strict: bool = False
    strict_contracts: bool = False

    @property
    def key(self) -> str:
        """A text that changes with the name, the columns or their rules."""
        return f"{self.name} {hashlib.sha256(repr(self).encode()).hexdigest()}"

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

    def evaluate(self, data: pa.Array[Any]) -> Evaluation:
        """Return the fields of JSON texts."""
        return Evaluation(self.columns, data)

    def compute(self, data: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
        """Return the typed columns, and ``rest``, of JSON texts."""
        evaluation = self.evaluate(data)
        return {**evaluation.values(), REST: evaluation.rest()}

    def violations(self, data: pa.Array[Any]) -> Counter[str]:
        """Return how many JSON texts violate each rule of contracts."""
        return self.evaluate(data).violations(self.name)

    def judge(self, data: pa.Array[Any]) -> list[tuple[FieldRule, Mask]]:
        """Return each rule whose violation leads to quarantine, with a mask of the JSON texts that meet it."""
        evaluation = self.evaluate(data)
        misfits = evaluation.judge() if self.strict or not self.strict_contracts else []
        violations = evaluation.judge_contracts(self.name) if self.strict_contracts else []
        return [*misfits, *violations]


def configured_tables(pipeline: PipelineConfig) -> tuple[TypedTable, ...]:
    """Return the typed tables of the configuration."""
    return tuple(_configured_table(name, config) for name, config in pipeline.typed.items())


def strict_tables(tables: Iterable[TypedTable]) -> tuple[TypedTable, ...]:
    """Return the tables whose events must fit, or meet contracts."""
    return tuple(table for table in tables if table.strict or table.strict_contracts)


def _configured_table(name: str, config: TypedConfig) -> TypedTable:
    columns = tuple(
        Column(
            name_of_column,
            column.type,
            column.field or name_of_column,
            column.required,
            "" if column.default is None else json_of(column.type, column.default),
            rules_of(column),
        )
        for name_of_column, column in config.columns.items()
    )
    strict_contracts = config.on_violation == "quarantine" and any(column.rules for column in columns)
    return TypedTable(name, config.type or name, columns, config.on_misfit == "quarantine", strict_contracts)
