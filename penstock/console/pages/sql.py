"""A query over the tables and what has not landed yet."""

from __future__ import annotations

import asyncio
from html import escape

import pyarrow as pa
from nicegui import ui

from penstock.config import Settings
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.readable import readable_topics
from penstock.console.theme import Html, frame, panel, table
from penstock.console.wording import exact
from penstock.errors import PenstockError
from penstock.sql.answers import cell, csv_text, is_number, rows_of, scope, slowness
from penstock.sql.configured import tables_of
from penstock.sql.query import Query

MOST = 200
"""Rows that are shown."""
MOST_CSV = 100_000
SECONDS = 30.0
EXAMPLE = "select type, count(*) as events, max(received) as newest\nfrom events group by type order by 2 desc"
HINT = "SELECT over landed, events, syslog, messages, quarantine, watermarks, topics.NAME; Ctrl-Enter asks"


def build(daemon: Daemon, settings: Settings) -> None:
    """The page."""
    with frame("/sql", daemon), panel("Ask the tables", HINT):
        text = ui.textarea(value=EXAMPLE).props('outlined autogrow aria-label="query"').classes("w-full query")
        with ui.row().style("gap:10px"):
            ask = ui.button("run").props("outline no-caps dense")
            save = ui.button("as CSV").props("outline no-caps dense")
        shown = Html()

    async def found(limit: int) -> tuple[pa.Table, str]:
        readable = await readable_topics(daemon)
        return await asyncio.to_thread(asked, settings, text.value or "", readable, limit)

    async def show() -> None:
        shown.show('<div class="dim" role="status">Asking...</div>')
        try:
            rows, told = await found(MOST + 1)
        except (Away, PenstockError, OSError) as error:
            shown.show(f'<pre class="bad">{escape(str(error))}</pre>')
            return
        shown.show(answer(rows, told))

    async def download() -> None:
        try:
            rows, _ = await found(MOST_CSV)
        except (Away, PenstockError, OSError) as error:
            shown.show(f'<pre class="bad">{escape(str(error))}</pre>')
            return
        ui.download(csv_text(rows).encode(), "answer.csv")

    ask.on_click(show)
    save.on_click(download)
    text.on("keydown.ctrl.enter", show)


def asked(settings: Settings, text: str, readable: frozenset[str] | None, limit: int) -> tuple[pa.Table, str]:
    """The rows, and what was asked in which time. Raises PenstockError, OSError."""
    with Query(tables_of(settings, readable=readable), text, timeout_s=SECONDS) as query:
        rows = query.answer(limit)
        return rows, "; ".join(filter(None, [slowness(query) or f"{query.took:.2f} s", scope(query)]))


def answer(rows: pa.Table, told: str) -> str:
    """A table; HTML."""
    numbers = {at for at, field in enumerate(rows.schema) if is_number(field.type)}
    cells: list[list[str]] = [[escape(cell(value)) for value in row.values()] for row in rows_of(rows.slice(0, MOST))]
    more = f"more than {exact(MOST)} rows; as CSV there are {exact(MOST_CSV)} at most; " if rows.num_rows > MOST else ""
    heads = [escape(name) for name in rows.column_names]
    return f'{table(heads, cells, numbers)}<div class="dim">{more}{escape(told)}</div>'
