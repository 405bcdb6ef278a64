"""``penstock senders``: the senders of listeners, their counts, losses and pauses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli.common import aligned_lines, query_daemon
from penstock.cli.options import AsJson, DaemonConfigured
from penstock.console.wording import counted
from penstock.process.terminal import visible

SHOWN = 50
"""Default number of senders of a listener."""
HEADS = ["sender", "accepted", "lost", "last seen", "usual pause", ""]


def senders(
    keys: DaemonConfigured,
    listener: Annotated[str | None, typer.Option(help="Print only senders of this listener.")] = None,
    search: Annotated[str | None, typer.Option(help="Print only senders with this text in their name.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Number of senders of each listener.")] = SHOWN,
    as_json: AsJson = False,
) -> None:
    """Print the senders of each listener, the largest first, with their losses and who is silent or new."""
    parameters = {"limit": str(limit)}
    parameters |= {"listener": listener} if listener is not None else {}
    parameters |= {"search": search} if search is not None else {}
    document = query_daemon(keys, "/senders", **parameters)
    if as_json:
        print(json.dumps(document, indent=2))
        return
    for line in sender_lines(document):
        print(visible(line))


def sender_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table for each listener that has senders."""
    for listener in document["listeners"]:
        shown = listener["senders"]
        more = f", the largest {len(shown)}" if len(shown) < listener["number"] else ""
        yield f"listener {listener['listener']}: {counted(listener['number'], 'sender')}{more}"
        if shown:
            yield from (f"  {line}" for line in aligned_lines([HEADS, *map(_cells, shown)], texts=(0, 2, 3, 4, 5)))


def _cells(sender: Mapping[str, Any]) -> list[str]:
    lost = ", ".join(f"{name} {count}" for name, count in sender["losses"].items()) or "-"
    last_seen = datetime.fromtimestamp(sender["last_seen"], UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    pause = f"{sender['usual_pause_s']:.0f} s" if sender["usual_pause_s"] else "-"
    silent = f"silent for {sender['silence_s']:.0f} s" if sender["silent"] else "new" if sender["new"] else ""
    return [sender["sender"], str(sender["accepted"]), lost, last_seen, pause, silent]
