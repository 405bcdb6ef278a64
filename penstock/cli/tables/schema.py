"""``penstock schema``: typed tables, proposed from what landed, and compared with it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Commands, Configured
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.typed.columns import TypedTable

schema = Commands(
    no_args_is_help=True, help="Typed tables: what they could be, and how configuration, table and events differ."
)
Rows = Annotated[int, typer.Option("--rows", min=1, help="How many events of late are looked at.")]


@schema.command()
def infer(
    settings: Configured,
    of_type: Annotated[str, typer.Argument(metavar="TYPE", help="Type of events that landed.")],
    rows: Rows = 100_000,
    as_json: AsJson = False,
) -> None:
    """Propose the configuration of a typed table from the events of a type that landed."""
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.typed.found_fields import data_of_late, fields_of
    from penstock.upkeep.typed.proposal import proposal

    with errors.status("reading"):
        data = data_of_late(Layout.of(settings.tables), of_type, rows)
        found = fields_of(data)
    if not len(data):
        fail(f"no event of the type {of_type!r} has landed")
    if as_json:
        fields = [{"field": one.name, "type": one.proposed, "events": one.present} for one in found]
        print(json.dumps({"type": of_type, "events": len(data), "fields": fields}, indent=2))
    else:
        print(proposal(of_type, found, len(data)), end="")


@schema.command()
def diff(
    settings: Configured,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A typed table that is configured.")],
    rows: Rows = 100_000,
    as_json: AsJson = False,
) -> None:
    """Compare the configuration of a typed table, the table, and what landed of late; 1 where they differ."""
    from penstock.landing.table_paths import Layout
    from penstock.landing.typed.typed_since import COMPLETE, begins, since
    from penstock.upkeep.typed.differences import differences
    from penstock.upkeep.typed.found_fields import data_of_late, fields_of

    layout, wanted = Layout.of(settings.tables), configured(settings, name)
    with errors.status("reading"):
        data = data_of_late(layout, wanted.type, rows)
        found = differences(layout, wanted, fields_of(data), len(data))
    after = since(layout).get(name, COMPLETE)
    if as_json:
        print(json.dumps({"events": len(data), "after": after, "columns": [one.document() for one in found]}, indent=2))
    else:
        shown = Table("column", "configured", "table", "landed", "difference", box=None)
        shown.columns[0].overflow = "fold"
        for one in found:
            shown.add_row(*(Text(visible(text)) for text in one.document().values()))
        console.print(shown)
        if after > COMPLETE:
            errors.print(f"{begins(name, after)}; `penstock tables fill {name}` brings in what landed before")
    sys.exit(1 if any(one.difference for one in found) else 0)


def configured(settings: Settings, name: str) -> TypedTable:
    """The typed table of that name, or the end with a line that says which there are."""
    from penstock.landing.typed.columns import typed_tables

    tables = {one.name: one for one in typed_tables(settings.pipeline)}
    if name not in tables:
        fail(f"there is no [pipeline.typed.{name}] (there are: {', '.join(tables) or 'none'})", 2)
    return tables[name]
