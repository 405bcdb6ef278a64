"""``penstock pipeline quarantine``: what could not be an event, and its way back."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Where
from penstock.cli.options import AsJson, Commands, Config, Configured, Override
from penstock.cli.progress import Progress
from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.process.terminal import visible
from penstock.sql.configured import tables_of
from penstock.sql.quarantined import Extent, Selection, UnknownReason, check, extent, groups, newest, send_all
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.fixes import BadFix, Fix, as_it_is, load_fix, replacing, setting
from penstock.upkeep.quarantine.preview import SAMPLES, Sample, preview
from penstock.upkeep.quarantine.send_back import SendBack, alone

quarantine = Commands(no_args_is_help=True, help="Messages that look like events and are none.")
Reason = Annotated[str, typer.Option("--where", metavar="REASON", help="Only with this reason.", show_default=False)]
OfTopic = Annotated[
    str, typer.Option("--topic", help="Only of this topic.", show_default=False, autocompletion=topic_names)
]
Shape = Annotated[str, typer.Option(metavar="TEXT", help="Only those that look so, as in groups.", show_default=False)]
Pair = tuple[str, str] | None
SHOWN = 60


@quarantine.command("groups")
def show_groups(
    settings: Configured,
    limit: Annotated[int, typer.Option("-n", help="Most groups shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what is in quarantine by reason and by what it looks like, the most first."""
    found = groups(tables_of(settings))[:limit]
    if as_json:
        documents = [{**one._asdict(), "newest": one.newest.isoformat()} for one in found]
        print(json.dumps(documents, indent=2))
        return
    table = Table("reason", "messages", "newest (UTC)", "looks like", box=None)
    for one in found:
        table.add_row(one.reason, f"{one.messages:,}", f"{one.newest:%Y-%m-%d %H:%M:%S}", _short(one.shape))
    console.print(table if found else "nothing is in quarantine")


@quarantine.command("list")
def list_rows(
    settings: Configured,
    where: Reason = "",
    topic: OfTopic = "",
    shape: Shape = "",
    limit: Annotated[int, typer.Option("-n", help="Most rows shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show messages in quarantine, the newest first, with the reason."""
    tables, chosen = _chosen(settings, where, topic, shape)
    found = newest(tables, chosen, limit)
    if as_json:
        print(json.dumps([row.document() for row in found], indent=2))
        return
    table = Table("message", "received (UTC)", "source", "reason", "payload", box=None)
    for row in found:
        shown = row.payload.decode(errors="replace")
        table.add_row(row.place, f"{row.timestamp:%m-%d %H:%M:%S}", row.source, row.reason, _short(shown))
    console.print(table if found else "nothing is in quarantine")


@quarantine.command()
def replay(
    where: Reason = "",
    topic: OfTopic = "",
    shape: Shape = "",
    fix: Annotated[
        str,
        typer.Option(metavar="MODULE:FUNCTION", help="Mends a payload: bytes to bytes, or None.", show_default=False),
    ] = "",
    replace: Annotated[
        Pair, typer.Option(metavar="OLD NEW", help="Puts a text in the place of another.", show_default=False)
    ] = None,
    put: Annotated[
        Pair,
        typer.Option(
            "--set", metavar="FIELD VALUE", help="Sets a field; {hash}: of the payload, {now}: ms.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send them; without it, see what would become of some.")] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Send messages in quarantine back into their topics, mended. Each is sent once."""
    connection = Where.of(config, override)
    tables, chosen = _chosen(connection.settings, where, topic, shape)
    mend = _fix(fix, replace, put)
    about = extent(tables, chosen)
    if not yes:
        _show(tables, chosen, about, mend)
        return
    with connection.opened() as log, alone(tables.layout), Progress("sending back") as progress:

        def tell(looked: int) -> bool:
            progress.tell(f"{looked:,} of {about.of_log:,}")
            return True

        try:
            sent, left = send_all(tables, chosen, SendBack(tables.layout, log, mend), about.newest, tell)
        except BadFix as error:
            fail(error)
    console.print(f"{sent:,} sent back, {left:,} left by the fix, {about.before:,} had been sent back before")


def _chosen(settings: Settings, where: str, topic: str, shape: str) -> tuple[Tables, Selection]:
    """The tables, and what is meant of them."""
    try:
        tables, chosen = tables_of(settings), Selection(where, topic, shape)
        check(tables, chosen)
    except UnknownReason as error:
        fail(error, 2)
    except PenstockError as error:
        fail(error)
    return tables, chosen


def _fix(named: str, replace: Pair, put: Pair) -> Fix:
    if sum(map(bool, (named, replace, put))) > 1:
        fail("one of --fix, --replace and --set", 2)
    try:
        if named:
            return load_fix(named)
        return replacing(*replace) if replace else setting(*put) if put else as_it_is
    except BadFix as error:
        fail(error, 2)


def _show(tables: Tables, chosen: Selection, about: Extent, mend: Fix) -> None:
    """What would be sent, and what would become of some of it."""
    samples = preview(newest(tables, chosen, SAMPLES), mend, tables.rules.events)
    table = Table("message", "before", "after", "becomes", box=None)
    for one in samples:
        table.add_row(one.row.place, _short(one.row.payload.decode(errors="replace")), _after(one), one.becomes)
    if samples:
        console.print(table)
    console.print(f"{about.of_log - about.before:,} messages would be sent back ({chosen.words()}); --yes sends them")


def _after(sample: Sample) -> Text:
    changed = sample.after is not None and sample.after != sample.row.payload
    return _short(sample.after.decode(errors="replace")) if sample.after and changed else Text("")


def _short(text: str) -> Text:
    shown = visible(text)
    return Text(shown if len(shown) <= SHOWN else shown[:SHOWN] + "...")
