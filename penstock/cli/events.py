"""``penstock events``: what happened when."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.common import ask_daemon, console, fail
from penstock.cli.options import AsJson, Configured
from penstock.cli.tables.wait import moment
from penstock.ledger.event_words import event_line

EVERY = 1.0


def events(
    settings: Configured,
    as_json: AsJson = False,
    since: Annotated[str | None, typer.Option(help="From a time on, such as 14:00.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="So many of the newest.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
) -> None:
    """Print the timeline: restarts with their cause, reloads, losses, full disk, retention, clock.

    The newest last.
    """
    asked = {"limit": str(limit)}
    try:
        if since is not None:
            asked["since"] = str(int(moment(since, "--since")))
    except ValueError as error:
        fail(error, 2)
    shown: dict[str, str] = {}
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _show(ask_daemon(settings, "/events", **asked)["events"], shown, as_json)
            if not follow:
                return
            time.sleep(EVERY)


def _show(found: list[dict[str, Any]], shown: dict[str, str], as_json: bool) -> None:
    """Print what was not printed yet, the oldest first; what has changed is printed again."""
    for event in reversed(found):
        if shown.get(event["id"]) == event["text"]:
            continue
        shown[event["id"]] = event["text"]
        if as_json:
            print(json.dumps(event), flush=True)
        else:
            console.print(Text(event_line(event)), soft_wrap=True)
