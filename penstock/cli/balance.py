"""``penstock balance``: what became of every message."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import AsJson, Config, Override, ask_daemon, console, settings_of

FATES = ("delivered", "policy_drop", "handler_failed", "corrupt")
"""What can become of a message on its route."""


def balance(
    config: Config = None,
    override: Override = None,
    as_json: AsJson = False,
    bucket: Annotated[
        int | None, typer.Option(help="One minute alone: its start in seconds since the epoch.", show_default=False)
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Compute it anew from log buffers, segments, gaps and tables, and compare."),
    ] = False,
) -> None:
    """Print the balance; the exit status is 1 when something is unaccounted for."""
    settings = settings_of(config, override)
    parameters = {"bucket": str(bucket)} if bucket is not None else {}
    if rebuild:
        from penstock.cli.rebuild import rebuilt  # the tables' side needs pyarrow's dataset

        document = rebuilt(settings)
    else:
        document = ask_daemon(settings, "/balance", **parameters)
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        show(document, console.print)
        console.print(f"unaccounted: {document['unaccounted']}", style="bold")
    sys.exit(1 if document["unaccounted"] or document.get("differs") else 0)


def show(document: dict[str, Any], out: Callable[[Any], None]) -> None:
    """Print a balance for people."""
    for listener in document["listeners"]:
        out(_listener_table(listener))
    out(_routes_table(document["routes"]))
    out(_topics_table(document["topics"]))
    for line in document.get("differs", []):
        out(f"differs from the ledger: {line}")
    out(f"pending: {document['pending']}")


def _listener_table(listener: dict[str, Any]) -> Table:
    table = Table(title=f"listener {listener['name']}", title_justify="left", box=None, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    sent = listener["sent"]
    table.add_row("unknown" if sent is None else str(sent.get("datagrams", sent.get("lines", 0))), "sent")
    if listener["network_lost"] is not None:
        table.add_row(str(listener["network_lost"]), "network_lost")
    for name, count in listener["counts"].items():
        table.add_row(str(count), name)
    for book in listener["books"]:
        table.add_row(str(book["left"] - book["right"]), f"OPEN: the book of {book['book']} does not close")
    return table


def _routes_table(routes: list[dict[str, Any]]) -> Table:
    table = Table(title="routes: accepted = what became of it + in_buffer", title_justify="left", box=None)
    for column in ("source", "handler", "accepted", "what became of it", "in_buffer", "unaccounted"):
        table.add_column(column, justify="right" if column in ("accepted", "in_buffer", "unaccounted") else "left")
    for route in routes:
        fates = ", ".join(f"{term} {route[term]}" for term in FATES if route[term])
        numbers = (str(route[term]) for term in ("in_buffer", "unaccounted"))
        table.add_row(route["source"], route["handler"], str(route["accepted"]), fates, *numbers)
    return table


def _topics_table(topics: list[dict[str, Any]]) -> Table:
    table = Table(title="topics: logged = what became of it + pending", title_justify="left", box=None)
    for column in ("topic", "logged"):
        table.add_column(column)
    table.add_column("what became of it")
    for column in ("pending", "unaccounted"):
        table.add_column(column, justify="right")
    for topic in topics:
        fates = ", ".join(f"{fate} {count}" for fate, count in sorted(topic["fates"].items()))
        if not topic["read_by_pipeline"]:
            fates = ", ".join(filter(None, ("kept in the log (no pipeline reads it)", fates)))
        table.add_row(topic["topic"], str(topic["logged"]), fates, str(topic["pending"]), str(topic["unaccounted"]))
    return table
