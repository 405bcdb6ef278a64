"""The page of one table: columns with types, conditions on fields, a histogram, the newest rows.

Queries run as on the SQL page, whose address each page links to; ``ResultGrid`` shows the rows.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import escape
from urllib.parse import quote, urlencode

import pyarrow as pa
from nicegui import ui

from penstock.config import Settings
from penstock.console.components.charts import histogram
from penstock.console.components.message_fields import FIELD_SEPARATOR, parse_condition
from penstock.console.components.result_grid import ResultGrid
from penstock.console.components.theme import Chart, Html, frame, panel
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.pages.sql import informative_columns_first, quoted_name, run_query
from penstock.console.wording import counted
from penstock.errors import PenstockError
from penstock.sql.catalog import read_catalog
from penstock.sql.configured import tables_of

SHOWN_ROWS = 200
SPANS = {"last hour": (timedelta(hours=1), timedelta(minutes=2)), "last day": (timedelta(days=1), timedelta(hours=1))}
"""Length and interval of the histogram."""
TIME_COLUMNS = ("received", "landed_at", "event_time")
"""Columns that order the newest rows and the histogram; the first one that the table has."""
NESTED = ("JSON", "STRUCT", "MAP")
"""Types whose fields a condition may name, as in ``data.user``."""


class UnknownColumn(PenstockError):
    """A condition names a column that the table does not have."""


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The rows of a table that meet conditions: values by column, or by path within a JSON column.

    ``text`` is contained in one of the columns.
    """

    table: str
    columns: Mapping[str, str]
    conditions: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def time_column(self) -> str:
        """Return the column of the rows' time; "" without one."""
        return next((name for name in TIME_COLUMNS if name in self.columns), "")

    def newest_rows_sql(self) -> str:
        """Return the query of the newest rows. Raises UnknownColumn."""
        order = f"\norder by {self.time_column} desc" if self.time_column else ""
        # Rows with the same time keep the order of their topic.
        order += ', "offset" desc' if order and "offset" in self.columns else ""
        # Names and values are quoted, and the query reads views that the person may read.
        return f"select * from {quoted_name(self.table)}{self._where()}{order}\nlimit {SHOWN_ROWS}"  # noqa: S608

    def row_counts_sql(self, now: datetime, span: timedelta, interval: timedelta) -> str:
        """Return the query of the number of rows in each interval until now. Raises UnknownColumn."""
        seconds, since = int(interval.total_seconds()), (now - span).isoformat()
        bucket = f"epoch({self.time_column})::BIGINT // {seconds} * {seconds}"
        recent = f"{self.time_column} >= TIMESTAMPTZ '{since}'"
        table = quoted_name(self.table)
        return f"select {bucket} as begins, count(*) as n from {table}{self._where(recent)}\ngroup by 1 order by 1"  # noqa: S608

    def _where(self, *more: str) -> str:
        tests = [*more, *(self._condition_sql(path, text) for path, text in self.conditions.items())]
        if self.text:
            tests.append(f"({' or '.join(self._contains(name) for name in self.columns)})")
        return f"\nwhere {' and '.join(tests)}" if tests else ""

    def _contains(self, name: str) -> str:
        # Both sides are cast: bytes that are not UTF-8 would be an error; as varchar both sides have the same escapes.
        text = f"encode({_literal(self.text)})" if self.columns[name] == "BLOB" else _literal(self.text)
        return f"contains(cast({quoted_name(name)} as varchar), cast({text} as varchar))"

    def _condition_sql(self, path: str, text: str) -> str:
        if path in self.columns:
            return f"cast({quoted_name(path)} as varchar) = {_literal(text)}"
        column, _, inner = path.partition(FIELD_SEPARATOR)
        if inner and self.columns.get(column, "").startswith(NESTED):
            # A JSON pointer, which unlike a JSON path has no characters that select several fields.
            pointer = "".join(f"/{_escape_step(step)}" for step in inner.split(FIELD_SEPARATOR))
            return f"json_extract_string(to_json({quoted_name(column)}), {_literal(pointer)}) = {_literal(text)}"
        raise UnknownColumn(f"{self.table} has no column {path!r}: {', '.join(self.columns)}")

    def highlights(self) -> dict[str, str]:
        """Return the text to mark by column; "" is the key of every column."""
        marks = {path.partition(FIELD_SEPARATOR)[0]: text for path, text in self.conditions.items()}
        return marks | ({"": self.text} if self.text else {})


def _escape_step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def build(daemon: Daemon, settings: Settings, name: str, conditions: Sequence[str], text: str) -> None:
    """Build the page; ``conditions`` are ``column=value``."""
    with frame("/sql", daemon, f"Table {name}"):
        _TablePage(daemon, settings, TableQuery(name, {}, dict(filter(None, map(parse_condition, conditions))), text))


class _TablePage:
    """The page in one browser. Used on the event loop only; queries run in threads."""

    def __init__(self, daemon: Daemon, settings: Settings, query: TableQuery) -> None:
        self._daemon, self._settings, self._query = daemon, settings, query
        self._conditions, self._text = dict(query.conditions), query.text
        self._cancelled = threading.Event()
        with panel(query.table, f"the newest {SHOWN_ROWS} rows that meet the conditions, landed or not"):
            with ui.row().classes("items-center w-full").style("gap:10px 14px"):
                text_box = ui.input(placeholder="text in any column", value=query.text)
                text_box.props('dense outlined clearable maxlength=1000 aria-label="text in any column"')
                text_box.style("flex:1 1 240px")
                condition_box = ui.input(placeholder="column=value, or data.field=value")
                condition_box.props('dense outlined aria-label="column=value"').style("flex:1 1 240px")
                self._link = Html()
            self._condition_row = ui.row().classes("items-center").style("gap:8px")
            with ui.row().classes("items-center").style("gap:10px"):
                self._span = ui.toggle([*SPANS], value=next(iter(SPANS)), on_change=self._load)
                self._span.props(
                    "dense unelevated no-caps toggle-color=primary toggle-text-color=on-primary padding='1px 10px'"
                )
            self._chart = Chart(110)
            self._chart.set_visibility(False)
            self._status = Html()
            self._grid = ResultGrid()
        with panel("Columns"):
            self._columns = Html()
        text_box.on("keydown.enter", lambda: self._search(text_box.value or ""))
        text_box.on("clear", lambda: self._search(""))
        condition_box.on("keydown.enter", lambda: self._add_condition(condition_box.value or ""))
        ui.context.client.on_delete(self._cancelled.set)
        ui.timer(0.01, self._load, once=True)

    async def _search(self, text: str) -> None:
        self._text = text.strip()
        await self._show_matches()

    async def _add_condition(self, text: str) -> None:
        if (condition := parse_condition(text)) is None:
            self._show_error(f"{text!r} is not like topic=events or data.user=ann")
            return
        self._conditions[condition[0]] = condition[1]
        await self._show_matches()

    async def _remove_condition(self, path: str) -> None:
        self._conditions.pop(path, None)
        await self._show_matches()

    async def _show_matches(self) -> None:
        # The address carries the conditions, so it can be shared.
        parameters = [
            *([("q", self._text)] if self._text else []),
            *(("where", f"{path}={text}") for path, text in self._conditions.items()),
        ]
        address = f"/table/{quote(self._query.table)}{'?' if parameters else ''}{urlencode(parameters)}"
        ui.navigate.history.replace(address)
        await self._load()

    async def _load(self) -> None:
        """Show the rows that meet the conditions; a later call replaces the queries of this one."""
        self._cancelled.set()
        cancelled = self._cancelled = threading.Event()
        self._show_conditions()
        self._status.show('<div class="dim" role="status">Reading...</div>')
        try:
            readable = await self._daemon.readable_topics()
            columns = await asyncio.to_thread(self._columns_of_table, readable)
            query = TableQuery(self._query.table, columns, dict(self._conditions), self._text)
            self._columns.show(columns_html(columns))
            text = query.newest_rows_sql()
            self._link.show(f'<a href="/sql?q={quote(text)}">open as a query</a>')
            rows, note = await asyncio.to_thread(
                run_query, self._settings, text, readable, SHOWN_ROWS, cancelled, informative_columns_first
            )
            if cancelled.is_set():
                return
            self._grid.show(rows, query.highlights())
            self._status.show(f'<div class="dim" role="status">{counted(rows.num_rows, "row")}; {escape(note)}</div>')
            await self._draw_histogram(query, readable, cancelled)
        except (DaemonUnavailable, PenstockError, OSError) as error:
            if not cancelled.is_set():
                self._show_error(str(error))

    def _columns_of_table(self, readable: frozenset[str] | None) -> Mapping[str, str]:
        """Return the columns of the table with their types. Raises UnknownColumn, OSError."""
        views = read_catalog(tables_of(self._settings, readable=readable)).views
        if self._query.table not in views:
            raise UnknownColumn(f"no table {self._query.table!r}: {', '.join(views)}")
        return views[self._query.table]

    async def _draw_histogram(
        self, query: TableQuery, readable: frozenset[str] | None, cancelled: threading.Event
    ) -> None:
        self._chart.set_visibility(bool(query.time_column))
        if not query.time_column:
            return
        span, interval = SPANS[str(self._span.value)]
        now = datetime.now(UTC)
        text = query.row_counts_sql(now, span, interval)
        counts, _ = await asyncio.to_thread(
            run_query, self._settings, text, readable, SHOWN_ROWS, cancelled, counts_by_time
        )
        if not cancelled.is_set():
            self._chart.show(histogram(intervals(counts, now, span, interval)))

    def _show_error(self, text: str) -> None:
        self._status.show(f'<div class="bad" role="alert">{escape(text)}</div>')

    def _show_conditions(self) -> None:
        self._condition_row.clear()
        with self._condition_row:
            for path, text in self._conditions.items():
                ui.button(f"{path} = {text[:40]}", on_click=lambda path=path: self._remove_condition(path)).props(
                    f'outline no-caps dense icon-right=close padding="1px 10px" aria-label="{escape(f"remove {path}")}"'
                )


def counts_by_time(rows: pa.Table) -> dict[int, int]:
    """Return the number of rows by the start of their interval (seconds since the epoch)."""
    return {row["begins"]: row["n"] for row in rows.to_pylist()}


def intervals(
    counts: Mapping[int, int], now: datetime, span: timedelta, interval: timedelta
) -> list[tuple[datetime, int]]:
    """Return the number of rows of each interval of a span until now, also of those without any."""
    seconds = int(interval.total_seconds())
    last = int(now.timestamp()) // seconds * seconds
    begins = range(last - int(span.total_seconds()) + seconds, last + seconds, seconds)
    return [(datetime.fromtimestamp(begin, UTC), counts.get(begin, 0)) for begin in begins]


def columns_html(columns: Mapping[str, str]) -> str:
    """Return the columns with their types as a list."""
    entries = "".join(
        f"<li><code>{escape(name)}</code> <small>{escape(kind)}</small></li>" for name, kind in columns.items()
    )
    return f'<ul class="columns">{entries}</ul>'
