"""``penstock trace``: where one message has been, or where and why it stopped."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Configured
from penstock.cli.progress import Progress
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sql.search import Match
    from penstock.upkeep.trace.tracer import Trace, Tracer

MOST, SHOWN = 20, 160


def trace(
    settings: Configured,
    message: Annotated[
        str,
        typer.Argument(
            metavar="UUID|TOPIC:OFFSET|TEXT",
            help="An event's uuid, a place (of Kafka: TOPIC/PARTITION:OFFSET), or any text that is in messages.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show where a message has been; works on the files alone. The exit status is 1 where that is not known."""
    from penstock.landing.table_paths import Layout
    from penstock.upkeep.trace.tracer import Tracer  # Parquet takes a moment to import

    with Progress("searching") as progress:
        patterns = () if settings.pipeline.source == "kafka" else settings.pipeline.topics
        tracer = Tracer(settings.topics, Layout.of(settings.tables), patterns, progress.tell)
        found = _found(tracer, message)
        matches = _containing(settings, message) if found.trace is None else []
    if as_json:
        places = {"containing": [one.place for one in matches]} if matches else {}
        print(json.dumps({"asked": message, **found.document(), **places}, indent=2))
    elif matches:
        _list(message, matches)
    elif found.trace is None:
        fail(f"{message}: {found.problem}")
    else:
        _show(message, found.trace)
    sys.exit(0 if matches or (found.trace is not None and found.trace.known) else 1)


@dataclass(frozen=True, slots=True)
class TraceOutcome:
    """A trace, or why there is none."""

    trace: Trace | None
    problem: str = ""

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return self.trace.document() if self.trace is not None else {"fate": "absent", "meaning": self.problem}


def _found(tracer: Tracer, message: str) -> TraceOutcome:
    from penstock.upkeep.trace.tracer import PLACE, BrokenFile, NoSuchTopic

    place = PLACE.fullmatch(message)
    try:
        if place and tracer.has_topic(place["topic"]):
            return TraceOutcome(tracer.trace(place["topic"], int(place["offset"])))
        at = tracer.landed(message)
        if at is None:
            errors.print(f"{message} has not landed as an event; looking in what waits in the log", soft_wrap=True)
            at = tracer.waiting(message)
        if at is not None:
            return TraceOutcome(tracer.trace(*at))
    except (NoSuchTopic, BrokenFile, OSError) as error:
        fail(error, 2)
    no_topic = f"there is no topic {place['topic']!r}, and " if place else ""
    return TraceOutcome(None, f"{no_topic}no event with this uuid has landed or waits in the log")


def _containing(settings: Settings, text: str) -> list[Match]:
    """The newest messages that have a text in them; none where DuckDB is not there to look."""
    try:
        from penstock.sql.configured import tables_of
        from penstock.sql.search import containing
    except ModuleNotFoundError:
        return []
    return containing(tables_of(settings), text, MOST)


def _list(text: str, matches: list[Match]) -> None:
    for one in matches:
        payload = visible(one.payload.decode(errors="replace")[:SHOWN])
        line = Text(f"{one.place}  {one.timestamp:%Y-%m-%d %H:%M:%S}  {one.kind}  {payload}")
        console.print(line, no_wrap=True, overflow="ellipsis")
    errors.print(
        Text(f"no event has this uuid; the newest messages with {text!r} in them: trace one by its place"),
        soft_wrap=True,
    )


def _show(message: str, found: Trace) -> None:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for step in found.steps:
        table.add_row(step.step, Text(step.text))
    console.print(table)
    uuid = f" (uuid {found.uuid})" if found.uuid not in (None, message) else ""
    console.print(Text(f"{found.topic}:{found.offset}{uuid} {found.meaning}"), soft_wrap=True)
