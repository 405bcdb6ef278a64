"""The books of a balance, and its rows by listener, topic, type or host, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

OPEN = ("in_buffer", "unaccounted")
FATES = ("delivered", "policy_drop", "handler_failed", "corrupt")
"""Fates of a message on its route."""
UNLIMITED_WIDTH = 10_000
BLOCK_NAME_WIDTH = 24
"""Columns of a name if rows are blocks."""


class ByTable:
    """A table with one line per row, without columns that are 0 everywhere; a block per row if it is too wide."""

    def __init__(self, by: str, rows: list[dict[str, Any]]) -> None:
        self._by = by
        self._names = [n for n in dict.fromkeys(name for row in rows for name in row) if _is_column(n, rows)] or [by]
        self._texts = {n for n in self._names if any(isinstance(row.get(n), str) for row in rows)}
        self._cells = [[str(row.get(name, 0)) or "(none)" for name in self._names] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        fits = Measurement.get(console, options.update(max_width=UNLIMITED_WIDTH), table).maximum <= options.max_width
        yield table if fits else self._blocks()

    def _table(self) -> Table:
        table = Table(title=f"by {self._by}", title_justify="left", box=None)
        for name in self._names:
            table.add_column(name, justify="left" if name in self._texts else "right", no_wrap=True)
        for row in self._cells:
            table.add_row(*map(Text, row))
        return table

    def _blocks(self) -> Text:
        blocks = [
            "\n".join(f"{n:>{BLOCK_NAME_WIDTH}}  {v}" for n, v in zip(self._names, row, strict=True))
            for row in self._cells
        ]
        return Text(f"by {self._by}\n" + "\n\n".join(blocks))


def _is_column(name: str, rows: list[dict[str, Any]]) -> bool:
    return name in OPEN or any(row.get(name, 0) != 0 for row in rows)


def show(document: dict[str, Any], out: Callable[[Any], None]) -> None:
    """Print the books of a balance."""
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
    table = Table(title="routes: accepted = fates + in_buffer", title_justify="left", box=None)
    for column in ("source", "handler", "accepted", "fates", "in_buffer", "unaccounted"):
        table.add_column(column, justify="right" if column in ("accepted", "in_buffer", "unaccounted") else "left")
    for route in routes:
        fates = ", ".join(f"{term} {route[term]}" for term in FATES if route[term])
        numbers = (str(route[term]) for term in ("in_buffer", "unaccounted"))
        table.add_row(route["source"], route["handler"], str(route["accepted"]), fates, *numbers)
    return table


def _topics_table(topics: list[dict[str, Any]]) -> Table:
    table = Table(title="topics: logged = fates + pending", title_justify="left", box=None)
    for column in ("topic", "logged"):
        table.add_column(column)
    table.add_column("fates")
    for column in ("pending", "unaccounted"):
        table.add_column(column, justify="right")
    for topic in topics:
        fates = ", ".join(f"{fate} {count}" for fate, count in sorted(topic["fates"].items()))
        if not topic["read_by_pipeline"]:
            fates = ", ".join(filter(None, ("kept in the log (no pipeline reads it)", fates)))
        table.add_row(topic["topic"], str(topic["logged"]), fates, str(topic["pending"]), str(topic["unaccounted"]))
    return table


def _audits_table(audits: list[dict[str, Any]]) -> Table:
    title = "auditors: messages that Kafka clients report as sent and read (not part of the proof)"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("tier", "source", "topic", "counted"):
        table.add_column(column)
    for audit in audits:
        counted = ", ".join(f"{name} {count}" for name, count in sorted(audit["counts"].items()))
        table.add_row(audit["tier"], audit["source"], audit["topic"], counted)
    return table
