"""The SQL page: a query over the tables and the messages that have not landed yet.

``ResultGrid`` shows the rows; completion, history and saved queries are in the browser (``static/sql.js``).
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from html import escape
from typing import TypeVar
from urllib.parse import quote

import pyarrow as pa
from nicegui import ui

from penstock.config import Settings
from penstock.console.components.charts import CHART_KINDS, chart_columns, query_chart
from penstock.console.components.result_grid import ResultGrid
from penstock.console.components.theme import STATIC, Chart, Html, frame, panel
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.wording import counted, exact
from penstock.errors import PenstockError
from penstock.landing.table_schema import VIEW_COLUMNS
from penstock.sql.answers import csv_text, json_text, parquet_bytes, scope, slowness
from penstock.sql.catalog import Catalog, read_catalog
from penstock.sql.configured import tables_of
from penstock.sql.query import Query

Converted = TypeVar("Converted")
MAX_SHOWN_ROWS = 1_000
MAX_SHOWN_BYTES = 64 << 20
"""The page's rows stay in memory while it is open."""
MAX_DOWNLOADED_ROWS = 100_000
QUERY_TIMEOUT_S = 30.0
MAX_LINK_CHARS = 6_000
"""A longer query is not put into the address: servers in between refuse long ones."""
MAX_LISTED_TOPICS = 2_000
ELAPSED_INTERVAL_S = 0.2
EXAMPLE = "select type, count(*) as events, max(received) as newest\nfrom events group by type order by 2 desc"
HINT = "one SELECT over tables and topics; Ctrl-Enter runs it, Ctrl-Space completes"
FUNCTIONS = """
    count sum avg min max median quantile_cont arg_max arg_min string_agg list coalesce nullif round abs length lower
    upper trim contains starts_with replace regexp_matches regexp_extract split_part substr strftime date_trunc
    date_part time_bucket epoch now try_cast decode json_extract_string json_keys unnest row_number rank lag lead
"""
"""DuckDB's functions that completion offers."""
ORIGIN_COLUMNS = {*VIEW_COLUMNS["quarantine"].split(", "), "kind"} - {"reason", "payload"}
"""Columns that every view has."""
SELECT_ALL = re.compile(r"^\s*select\s+\*|^\s*from\b", re.IGNORECASE)
"""Queries that do not choose the order of their columns."""
DOWNLOADS: dict[str, tuple[str, Callable[[pa.Table], bytes]]] = {
    "CSV": ("answer.csv", lambda rows: csv_text(rows).encode()),
    "Parquet": ("answer.parquet", parquet_bytes),
    "JSON": ("answer.json", lambda rows: json_text(rows).encode()),
}
"""File names and encoders by format."""
SCRIPT = (STATIC / "sql.js").read_text()
STORED_QUERIES_HTML = (
    '<details><summary>Saved queries</summary><div data-stored="saved" class="dim"></div></details>'
    '<details><summary>History</summary><div data-stored="history" class="dim"></div></details>'
)


def build(daemon: Daemon, settings: Settings, query: str = "") -> None:
    """Build the page; ``query`` is the text in the editor. It is not run: it may be a link from somebody else."""
    ui.add_head_html(f"<script>{SCRIPT}</script>")
    with frame("/sql", daemon):
        _SqlPage(daemon, settings, query or EXAMPLE)


class _SqlPage:
    """The editor and the result of one browser page. Used on the event loop only; queries run in threads."""

    def __init__(self, daemon: Daemon, settings: Settings, query: str) -> None:
        self._daemon, self._settings, self._client = daemon, settings, ui.context.client
        self._cancelled: threading.Event | None = None
        self._began_s = 0.0
        self._rows = pa.table({})
        with panel("Query the tables", HINT), ui.element("div").classes("sql-layout"):
            with ui.element("aside").classes("schema").props('aria-label="tables and queries"'):
                self._schema = Html()
                self._schema.show(_schema_html('<div class="dim">Reading...</div>'))
                # An element of its own, never replaced: the browser fills its lists.
                Html().show(STORED_QUERIES_HTML)
            with ui.element("div").classes("sql-editor"):
                self._editor = ui.codemirror(
                    query,
                    language="PostgreSQL",
                    theme="githubLight",
                    line_wrapping=True,
                    keymap={"Mod-Enter": self._run},
                ).classes("w-full query")
                self._build_buttons()
        with panel("Result") as self._result_panel:
            self._status = Html()
            self._build_chart_controls()
            self._chart = Chart(320)
            self._grid = ResultGrid()
        self._chart_row.set_visibility(False)
        self._chart.set_visibility(False)
        self._result_panel.set_visibility(False)
        self._elapsed_timer = ui.timer(ELAPSED_INTERVAL_S, self._show_elapsed, active=False)
        # A page that is gone must not keep DuckDB busy.
        self._client.on_delete(self._cancel)
        ui.timer(0.01, self._load_catalog, once=True)

    def _build_buttons(self) -> None:
        small = "outline no-caps dense"
        with ui.row().style("gap:8px"):
            self._run_button = ui.button("run", on_click=self._run).props(
                "no-caps dense unelevated text-color=on-primary"
            )
            self._cancel_button = ui.button("cancel", on_click=self._cancel).props(small)
            self._cancel_button.set_visibility(False)
            ui.button("save").props(small).on("click", js_handler="() => saveQuery(prompt('Name of this query') ?? '')")
            ui.button("copy link").props(small).on(
                "click",
                js_handler="() => copyText(`${location.origin}/sql?q=${encodeURIComponent(queryText())}`)",
            )
            ui.label("download:").classes("dim").style("align-self:center")
            for name in DOWNLOADS:
                ui.button(name, on_click=lambda name=name: self._download(name)).props(
                    f'{small} aria-label="download as {name}"'
                )

    def _build_chart_controls(self) -> None:
        with ui.row().classes("items-center").style("gap:10px") as self._chart_row:
            self._kind = ui.toggle(list(CHART_KINDS), value=CHART_KINDS[0], on_change=self._offer_chart).props(
                "dense unelevated no-caps toggle-color=primary toggle-text-color=on-primary padding='2px 10px'"
            )
            self._x = ui.select([], label="along", on_change=self._draw_chart)
            self._y = ui.select([], label="number", on_change=self._draw_chart)
            for choice in (self._x, self._y):
                choice.props("dense outlined options-dense").style("min-width:150px")

    async def _load_catalog(self) -> None:
        # Order: the editor's name and theme first; reading the catalog may take a while.
        ui.run_javascript(f"startSqlPage({self._editor.id})")
        catalog, problem = Catalog({}, (), {}), ""
        try:
            readable = await self._daemon.readable_topics()
            catalog = await asyncio.to_thread(lambda: read_catalog(tables_of(self._settings, readable=readable)))
        except (DaemonUnavailable, PenstockError, OSError) as error:
            problem = f'<div class="bad" role="alert">{escape(str(error))}</div>'
        self._schema.show(_schema_html(problem or catalog_html(catalog)))
        document = {
            "views": catalog.views,
            "topics": catalog.topics[:MAX_LISTED_TOPICS],
            "topic_columns": catalog.topic_columns,
            "functions": FUNCTIONS.split(),
        }
        ui.run_javascript(f"sqlPage.catalog = {json.dumps(document)}")

    async def _run(self) -> None:
        text = self._editor.value or ""
        rows_and_note = await self._fetch(MAX_SHOWN_ROWS + 1, within_limits)
        if rows_and_note is None:
            return
        (rows, is_cut), note = rows_and_note
        if SELECT_ALL.search(text):
            rows = informative_columns_first(rows)
        self._rows = rows
        try:
            self._grid.show(rows)
        except PenstockError as error:
            self._show_error(str(error))
            return
        more = f"the first {counted(rows.num_rows, 'row')}; a download has up to {exact(MAX_DOWNLOADED_ROWS)}"
        count = more if is_cut else counted(rows.num_rows, "row")
        self._status.show(f'<div class="dim" role="status">{escape(f"{count}; {note}")}</div>')
        self._offer_chart()
        if len(address := f"/sql?q={quote(text)}") <= MAX_LINK_CHARS:
            # The address carries the query, so it can be shared.
            ui.navigate.history.replace(address)
        ui.run_javascript(f"rememberQuery({json.dumps(text)}, {json.dumps(count.partition(';')[0])})")

    async def _download(self, name: str) -> None:
        file_name, encode = DOWNLOADS[name]
        bytes_and_note = await self._fetch(MAX_DOWNLOADED_ROWS, encode)
        if bytes_and_note is not None:
            ui.download(bytes_and_note[0], file_name)
            self._status.show(f'<div class="dim" role="status">{file_name}: {escape(bytes_and_note[1])}</div>')

    async def _fetch(self, limit: int, convert: Callable[[pa.Table], Converted]) -> tuple[Converted, str] | None:
        """Run the query in a thread; return its converted rows and a note, or show an error and return None."""
        if self._cancelled is not None:
            return None
        self._cancelled, self._began_s = threading.Event(), time.monotonic()
        self._set_running(True)
        try:
            readable = await self._daemon.readable_topics()
            return await asyncio.to_thread(
                run_query, self._settings, self._editor.value or "", readable, limit, self._cancelled, convert
            )
        except (DaemonUnavailable, PenstockError, OSError) as error:
            self._show_error(str(error))
            return None
        finally:
            self._cancelled = None
            self._set_running(False)

    def _set_running(self, running: bool) -> None:
        self._result_panel.set_visibility(True)
        self._elapsed_timer.active = running
        self._run_button.set_enabled(not running)
        self._cancel_button.set_visibility(running)

    def _show_elapsed(self) -> None:
        if self._cancelled is None:  # this call was due before the timer was stopped
            return
        elapsed_s = time.monotonic() - self._began_s
        self._status.show(f'<div class="dim" role="status">Running, {elapsed_s:.1f} s</div>')

    def _show_error(self, text: str) -> None:
        self._status.show(f'<pre class="bad" role="alert">{escape(text)}</pre>')
        self._grid.clear()
        self._chart_row.set_visibility(False)
        self._chart.set_visibility(False)

    def _cancel(self) -> None:
        if self._cancelled is not None:
            self._cancelled.set()

    def _offer_chart(self) -> None:
        along, numbers = chart_columns(self._rows.schema, self._kind.value)
        offered = bool(along and numbers and self._rows.num_rows)
        self._chart_row.set_visibility(offered)
        if offered:
            self._x.set_options(along, value=along[0])
            self._y.set_options(numbers, value=self._y.value if self._y.value in numbers else numbers[0])
        self._draw_chart()

    def _draw_chart(self) -> None:
        drawn = self._kind.value != CHART_KINDS[0] and self._chart_row.visible
        self._x.set_visibility(drawn)
        self._y.set_visibility(drawn)
        self._chart.set_visibility(drawn)
        if drawn and {self._x.value, self._y.value} <= {*self._rows.column_names}:
            self._chart.show(query_chart(self._rows, self._x.value, self._y.value, self._kind.value))


def run_query(
    settings: Settings,
    text: str,
    readable: frozenset[str] | None,
    limit: int,
    cancelled: threading.Event,
    convert: Callable[[pa.Table], Converted],
) -> tuple[Converted, str]:
    """Return the converted rows, and the duration and scope of the query. Raises PenstockError, OSError."""
    # Limit: a query of the page ends after 30 seconds, in DuckDB itself; the thread cannot be interrupted.
    with Query(tables_of(settings, readable=readable), text, timeout_s=QUERY_TIMEOUT_S, cancelled=cancelled) as query:
        rows = query.answer(limit)
        note = "; ".join(filter(None, [slowness(query) or f"{query.took:.2f} s", scope(query)]))
    return convert(rows), note


def within_limits(rows: pa.Table) -> tuple[pa.Table, bool]:
    """Return the rows that the page holds, and whether there are more."""
    fitting = rows.slice(0, MAX_SHOWN_ROWS)
    while fitting.nbytes > MAX_SHOWN_BYTES and fitting.num_rows > 1:
        fitting = fitting.slice(0, fitting.num_rows // 2)
    if fitting.num_rows == rows.num_rows:
        return rows, False
    # Copied: a slice would keep the memory of all rows.
    return fitting.take(pa.array(range(fitting.num_rows))), True


def informative_columns_first(rows: pa.Table) -> pa.Table:
    """Return the rows with the columns that every view has, and empty ones, behind the others."""
    last = [name for name in rows.column_names if name in ORIGIN_COLUMNS or rows[name].null_count == rows.num_rows]
    return rows.select([*(name for name in rows.column_names if name not in last), *last])


def catalog_html(catalog: Catalog) -> str:
    """Return the views and topics with their columns and types; a click on a name inserts it."""
    views = "".join(_view_html(view, columns) for view, columns in catalog.views.items())
    topics = "".join(
        f'<li data-name="{escape(topic.lower())}">{_insert_button(topic_name(topic), topic)}</li>'
        for topic in catalog.topics[:MAX_LISTED_TOPICS]
    )
    hidden = len(catalog.topics) - MAX_LISTED_TOPICS
    more = f'<li class="dim">and {exact(hidden)} more</li>' if hidden > 0 else ""
    columns = _view_html("columns of a topic", catalog.topic_columns) if catalog.topic_columns else ""
    return (
        '<input class="schema-filter" data-filter-schema aria-label="filter tables and columns" '
        f'placeholder="filter">{views}<details><summary>topics <small>{exact(len(catalog.topics))}</small></summary>'
        f"{columns}<ul>{topics}{more}</ul></details>"
    )


def topic_name(topic: str) -> str:
    """Return a topic's name as a query writes it."""
    return f'topics."{topic}"'


def _view_html(view: str, columns: Mapping[str, str]) -> str:
    names = " ".join([view, *columns]).lower()
    entries = "".join(
        f"<li>{_insert_button(quoted_name(name), name)}<small>{escape(kind)}</small></li>"
        for name, kind in columns.items()
    )
    insert = (
        ""
        if " " in view
        else f'{_insert_button(view, "insert the name", "insert")} <a href="/table/{quote(view)}">open the table</a>'
    )
    return (
        f'<details data-name="{escape(names)}"><summary>{escape(view)} <small>{len(columns)}</small></summary>'
        f"{insert}<ul>{entries}</ul></details>"
    )


def _insert_button(inserted: str, text: str, css_class: str = "name") -> str:
    return f'<button type="button" class="{css_class}" data-insert="{escape(inserted)}">{escape(text)}</button>'


def quoted_name(name: str) -> str:
    """Return the name of a column or view as a query writes it."""
    is_plain = name.isascii() and name.isidentifier() and name.islower() and name != "offset"
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _schema_html(schema: str) -> str:
    return f"<details open><summary>Schema</summary>{schema}</details>"
