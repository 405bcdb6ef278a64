"""``penstock pipeline wait``: for schedulers, until a table is complete up to a time."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.common import ask_daemon, errors, fail
from penstock.cli.options import AsJson, Reached
from penstock.config import ConfigError, parse_time

LOOK_EVERY = 1.0


def wait(
    where: Reached,
    until: Annotated[str, typer.Option(help="A time of today such as 14:00, or an ISO date and time.")],
    table: Annotated[str, typer.Option(help="events, syslog or messages.")] = "events",
    topic: Annotated[str | None, typer.Option(help="Of this topic alone.", show_default=False)] = None,
    timeout: Annotated[str, typer.Option(help="Give up after this time; the exit status is then 3.")] = "1h",
    as_json: AsJson = False,
) -> None:
    """Wait until a table is complete up to a time, and say how complete."""
    try:
        wanted, patience = moment(until), float(str(parse_time(timeout)))
    except (ValueError, ConfigError) as error:
        fail(error, 2)
    end = time.monotonic() + patience
    with errors.status(f"waiting for {table} up to {until}"):
        while not complete(found := marks(ask_daemon(where, "/watermarks"), table, topic), wanted):
            if time.monotonic() > end:
                fail(f"{table} is not complete up to {until} after {timeout}: {describe(found)}", 3)
            time.sleep(LOOK_EVERY)
    if as_json:
        print(json.dumps(found))
    else:
        print(describe(found))
    sys.exit(0)


def moment(text: str, option: str = "--until") -> float:
    """Seconds since the epoch of ``14:00`` (today, local time) or an ISO time.

    Raises ValueError, which names ``option``.
    """
    if len(text) <= 8 and ":" in text:
        text = f"{datetime.now().date()}T{text}"
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a time such as 14:00 or 2026-01-31T14:00") from None


def marks(answer: Any, table: str, topic: str | None) -> list[dict[str, Any]]:
    """The watermarks of a table."""
    return [mark for mark in answer["tables"] if mark["table"] == table and topic in (None, mark["topic"])]


def complete(found: list[dict[str, Any]], wanted: float) -> bool:
    """Whether there are any, and all have come to ``wanted``."""
    return bool(found) and all(mark["until"] >= wanted for mark in found)


def describe(found: list[dict[str, Any]]) -> str:
    """``events (topic events): complete up to 14:00: 99.98 %``."""
    lines = [
        f"{mark['table']} (topic {mark['topic']}): complete up to "
        f"{datetime.fromtimestamp(mark['until']):%Y-%m-%d %H:%M}: {100 * mark['share']:.2f} %"
        for mark in found
    ]
    return "\n".join(lines) or "nothing has landed yet"
