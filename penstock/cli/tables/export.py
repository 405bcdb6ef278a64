"""``penstock export``: copies of tables in databases and other Delta tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, Commands, ConfiguredData
from penstock.files.change_log import record_command
from penstock.process.terminal import visible
from penstock.qualified_names import partition_name

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.config.keys.export import ExportConfig
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.export.check import Comparison, Difference
    from penstock.upkeep.export.target import Target

SHOWN_TEXT, SHOWN_BEFORE = 80, 20
"""Characters of a value that are shown, and how many of them before the first that differs."""
export = Commands(no_args_is_help=True, help="List, check, run and rebuild exports of tables.")
Name = Annotated[str, typer.Argument(help="Name of the export in the configuration.")]


@export.command("list")
def list_exports(settings: ConfiguredData, as_json: AsJson = False) -> None:
    """List the exports, the last batch of each, and why one is late."""
    from rich.table import Table

    from penstock.landing.table_paths import Layout
    from penstock.upkeep.export.exporter import read_state

    layout = Layout.for_tables(settings.tables)
    rows = [{"name": e.name, "source": e.source, "to": e.to, **read_state(layout, e.name)} for e in settings.export]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("name", "source", "to", "batch", "up to date", box=None)
    for column in table.columns:
        # A narrow terminal breaks the address alone, and cuts nothing.
        column.no_wrap, column.overflow = column.header != "to", "fold"
    for row in rows:
        table.add_row(*(str(row[column]) for column in ("name", "source", "to", "batch", "until")))
    console.print(table)
    for row in rows:
        if row["failure"]:
            console.print(f"{row['name']}: {row['failure']}", markup=False, soft_wrap=True)


@export.command()
def check(settings: ConfiguredData, name: Name, as_json: AsJson = False) -> None:
    """Compare every column of the copied rows with the table's, name rows that differ, and then exit with status 1."""
    from penstock.upkeep.export.check import NotComparable, compare

    layout, config = _select_export(settings, name)
    try:
        with _open(layout, config) as target:
            comparison = compare(layout, config, target)
    except NotComparable as error:
        fail(error, 3)
    if as_json:
        print(json.dumps(_document(comparison)))
    else:
        _print_comparison(comparison)
    sys.exit(0 if comparison.is_equal else 1)


@export.command()
def run(settings: ConfiguredData, name: Name) -> None:
    """Copy what landed since the last step, once; a running pipeline does it by itself."""
    from penstock.upkeep.export.exporter import Exporter
    from penstock.upkeep.export.target import TargetAway, TargetInUse, TargetMoved

    layout, config = _select_export(settings, name)
    try:
        rows = Exporter(layout, config, lambda hours: None).step()
    except (TargetAway, TargetInUse, TargetMoved) as error:
        fail(error)
    console.print(f"{rows:,} rows added")


@export.command()
def rebuild(
    settings: ConfiguredData,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Replace the rows; without this option, nothing happens.")] = False,
) -> None:
    """Make the next step replace all rows of the target."""
    from penstock.landing.table.landed_table import has_landed_table

    layout, config = _select_export(settings, name)
    if not yes:
        fail(f"the next step would replace all rows of {config.target_table} at {config.to}: repeat with --yes", 2)
    if not has_landed_table(layout):
        # The target would belong to no Penstock, and refuse this one once its first rows have landed.
        fail(f"nothing has landed in {layout.tables} yet: repeat it after the first rows", 2)
    with _open(layout, config) as target:
        target.forget()
    record_command(settings.data_dir, f"copy all rows of export {name} again")
    console.print("the next step copies all rows again")


def _select_export(settings: Settings, name: str) -> tuple[Layout, ExportConfig]:
    from penstock.landing.table_paths import Layout

    configs = {config.name: config for config in settings.export}
    if name not in configs:
        existing = ", ".join(configs) or "none"
        fail(f"no export is named {name!r}; configured exports: {existing}", 2)
    return Layout.for_tables(settings.tables), configs[name]


def _open(layout: Layout, config: ExportConfig) -> Target:
    from penstock.upkeep.export.exporter import open_target
    from penstock.upkeep.export.target import TargetAway

    try:
        return open_target(config, layout)
    except TargetAway as error:
        fail(error)


def _document(comparison: Comparison) -> dict[str, Any]:
    # Sums are texts: readers of JSON round numbers beyond 53 bits.
    sides = {
        side: {"rows": sums.rows, "offsets": str(sums.offsets), "uuid_hashes": str(sums.uuid_hashes)}
        for side, sums in (("table", comparison.table), ("target", comparison.target))
    }
    behind = {"batches_behind": comparison.batches_behind, "deletions_behind": comparison.deletions_behind}
    rows = {
        "ranges_that_differ": comparison.ranges,
        "differences": [asdict(difference) for difference in comparison.differences],
        "rows_without_key": comparison.without_key,
        "columns_not_compared": list(comparison.not_compared),
        "other_columns": list(comparison.other_columns),
    }
    return {"equal": comparison.is_equal, "batch": comparison.batch, **behind, **sides, **rows}


def _print_comparison(comparison: Comparison) -> None:
    from rich.table import Table

    from penstock.upkeep.export.row_differences import RANGE_OFFSETS

    table = Table("", "rows", "offsets", "uuid hashes", box=None)
    for side, sums in (("table", comparison.table), ("target", comparison.target)):
        table.add_row(side, f"{sums.rows:,}", str(sums.offsets), str(sums.uuid_hashes))
    console.print(table)
    verdict = "equal" if comparison.is_equal else "DIFFERENT"
    console.print(
        f"{verdict} through batch {comparison.batch}; {comparison.batches_behind:,} batches and "
        f"{comparison.deletions_behind:,} deletions wait"
    )
    if comparison.differences:
        _print_differences(comparison.differences)
    if comparison.ranges:
        console.print(f"{comparison.ranges:,} ranges of {RANGE_OFFSETS:,} offsets have rows that differ")
    if comparison.without_key:
        console.print(f"{comparison.without_key:,} rows of the target have no topic or no offset")
    if comparison.not_compared:
        names = ", ".join(comparison.not_compared)
        console.print(f"not compared, because their types in the target are not an export's: {names}", markup=False)
    if comparison.other_columns:
        names = visible(", ".join(comparison.other_columns))
        console.print(f"not compared, because the export does not write them: {names}", markup=False)


def _print_differences(differences: Sequence[Difference]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("topic", "offset", "difference", "expected", "in the target", box=None)
    for column in table.columns[:3]:
        column.no_wrap = True
    for row in differences:
        texts = [partition_name(row.topic, row.partition), str(row.offset)]
        texts += [f"{row.kind} {row.column}".strip(), *around_difference(row.expected, row.present)]
        # Values come from the network and must not control the terminal.
        table.add_row(*(Text(visible(text), overflow="fold") for text in texts))
    console.print(table)


def around_difference(expected: str, present: str) -> tuple[str, str]:
    """Return the parts of two long texts in which they begin to differ."""
    both = enumerate(zip(expected, present, strict=False))
    first_other = next((index for index, (a, b) in both if a != b), min(len(expected), len(present)))
    start = first_other - SHOWN_BEFORE if first_other > SHOWN_TEXT else 0
    first, second = (
        ("…" if start else "") + text[start : start + SHOWN_TEXT] + ("…" if len(text) > start + SHOWN_TEXT else "")
        for text in (expected, present)
    )
    return first, second
