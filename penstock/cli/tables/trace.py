"""``penstock trace``: the stations of one message, or the station where it stopped and why."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, ConfiguredData
from penstock.cli.progress import Progress
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sql.search import Match
    from penstock.upkeep.trace.tracer import Trace, Tracer

MAX_MATCHES, MAX_PAYLOAD_LENGTH = 20, 160


def trace(
    settings: ConfiguredData,
    message: Annotated[
        str,
        typer.Argument(
            metavar="UUID|TOPIC:OFFSET|TEXT",
            help="Event uuid, topic and offset (Kafka: TOPIC/PARTITION:OFFSET), or whole words of messages.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show where a message has been, from files alone.

    Exits with status 1 if the message is unknown.
    """
    from penstock.landing.table_paths import Layout

    # Parquet is slow to import.
    from penstock.sql.configured import schemas_of
    from penstock.upkeep.trace.tracer import Tracer

    with Progress("searching") as progress:
        patterns = () if settings.pipeline.source == "kafka" else settings.pipeline.topics
        layout, schemas = Layout.for_tables(settings.tables), schemas_of(settings)
        tracer = Tracer(settings.topics, layout, patterns, progress.update, schemas)
        outcome = _trace_message(tracer, message)
        matches = _search_text(settings, message) if outcome.trace is None else []
    if as_json:
        containing = {"containing": [match.position for match in matches]} if matches else {}
        print(json.dumps({"asked": message, **outcome.document(), **containing}, indent=2))
    elif matches:
        _print_matches(message, matches)
    elif outcome.trace is None:
        fail(f"{message}: {outcome.problem}")
    else:
        _print_trace(message, outcome.trace)
    sys.exit(0 if matches or (outcome.trace is not None and outcome.trace.is_explained) else 1)


@dataclass(frozen=True, slots=True)
class TraceOutcome:
    """A trace, or the reason why there is none."""

    trace: Trace | None
    problem: str = ""

    def document(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return self.trace.document() if self.trace is not None else {"fate": "absent", "meaning": self.problem}


def _trace_message(tracer: Tracer, message: str) -> TraceOutcome:
    from penstock.upkeep.trace.tracer import MESSAGE_POSITION, BrokenFile, NoSuchTopic

    named_position = MESSAGE_POSITION.fullmatch(message)
    try:
        if named_position and tracer.has_topic(named_position["topic"]):
            return TraceOutcome(tracer.trace(named_position["topic"], int(named_position["offset"])))
        position = tracer.landed(message)
        if position is None:
            errors.print(
                f"{message} has not landed as an event; searching messages that have not landed", soft_wrap=True
            )
            position = tracer.waiting(message)
        if position is not None:
            return TraceOutcome(tracer.trace(*position))
    except (NoSuchTopic, BrokenFile, OSError) as error:
        fail(error, 2)
    no_topic = f"no topic is named {named_position['topic']!r}, and " if named_position else ""
    return TraceOutcome(None, f"{no_topic}no event with this uuid has landed or waits in the log")


def _search_text(settings: Settings, text: str) -> list[Match]:
    """Return the newest messages that contain a text as whole words; none without DuckDB."""
    try:
        from penstock.sql.configured import tables_of
        from penstock.sql.search import containing
    except ModuleNotFoundError:
        return []
    is_word = re.compile(rf"(?<![\w-]){re.escape(text)}(?![\w-])").search
    matches = containing(tables_of(settings), text, MAX_MATCHES)
    # A part of a longer word of a payload is another message's uuid, as in `bad1` and `bad10`.
    return [
        match
        for match in matches
        if text not in (payload := match.payload.decode(errors="replace")) or is_word(payload)
    ]


def _print_matches(text: str, matches: list[Match]) -> None:
    for match in matches:
        payload = visible(match.payload.decode(errors="replace")[:MAX_PAYLOAD_LENGTH])
        line = Text(f"{match.position}  {match.timestamp:%Y-%m-%d %H:%M:%S}  {match.kind}  {payload}")
        console.print(line, no_wrap=True, overflow="ellipsis")
    errors.print(
        Text(f"no event has this uuid; the newest messages that contain {text!r}: trace one by its TOPIC:OFFSET"),
        soft_wrap=True,
    )


def _print_trace(message: str, message_trace: Trace) -> None:
    indent = max(len(step.step) for step in message_trace.steps) + 2
    for step in message_trace.steps:
        # The name of a file stays whole, so that it can be copied.
        lines = textwrap.wrap(step.text, console.width - indent, break_long_words=False, break_on_hyphens=False)
        text = Text(f"\n{' ' * indent}".join(lines))
        console.print(Text(step.step.ljust(indent), style="bold").append_text(text), soft_wrap=True)
    uuid = f" (uuid {message_trace.uuid})" if message_trace.uuid not in (None, message) else ""
    console.print(Text(f"{message_trace.topic}:{message_trace.offset}{uuid} {message_trace.meaning}"), soft_wrap=True)
