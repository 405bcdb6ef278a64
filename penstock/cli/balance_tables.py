"""The books of a balance, and its rows by listener, topic, type or host, as tables for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.cli.common import aligned_lines, terminal_width

ALWAYS_SHOWN = ("in_buffer", "unaccounted")
"""Columns that are shown even if they are 0 in each row."""
FATES = ("delivered", "policy_drop", "handler_failed", "corrupt")
"""Fates of a message on its route."""
INDENT = "    "
WRAPPED: dict[str, Any] = {"subsequent_indent": INDENT, "break_long_words": False, "replace_whitespace": False}
MAIN_COLUMNS = ("handler", "accepted", "delivered", "logged", "landed", "pending", *ALWAYS_SHOWN)
"""Columns of a table that is too wide for the terminal; all other counts follow in a line below their row."""


class ByTable:
    """A table with a row per line, without columns that are 0 everywhere.

    If it is too wide, only ``MAIN_COLUMNS`` and names are columns; the other counts follow in a line below their row.
    """

    def __init__(self, by: str, rows: list[dict[str, Any]]) -> None:
        self._by, self._rows = by, rows
        self._names = [n for n in dict.fromkeys(name for row in rows for name in row) if _is_column(n, rows)] or [by]
        self._texts = {n for n in self._names if any(isinstance(row.get(n), str) for row in rows)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._rows:
            yield Text(f"by {self._by}: no rows")
            return
        lines = self._lines(self._names)
        if max(map(len, lines)) > options.max_width:
            lines = self._lines([name for name in self._names if name in MAIN_COLUMNS or name in self._texts])
        filled = "\n".join([f"by {self._by}", *(_fitted(line, options.max_width) for line in lines)])
        # Fast path: rich need not measure each word of thousands of rows again. ASCII is as wide as it is long.
        fits = filled.isascii() and max(map(len, filled.splitlines())) <= options.max_width
        yield Text(filled, no_wrap=fits, overflow="ignore" if fits else None)

    def _lines(self, names: list[str]) -> list[str]:
        cells = [names, *([str(row.get(name, 0)) or "(none)" for name in names] for row in self._rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head, *rows = (
            "  ".join(
                cell.ljust(width) if name in self._texts else cell.rjust(width)
                for name, cell, width in zip(names, line, widths, strict=True)
            )
            for line in cells
        )
        others = [name for name in self._names if name not in names]
        lines = [head]
        for line, row in zip(rows, self._rows, strict=True):
            counts = ", ".join(f"{name} {row[name]}" for name in others if row.get(name))
            lines += [line, f"{INDENT}{counts}"] if counts else [line]
        return [line.rstrip() for line in lines]


def _fitted(line: str, width: int) -> str:
    return line if len(line) <= width else textwrap.fill(line, width, **WRAPPED)


def _is_column(name: str, rows: list[dict[str, Any]]) -> bool:
    return name in ALWAYS_SHOWN or any(row.get(name, 0) != 0 for row in rows)


def show(document: dict[str, Any], out: Callable[[Any], None]) -> None:
    """Print the books of a balance."""
    for listener in document["listeners"]:
        out(_listener_table(listener))
    out(_routes_table(document["routes"]))
    out("\n".join(_topics_lines(document["topics"], bool(document.get("pipeline_starts")))))
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


def _topics_lines(topics: list[dict[str, Any]], pipeline_starts: bool) -> list[str]:
    rows = [["topic", "logged", "pending", "unaccounted", "fates"]]
    for topic in topics:
        fates = ", ".join(f"{fate} {count}" for fate, count in sorted(topic["fates"].items()))
        if not topic["read_by_pipeline"]:
            why = "the pipeline is starting" if pipeline_starts else "no pipeline reads it"
            fates = ", ".join(filter(None, (f"kept in the log ({why})", fates)))
        rows.append([topic["topic"], *(str(topic[name]) for name in ("logged", "pending", "unaccounted")), fates])
    width = terminal_width()
    return [_fitted(line, width) for line in ["topics: logged = fates + pending", *aligned_lines(rows, texts=(0, 4))]]


def _audits_table(audits: list[dict[str, Any]]) -> Table:
    title = "auditors: messages that Kafka clients report as sent and read (not part of the proof)"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("tier", "source", "topic", "counted"):
        table.add_column(column)
    for audit in audits:
        counted = ", ".join(f"{name} {count}" for name, count in sorted(audit["counts"].items()))
        table.add_row(audit["tier"], audit["source"], audit["topic"], counted)
    return table
