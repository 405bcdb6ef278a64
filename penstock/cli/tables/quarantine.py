"""``penstock pipeline quarantine``: inspect quarantined messages, and replay them into their topics."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli.common import console, fail
from penstock.cli.completion import topic_names
from penstock.cli.options import AsJson, Commands, Config, ConfiguredData, Override
from penstock.cli.progress import Progress
from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.files.change_log import record_command
from penstock.process.terminal import visible
from penstock.sql.configured import tables_of
from penstock.sql.quarantine_states import Action, State
from penstock.sql.quarantined import (
    Extent,
    Selection,
    UnknownReason,
    check,
    extent,
    groups,
    history,
    newest,
    send_all,
)
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.fixes import BadFix, Fix, describe_fix, keep_payload, load_fix, replace_text, set_field
from penstock.upkeep.quarantine.preview import SAMPLES, preview
from penstock.upkeep.quarantine.send_back import Row, SendBack, count_sent_back, hold_send_lock, rows_sent_back

quarantine = Commands(no_args_is_help=True, help="Inspect and replay messages that are not valid events.")
Reason = Annotated[
    str, typer.Option("--where", metavar="REASON", help="Select messages with this reason.", show_default=False)
]
TopicOption = Annotated[
    str, typer.Option("--topic", help="Select messages of this topic.", show_default=False, autocompletion=topic_names)
]
Shape = Annotated[
    str, typer.Option(metavar="TEXT", help="Select messages of this shape, as `groups` prints it.", show_default=False)
]
Pair = tuple[str, str] | None
MAX_TEXT_LENGTH = 60


@quarantine.command("groups")
def show_groups(
    settings: ConfiguredData,
    limit: Annotated[int, typer.Option("-n", help="Maximum number of groups to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print the number of quarantined messages by reason and shape, the largest first."""
    tables = tables_of(settings)
    matches = groups(tables)[:limit]
    if as_json:
        documents = [{**group._asdict(), "newest": group.newest.isoformat()} for group in matches]
        print(json.dumps(documents, indent=2))
        return
    for group in matches:
        messages = f"{group.messages:,} message{'s' * (group.messages != 1)}"
        _print_entry(f"{group.reason}: {messages}, newest {_utc(group.newest)}", group.shape)
    if not matches:
        print("the quarantine is empty")
    if sent_back := sum(counts.total() for counts in count_sent_back(tables.layout).values()):
        print(f"sent back so far: {sent_back:,} (penstock pipeline quarantine history says what became of them)")


@quarantine.command("list")
def list_rows(
    settings: ConfiguredData,
    where: Reason = "",
    topic: TopicOption = "",
    shape: Shape = "",
    limit: Annotated[int, typer.Option("-n", help="Maximum number of rows to print.")] = 20,
    state: Annotated[
        State,
        typer.Option(help="State: open, sent_back (on the way, or quarantined again), resolved, deleted."),
    ] = State.OPEN,
    as_json: AsJson = False,
) -> None:
    """Print quarantined messages with what is wrong and where, the newest first."""
    tables, selection = _select(settings, where, topic, shape)
    if state == State.DELETED:
        _show_history([action for action in history(tables) if action.state == state][:limit], as_json)
        return
    matches = newest(tables, selection, limit, state=state)
    if state != State.OPEN:
        _show_sent_back(tables, matches, as_json)
        return
    if as_json:
        print(json.dumps([row.document() for row in matches], indent=2))
        return
    for row in matches:
        header = f"{row.position}  {row.timestamp:%m-%d %H:%M:%S} UTC  {row.source or 'no source'}  {row.reason}"
        _print_entry(header, row.payload.decode(errors="replace"))
        if details := row.fault.details(row.reason):
            print(textwrap.fill(visible(details), 80, initial_indent="    ", subsequent_indent="    "))
    if not matches:
        print("the quarantine is empty")


@quarantine.command("history")
def show_history(
    settings: ConfiguredData,
    limit: Annotated[int, typer.Option("-n", help="Maximum number of actions to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print what was done with quarantined messages (sent back, deleted) and what became of them, the newest first."""
    _show_history(history(tables_of(settings))[:limit], as_json)


def _show_history(actions: list[Action], as_json: bool) -> None:
    if as_json:
        print(json.dumps([action.document() for action in actions], indent=2))
        return
    for action in actions:
        words = f"{action.messages:,} {action.state.replace('_', ' ')}"
        _print_entry(f"{_utc(action.at)}  {action.topic}  {words}: {action.outcome_text()}", action.how)
    if not actions:
        print("nothing was done yet")


def _show_sent_back(tables: Tables, matches: list[Row], as_json: bool) -> None:
    positions = {(row.topic, row.offset) for row in matches}
    sent = {(row.topic, row.key): row for row in rows_sent_back(tables.layout) if (row.topic, row.key) in positions}
    if as_json:
        documents = [row.document() | asdict(sent[row.topic, row.offset]) for row in matches]
        print(json.dumps(documents, indent=2))
        return
    for row in matches:
        sent_row = sent[row.topic, row.offset]
        moment = _utc(datetime.fromtimestamp(sent_row.sent_at / 1000, UTC))
        successor = "" if sent_row.successor is None else f" as {row.topic}:{sent_row.successor}"
        _print_entry(f"{row.position}  {row.reason}  sent back {moment}{successor}", sent_row.fix or "unchanged")
    if not matches:
        print("no message was sent back")


@quarantine.command()
def replay(
    where: Reason = "",
    topic: TopicOption = "",
    shape: Shape = "",
    fix: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that corrects a payload: bytes to bytes, or None to skip it.",
            show_default=False,
        ),
    ] = "",
    replace: Annotated[
        Pair, typer.Option(metavar="OLD NEW", help="Replace a text in each payload.", show_default=False)
    ] = None,
    put: Annotated[
        Pair,
        typer.Option(
            "--set",
            metavar="FIELD VALUE",
            help="Set a field; {hash} is the payload's hash, {now} the time in ms.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send the messages; without it, print a preview.")] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Send quarantined messages to their topics again, corrected. Each message is sent once."""
    # Imports gRPC, which commands that only read the tables do without.
    from penstock.cli.log.connect import DaemonOptions

    connection = DaemonOptions.from_configuration(config, override)
    tables, selection = _select(connection.settings, where, topic, shape)
    correction = _parse_fix(fix, replace, put)
    counts = extent(tables, selection)
    if not yes:
        _preview(tables, selection, counts, correction)
        return
    # Invariant: one process sends at a time. Two would both see a message as not sent yet.
    with connection.connect() as log, hold_send_lock(tables.layout), Progress("sending") as progress:

        def report(read_rows: int) -> bool:
            progress.update(f"{read_rows:,} of {counts.of_log:,}")
            return True

        try:
            sender = SendBack(tables.layout, log, correction, describe_fix(fix, replace, put))
            sent, skipped = send_all(tables, selection, sender, counts.newest, report)
        except BadFix as error:
            fail(error)
    words, fix_text = selection.words(), describe_fix(fix, replace, put)
    change = f"send {sent} quarantined messages back"
    if sent:
        record_command(connection.settings.data_dir, change, selection=words, fix=fix_text)
    console.print(f"{sent:,} sent again, {skipped:,} skipped by the fix, {counts.before:,} sent before")


def _select(settings: Settings, reason: str, topic: str, shape: str) -> tuple[Tables, Selection]:
    """Return the tables and the selection, or end the command if the selection is invalid."""
    try:
        tables, selection = tables_of(settings), Selection(reason, topic, shape)
        check(tables, selection)
    except UnknownReason as error:
        fail(error, 2)
    except PenstockError as error:
        fail(error)
    return tables, selection


def _parse_fix(function: str, replace: Pair, field: Pair) -> Fix:
    if sum(map(bool, (function, replace, field))) > 1:
        fail("--fix, --replace and --set exclude each other: use one of them", 2)
    try:
        if function:
            return load_fix(function)
        return replace_text(*replace) if replace else set_field(*field) if field else keep_payload
    except BadFix as error:
        fail(error, 2)


def _preview(tables: Tables, selection: Selection, counts: Extent, correction: Fix) -> None:
    """Print the number of messages to send, and a sample with its new fate."""
    samples = preview(newest(tables, selection, SAMPLES), correction, tables.rules.events)
    for sample in samples:
        _print_entry(f"{sample.row.position}  becomes: {sample.becomes}", sample.row.payload.decode(errors="replace"))
        if sample.after and sample.after != sample.row.payload:
            print(f"    {_shorten(sample.after.decode(errors='replace'))}")
    console.print(f"to be sent again: {counts.of_log - counts.before:,} ({selection.words()}); send them with --yes")


def _print_entry(header: str, detail: str) -> None:
    """Print an entry as two lines: as columns of 80 characters in all, each would break into many."""
    print(visible(header))
    print(f"    {_shorten(detail)}")


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _shorten(text: str) -> str:
    # A payload comes from the network and must not control the terminal.
    printable = visible(text)
    return printable if len(printable) <= MAX_TEXT_LENGTH else printable[:MAX_TEXT_LENGTH] + "..."
