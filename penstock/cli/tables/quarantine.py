"""``penstock pipeline quarantine``: what could not be an event, and its way back."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, errors, fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Where
from penstock.cli.options import AsJson, Commands, Config, Configured, Override
from penstock.landing.quarantine.send_back import BadFix, SendBack, load_fix, rows, to_json
from penstock.landing.table_paths import Layout
from penstock.process.terminal import visible

quarantine = Commands(no_args_is_help=True, help="Messages that look like events and are none.")
Reason = Annotated[
    str | None, typer.Option("--where", metavar="REASON", help="Only with this reason.", show_default=False)
]
OfTopic = Annotated[
    str | None, typer.Option("--topic", help="Only of this topic.", show_default=False, autocompletion=topic_names)
]
SHOWN = 60


@quarantine.command("list")
def list_rows(
    settings: Configured,
    where: Reason = None,
    topic: OfTopic = None,
    limit: Annotated[int, typer.Option("-n", help="Most rows shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show messages in quarantine, with the reason."""
    layout = Layout.of(settings.tables)
    found = list(itertools.islice(rows(layout, reason=where, topic=topic), limit))
    if as_json:
        print(to_json(found))
        return
    table = Table("topic", "offset", "reason", "payload", box=None)
    for row in found:
        shown = visible(row.payload.decode(errors="replace"))
        table.add_row(
            row.topic, str(row.offset), row.reason, Text(shown if len(shown) <= SHOWN else shown[:SHOWN] + "...")
        )
    console.print(table if found else "nothing is in quarantine")


@quarantine.command()
def replay(
    where: Reason = None,
    topic: OfTopic = None,
    fix: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Mends a payload: bytes to bytes, or None.", show_default=False),
    ] = None,
    config: Config = None,
    override: Override = None,
) -> None:
    """Send messages in quarantine back into their topics, mended by a function of your own. Each is sent once."""
    try:
        mend = load_fix(fix) if fix else None
    except BadFix as error:
        fail(error, 2)
    connection = Where.of(config, override)
    layout = Layout.of(connection.settings.tables)
    with connection.opened() as log, errors.status("sending back"):
        chosen = list(rows(layout, reason=where, topic=topic))
        sent, left = SendBack(layout, log, mend).run(chosen)
    before = len(chosen) - sent - left
    console.print(f"{sent:,} sent back, {left:,} left by the fix, {before:,} had been sent back before")
