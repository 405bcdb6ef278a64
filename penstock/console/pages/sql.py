"""The SQL page: a query over the tables and the messages that have not landed yet."""

from __future__ import annotations

import asyncio
from html import escape

import pyarrow as pa
from nicegui import ui

from penstock.config import Settings
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import exact
from penstock.errors import PenstockError
from penstock.sql.answers import cell, csv_text, is_number, rows_of, scope, slowness
from penstock.sql.configured import tables_of
from penstock.sql.query import Query

MAX_SHOWN_ROWS = 200
MAX_CSV_ROWS = 100_000
QUERY_TIMEOUT_S = 30.0
EXAMPLE = "select type, count(*) as events, max(received) as newest\nfrom events group by type order by 2 desc"
HINT = "SELECT over landed, events, syslog, messages, quarantine, watermarks, topics.NAME; Ctrl-Enter runs it"


def build(daemon: Daemon, settings: Settings) -> None:
    """Build the page."""
    with frame("/sql", daemon), panel("Query the tables", HINT):
        text = ui.textarea(value=EXAMPLE).props('outlined autogrow aria-label="query"').classes("w-full query")
        with ui.row().style("gap:10px"):
            run_button = ui.button("run").props("outline no-caps dense")
            csv_button = ui.button("as CSV").props("outline no-caps dense")
        result_html = Html()

    async def fetch_rows(limit: int) -> tuple[pa.Table, str]:
        readable = await daemon.readable_topics()
        return await asyncio.to_thread(run_query, settings, text.value or "", readable, limit)

    async def show_rows() -> None:
        result_html.show('<div class="dim" role="status">Running...</div>')
        try:
            # One row more than is shown, to know whether there are more.
            rows, summary = await fetch_rows(MAX_SHOWN_ROWS + 1)
        except (DaemonUnavailable, PenstockError, OSError) as error:
            result_html.show(f'<pre class="bad">{escape(str(error))}</pre>')
            return
        result_html.show(rows_html(rows, summary))

    async def download() -> None:
        try:
            rows, _ = await fetch_rows(MAX_CSV_ROWS)
        except (DaemonUnavailable, PenstockError, OSError) as error:
            result_html.show(f'<pre class="bad">{escape(str(error))}</pre>')
            return
        ui.download(csv_text(rows).encode(), "answer.csv")

    run_button.on_click(show_rows)
    csv_button.on_click(download)
    text.on("keydown.ctrl.enter", show_rows)


def run_query(settings: Settings, text: str, readable: frozenset[str] | None, limit: int) -> tuple[pa.Table, str]:
    """Return the rows, and the duration and scope of the query. Raises PenstockError, OSError."""
    # Limit: a query of the page ends after 30 seconds, in DuckDB itself; the thread cannot be interrupted.
    with Query(tables_of(settings, readable=readable), text, timeout_s=QUERY_TIMEOUT_S) as query:
        rows = query.answer(limit)
        return rows, "; ".join(filter(None, [slowness(query) or f"{query.took:.2f} s", scope(query)]))


def rows_html(rows: pa.Table, summary: str) -> str:
    """Return the rows as an HTML table."""
    numbers = {column for column, field in enumerate(rows.schema) if is_number(field.type)}
    cells: list[list[str]] = [
        [escape(cell(cell_value)) for cell_value in row.values()] for row in rows_of(rows.slice(0, MAX_SHOWN_ROWS))
    ]
    more = (
        f"more than {exact(MAX_SHOWN_ROWS)} rows; CSV has up to {exact(MAX_CSV_ROWS)}; "
        if rows.num_rows > MAX_SHOWN_ROWS
        else ""
    )
    heads = [escape(name) for name in rows.column_names]
    return f'{table(heads, cells, numbers)}<div class="dim">{more}{escape(summary)}</div>'
