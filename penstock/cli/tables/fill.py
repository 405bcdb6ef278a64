"""``penstock tables fill``: what landed before a typed table began."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.common import console
from penstock.cli.options import AsJson, Configured
from penstock.cli.progress import Progress


def fill(
    settings: Configured,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A typed table that is configured.")],
    as_json: AsJson = False,
) -> None:
    """Bring into a typed table what landed before it began, each row once; a pipeline may run meanwhile."""
    from penstock.cli.tables.schema import configured
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.typed.fill import fill as bring_in

    wanted = configured(settings, name)
    with Progress("filling") as shown:
        told = lambda done, of: shown.tell(f"day {done + 1:,} of {of:,}")  # noqa: E731
        rows = bring_in(Layout.of(settings.tables), wanted, told)
    if as_json:
        print(json.dumps({"rows": rows}))
    else:
        console.print(f"{rows:,} rows came into {wanted.view}" if rows else f"{wanted.view} has all that landed")
