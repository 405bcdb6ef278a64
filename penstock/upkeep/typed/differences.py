"""Compare the configuration of a typed table, the table, and recently landed events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa

from penstock.config.syntax.json_path import Path, format_path
from penstock.landing.row_sums import NO_VIOLATIONS
from penstock.landing.rows.type_schemas import contract_reason
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import LANDED_COLUMNS, REST, TypedTable
from penstock.landing.typed.typed_delta import FOLDERS, TypedDelta
from penstock.upkeep.typed.changed_rows import EXAMPLE_COLUMNS, ChangedColumn
from penstock.upkeep.typed.found_fields import FoundField, recent_events
from penstock.upkeep.typed.proposal import share


@dataclass(frozen=True, slots=True)
class Difference:
    """A column, or a field without one: its types in configuration, table and events, and the difference (or "")."""

    name: str
    configured: str
    table: str
    landed: str
    difference: str

    def document(self) -> dict[str, str]:
        """Return the difference as a JSON document."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Events whose field at a path does not fit the configuration, with examples."""

    field: str
    needs: str
    events: int
    examples: list[dict[str, Any]]


def find_misfits(layout: Layout, configured: TypedTable, max_events: int, max_examples: int) -> list[Misfit]:
    """Return the fields of the newest events that would not fit the configured table; nothing is written."""
    misfits: dict[int, Misfit] = {}
    for events in recent_events(layout, configured.type, max_events, EXAMPLE_COLUMNS):
        evaluation = configured.evaluate(events["data"])
        for n, (rule, fits) in enumerate([*evaluation.judge(), *evaluation.judge_contracts(configured.name)]):
            misfit = misfits.get(n) or Misfit(format_path(rule.path) or "data", rule.needs, 0, [])
            rows = np.flatnonzero(~fits)
            misfits[n] = replace(misfit, events=misfit.events + len(rows))
            chosen: pa.Array[Any] = pa.array(rows[: max_examples - len(misfit.examples)])
            examples = events.select(EXAMPLE_COLUMNS).take(chosen).to_pylist()
            values = evaluation.text(rule.path).take(chosen).to_pylist()
            misfit.examples.extend({**example, "value": value} for example, value in zip(examples, values, strict=True))
    return [misfit for misfit in misfits.values() if misfit.events]


def differences(
    layout: Layout,
    configured: TypedTable,
    fields: Sequence[FoundField],
    rows: int,
    violations: Mapping[str, int] = NO_VIOLATIONS,
    changed: Sequence[ChangedColumn] = (),
) -> list[Difference]:
    """Compare all columns, configured ones first, then fields without a column.

    ``rows``: number of events read, ``violations``: how many of them violate each rule of contracts. ``changed``: rows
    of the table that a refill would change.
    """
    table_types, fields_by_path = _load_types(layout, configured), {field.path: field for field in fields}
    changed_rows = {column.column: column.rows for column in changed}
    compared = []
    for column in configured.columns:
        difference = _compare_column(column, table_types, fields_by_path.get(column.path), configured, rows)
        of_rules = {
            rule.name: violations.get(contract_reason(configured.name, column.name, rule.name), 0)
            for rule in column.rules
        }
        contract = _compare_contract(configured, of_rules, changed_rows.get(column.name, 0))
        words = "; ".join(filter(None, [difference.difference, *contract]))
        compared.append(replace(difference, difference=words))
    former = [name for name in table_types if name not in {column.name for column in configured.columns}]
    compared += [_compare_former(name, table_types[name], fields_by_path.get((name,)), rows) for name in former]
    # An object whose fields have columns needs no line of its own: its other fields are in REST.
    with_columns = {column.path[:n] for column in configured.columns for n in range(1, len(column.path) + 1)}
    return [*compared, *_without_column(fields, {*((name,) for name in former), *with_columns}, rows)]


def _load_types(layout: Layout, configured: TypedTable) -> Mapping[str, str]:
    """Return the types of the table's own columns, by name."""
    exists = TypedDelta.configured(layout, configured).exists
    return _type_names(TypedDelta(layout.typed(configured.name)).schema) if exists else {}


def _type_names(schema: pa.Schema) -> dict[str, str]:
    own_fields = [column for column in schema if column.name not in (*LANDED_COLUMNS, *FOLDERS, REST)]
    fields: Any = deltalake.Schema.from_arrow(pa.schema(own_fields)).fields
    return {column.name: _type_name(column.type) for column in fields}


def _type_name(kind: Any) -> str:
    if kind.type == "array":
        return f"array<{_type_name(kind.element_type)}>"
    if kind.type == "struct":
        return f"struct<{','.join(f'{field.name}:{_type_name(field.type)}' for field in kind.fields)}>"
    return str(_SPARK_TYPE_NAMES.get(kind.type, kind.type))


_SPARK_TYPE_NAMES = {"integer": "int", "long": "bigint"}


def _compare_column(
    column: Column, table_types: Mapping[str, str], field: FoundField | None, configured: TypedTable, rows: int
) -> Difference:
    stored_type = _type_names(configured.schema)[column.name]
    table = table_types.get(column.name, "")
    landed = _describe_landed(field, rows)
    if table and table != stored_type:
        difference = "the pipeline does not start until `penstock tables refill` has changed the type"
    elif not table:
        difference = "is added at the next start of the pipeline"
    elif field and (misfits := field.present - field.held[column.type]):
        difference = f"{misfits:,} of {field.present:,} do not fit: {'quarantine' if configured.strict else REST}"
    elif column.required and (missing := rows - (field.present if field else 0)):
        difference = f"{missing:,} of {rows:,} have none: quarantine"
    else:
        difference = ""
    return Difference(column.name, column.type, table, landed, difference)


def _compare_contract(configured: TypedTable, of_rules: Mapping[str, int], changed_rows: int) -> Iterator[str]:
    """Yield what violates the rules of a column, and that stored rows were written by other rules."""
    if violated := ", ".join(f"{count:,} violate {rule}" for rule, count in of_rules.items() if count):
        yield f"{violated}: {'quarantine' if configured.strict_contracts else REST}"
    if changed_rows:
        yield f"{changed_rows:,} stored rows differ: `penstock tables refill {configured.name}` changes them"


def _compare_former(name: str, kind: str, field: FoundField | None, rows: int) -> Difference:
    return Difference(name, "", kind, _describe_landed(field, rows), "no longer configured: null in new rows")


def _without_column(fields: Sequence[FoundField], with_columns: set[Path], rows: int) -> Iterator[Difference]:
    for field in fields:
        if field.path not in with_columns and field.present:
            yield Difference(field.name, "", "", _describe_landed(field, rows), f"no column: {REST}")


def _describe_landed(field: FoundField | None, rows: int) -> str:
    return f"{field.proposed or 'null'} in {share(field.present, rows)}" if field else ""
