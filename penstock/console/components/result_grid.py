"""A grid of rows in which only the visible part is in the browser's document, with the full value of a cell and the row
as JSON below it.

Invariant: a cell holds at most ``MAX_CELL_CHARS`` characters; a full value is sent when it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from nicegui import ui
from nicegui.events import GenericEventArguments

from penstock.console.components.message_view import MAX_CHARS
from penstock.console.components.theme import Html
from penstock.console.wording import exact
from penstock.process.terminal import visible
from penstock.sql.answers import is_number, json_text, rows_of, value_text

MAX_CELL_CHARS = 200
ROW_HEIGHT_PX, HEADER_HEIGHT_PX, SCROLLBAR_PX = 29, 34, 18
MAX_HEIGHT_PX = 480
CHAR_WIDTH_PX = 8
MIN_COLUMN_PX, MAX_COLUMN_PX = 70, 380
SAMPLED_ROWS = 50
"""Rows whose cells decide how wide a column is."""


class ResultGrid:
    """The grid of one browser page, empty until ``show``. Used on the event loop only."""

    def __init__(self) -> None:
        self._table = pa.table({})
        self._event = f"open-cell-{id(self)}"
        self._container = ui.element("div").classes("w-full")
        with ui.element("section").classes("w-full cell-detail").props('aria-label="value"') as self._detail:
            self._title = Html()
            with ui.row().style("gap:10px"):
                self._value_button = ui.button("value", on_click=lambda: self._show_detail(False))
                self._row_button = ui.button("row as JSON", on_click=lambda: self._show_detail(True))
                close_button = ui.button("close", on_click=lambda: self._detail.set_visibility(False))
            for button in (self._value_button, self._row_button, close_button):
                button.props("outline no-caps dense")
            self._text = Html()
        self._detail.set_visibility(False)
        self._opened = (0, "")
        ui.on(self._event, self._open_cell)

    def show(self, table: pa.Table, marks: Mapping[str, str] = MappingProxyType({})) -> None:
        """Show the rows of ``table``; ``marks`` are texts to highlight by column, "" for all. Raises BadQuery."""
        self._table = table
        self._detail.set_visibility(False)
        self._container.clear()
        texts = [{f"c{n}": cell_text(value) for n, value in enumerate(row.values())} for row in rows_of(table)]
        options = {
            "columnDefs": [_number_column(), *column_definitions(table.schema, texts, marks)],
            "rowData": [{"n": number, **cells} for number, cells in enumerate(texts)],
            "rowHeight": ROW_HEIGHT_PX,
            "headerHeight": HEADER_HEIGHT_PX,
            "suppressFieldDotNotation": True,
            "enableCellTextSelection": True,
            "ensureDomOrder": True,
            "overlayNoRowsTemplate": "<span>No rows.</span>",
            "context": {"event": self._event},
            ":onCellClicked": "params => openCell(params)",
            ":onCellKeyDown": "params => params.event.key === 'Enter' && openCell(params)",
        }
        height = HEADER_HEIGHT_PX + ROW_HEIGHT_PX * max(len(texts), 3) + SCROLLBAR_PX
        with self._container:
            ui.aggrid(options, auto_size_columns=False).classes("result-grid").style(
                f"height:{min(height, MAX_HEIGHT_PX)}px"
            )

    def clear(self) -> None:
        """Remove the grid and the opened value."""
        self._table = pa.table({})
        self._detail.set_visibility(False)
        self._container.clear()

    def _open_cell(self, event: GenericEventArguments) -> None:
        row, column = event.args
        # The browser may send anything.
        if not (isinstance(row, int) and 0 <= row < self._table.num_rows and isinstance(column, str)):
            return
        number = int(column[1:]) if column[1:].isdecimal() else -1
        names = self._table.column_names
        self._opened = (row, names[number] if 0 <= number < len(names) else "")
        self._show_detail(as_row=not self._opened[1])

    def _show_detail(self, as_row: bool) -> None:
        row, column = self._opened
        name = "" if as_row or not column else f", {escape(column)}"
        self._title.show(f'<div class="title">row {exact(row + 1)}{name}</div>')
        self._value_button.set_visibility(as_row and bool(column))
        self._row_button.set_visibility(not as_row)
        rows = self._table.slice(row, 1)
        text = row_json(rows) if as_row else full_text(rows_of(rows)[0][column])
        self._text.show(f'<pre class="cell-value">{escape(text)}</pre>' if text else '<div class="dim">Empty.</div>')
        self._detail.set_visibility(True)
        ui.run_javascript(f"getHtmlElement({self._detail.id}).scrollIntoView({{block: 'nearest'}})")


def column_definitions(
    schema: pa.Schema, texts: Sequence[Mapping[str, str]], marks: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return the definition of each column for the grid, as wide as its first cells, within limits."""
    definitions = []
    for number, field in enumerate(schema):
        longest = max((len(row[f"c{number}"]) for row in texts[:SAMPLED_ROWS]), default=0)
        width = max(longest, len(field.name) + 4) * CHAR_WIDTH_PX + 24
        definitions.append(
            {
                "field": f"c{number}",
                "headerName": field.name,
                "headerTooltip": str(field.type),
                "width": max(MIN_COLUMN_PX, min(width, MAX_COLUMN_PX)),
                **(
                    {"cellRendererParams": {"mark": mark}, ":cellRenderer": "params => markedCell(params)"}
                    if (mark := marks.get(field.name) or marks.get(""))
                    else {}
                ),
                **(
                    {"cellClass": "n", ":comparator": "(a, b) => compareNumbers(a, b)"} if is_number(field.type) else {}
                ),
            }
        )
    return definitions


def _number_column() -> dict[str, Any]:
    return {
        "headerName": "#",
        "width": 66,
        "pinned": "left",
        "cellClass": "n dim",
        ":valueGetter": "params => params.data.n + 1",
        "sortable": False,
    }


def cell_text(value: Any) -> str:
    """Return the beginning of a value in one line, without control characters."""
    # Cut before and after: decoding megabytes for a cell would keep the page waiting.
    if isinstance(value, bytes | str):
        value = value[: MAX_CELL_CHARS * 4]
    text = value_text(value)
    if isinstance(value, datetime):
        text = text.removesuffix("+00:00")  # all times are UTC
    return visible(text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…")


def full_text(value: Any) -> str:
    """Return a value as text, with JSON indented; only the beginning of a very long one."""
    text = value_text(value)
    if text[:1] in ("{", "["):
        text = indented_json(text)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}\n... and {exact(len(text) - MAX_CHARS)} more"


def row_json(row: pa.Table) -> str:
    """Return a table's only row as an indented JSON object; only the beginning of a very long one. Raises BadQuery."""
    return full_text(json_text(row)[1:-1])


def indented_json(text: str) -> str:
    """Return JSON indented, any other text unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than Python's parser allows
        return text
