"""``penstock pipeline wait``: wait until a table is complete up to a time, for schedulers."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.common import fail, query_daemon
from penstock.cli.options import AsJson, DaemonConfigured
from penstock.config import ConfigError, parse_time

POLL_INTERVAL_S = 1.0


def wait(
    keys: DaemonConfigured,
    until: Annotated[str, typer.Option(help="Time of today such as 14:00, or ISO date and time.")],
    table: Annotated[str, typer.Option(help="Table: events, syslog or messages.")] = "events",
    topic: Annotated[str | None, typer.Option(help="Wait only for this topic.", show_default=False)] = None,
    timeout: Annotated[str, typer.Option(help="Maximum time to wait; exits with status 3 after it.")] = "1h",
    as_json: AsJson = False,
) -> None:
    """Wait until a table is complete up to a time, and print how complete it is."""
    try:
        deadline_time, patience = parse_moment(until), float(str(parse_time(timeout)))
    except (ValueError, ConfigError) as error:
        fail(error, 2)
    end = time.monotonic() + patience
    from penstock.cli.common import errors  # here, because `balance` imports this module and does without rich

    with errors.status(f"waiting for {table} up to {until}"):
        while not is_complete(
            watermarks := table_watermarks(query_daemon(keys, "/watermarks"), table, topic), deadline_time
        ):
            if time.monotonic() > end:
                fail(f"{table} is not complete up to {until} after {timeout}: {format_watermarks(watermarks)}", 3)
            time.sleep(POLL_INTERVAL_S)
    if as_json:
        print(json.dumps(watermarks))
    else:
        print(format_watermarks(watermarks))
    sys.exit(0)


def parse_moment(text: str, option: str = "--until") -> float:
    """Return seconds since the epoch of ``14:00`` (today, local time) or of an ISO time.

    Raises ValueError that names ``option``.
    """
    if len(text) <= 8 and ":" in text:
        text = f"{datetime.now().date()}T{text}"
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a time such as 14:00 or 2026-01-31T14:00") from None


def table_watermarks(answer: Any, table: str, topic: str | None) -> list[dict[str, Any]]:
    """Return the watermarks of a table, of one topic or all."""
    return [mark for mark in answer["tables"] if mark["table"] == table and topic in (None, mark["topic"])]


def is_complete(watermarks: list[dict[str, Any]], until: float) -> bool:
    """Report whether all watermarks, at least one, have reached ``until``."""
    return bool(watermarks) and all(mark["until"] >= until for mark in watermarks)


def format_watermarks(watermarks: list[dict[str, Any]]) -> str:
    """Return lines such as ``events (topic events): complete up to 14:00: 99.98 %``."""
    lines = [
        f"{mark['table']} (topic {mark['topic']}): complete up to "
        f"{datetime.fromtimestamp(mark['until']):%Y-%m-%d %H:%M}: {100 * mark['share']:.2f} %"
        for mark in watermarks
    ]
    return "\n".join(lines) or "nothing has landed yet"
