"""The books of a balance, and rows by one thing, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console

OPEN = ("in_buffer", "unaccounted")
FATES = ("delivered", "policy_drop", "handler_failed", "corrupt")
"""What can become of a message on its route."""
WIDEST = 10_000
BLOCK = 24
"""Characters of a name where rows are shown as blocks."""


def by_table(by: str, rows: list[dict[str, Any]]) -> RenderableType:
    """A line for each row, without the columns that are 0 in all; where that is too wide, a block for each row."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if _told(name, rows)] or [by]
    table = Table(title=f"by {by}", title_justify="left", box=None)
    for name in names:
        texts = any(isinstance(row.get(name), str) for row in rows)
        table.add_column(name, justify="left" if texts else "right", no_wrap=True)
    cells = [[str(row.get(name, 0)) or "(none)" for name in names] for row in rows]
    for row in cells:
        table.add_row(*map(Text, row))
    if Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum <= console.width:
        return table
    blocks = ["\n".join(f"{n:>{BLOCK}}  {value}" for n, value in zip(names, row, strict=True)) for row in cells]
    return Text(f"by {by}\n" + "\n\n".join(blocks))


def _told(name: str, rows: list[dict[str, Any]]) -> bool:
    return name in OPEN or any(row.get(name, 0) != 0 for row in rows)


def show(document: dict[str, Any], out: Callable[[Any], None]) -> None:
    """Print the books of a balance for people."""
    for listener in document["listeners"]:
        out(_listener_table(listener))
    out(_routes_table(document["routes"]))
    out(_topics_table(document["topics"]))
    if document.get("audits"):
        out(_audits_table(document["audits"]))
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


def _audits_table(audits: list[dict[str, Any]]) -> Table:
    title = "auditors: what Kafka clients say they sent and read (shown, no term of the proof)"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("tier", "source", "topic", "counted"):
        table.add_column(column)
    for one in audits:
        counted = ", ".join(f"{name} {count}" for name, count in sorted(one["counts"].items()))
        table.add_row(one["tier"], one["source"], one["topic"], counted)
    return table
