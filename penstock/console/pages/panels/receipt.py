"""The receipt panel: the verdict, the sum as text and bar, and the details of the part that is open.

State of the panel is per browser page: two pages may have different parts open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from html import escape
from typing import Any

from nicegui import ui

from penstock.console.components.receipt_details import chip, detail, samples, verdict_html
from penstock.console.components.theme import Html, panel
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.wording import PART_COLOURS
from penstock.errors import PenstockError
from penstock.landing.table_paths import Layout
from penstock.ledger.event_words import unwritten_text
from penstock.ledger.receipt import PARTS
from penstock.ledger.receipt_words import remarks
from penstock.sql.quarantined import Selection, newest
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import Row

DAY_S = 86_400
MAX_SAMPLES = 3


class ReceiptPanel:
    """The receipt panel of one page. Used on the event loop only."""

    def __init__(self, daemon: Daemon, layout: Layout) -> None:
        self._daemon, self._layout = daemon, layout
        self._open = ""
        self._samples = ""
        with panel("Receipt", "all messages reported as sent since the ledger was created"):
            self._head = Html()
            with ui.element("div").classes("bar"):
                self._bar = {part: self._button(part, "segment") for part in PARTS}
            with ui.element("div").classes("chips"):
                self._chips = {part: self._button(part, "chip") for part in PARTS}
            self._note, self._detail = Html(), Html()

    def _button(self, part: str, kind: str) -> ui.element:
        button = ui.element("button").classes(kind).props('type="button" aria-expanded="false"')
        if kind == "segment":  # it has no text; a chip's name is its text
            button.props(f'aria-label="{PARTS[part]}"')
        button.style(f"--of:{PART_COLOURS[part]}").on("click", lambda: self._choose(part))
        button.set_visibility(False)
        return button

    async def _choose(self, part: str) -> None:
        self._open = "" if self._open == part else part
        self._samples = ""
        self.refresh()
        await self.refresh_details()

    def refresh(self) -> None:
        """Show the receipt of the latest balance."""
        receipt = self._daemon.receipt
        if receipt is None:
            self._head.show(f'<div class="verdict warn">Waiting for the log daemon: {escape(self._daemon.error)}</div>')
            return
        self._head.show(verdict_html(receipt))
        notes = filter(None, (unwritten_text(self._daemon.balance), remarks(receipt)))
        self._note.show(f'<div class="dim">{escape("; ".join(notes))}</div>')
        visible = receipt.visible_parts()
        for part, count in receipt.parts.items():
            self._update_button(self._bar[part], part, count > 0, f"flex-grow:{count / max(receipt.sent, 1):.6f}", "")
            self._update_button(self._chips[part], part, part in visible, "", chip(part, count, receipt.sent))
        if not self._open:
            self._detail.show("")

    def _update_button(self, button: ui.element, part: str, visible: bool, style: str, text: str) -> None:
        button.set_visibility(visible)
        if style:
            button.style(style)
            button.props(f'title="{PARTS[part]}"')
        # An unchanged text is not sent again: this runs every second.
        if text and getattr(button, "shown_text", None) != text:
            button.shown_text = text  # type: ignore[attr-defined]
            button.clear()
            with button:
                ui.html(text, sanitize=False)
        is_open = part == self._open
        button.classes(add="chosen") if is_open else button.classes(remove="chosen")
        button.props(f'aria-expanded="{str(is_open).lower()}"')

    async def refresh_details(self) -> None:
        """Show the details of the open part; nothing if none is open or the daemon is unavailable."""
        part, receipt = self._open, self._daemon.receipt
        if not part or receipt is None:
            return
        series: Mapping[str, Any] = {"series": []}
        try:
            if part == "lost":
                series = await self._daemon.get("/balance/series", since=int(time.time()) - DAY_S, step=60)
            # Once per opening: samples are read from the table's files.
            if part == "quarantined" and not self._samples:
                self._samples = samples(await self._newest())
        except (DaemonUnavailable, PenstockError, OSError):
            return
        if part == self._open:
            # Another part may have been opened while this one's request was running.
            self._detail.show(detail(part, receipt, self._daemon.local_balance(), series) + self._samples)

    async def _newest(self) -> list[Row]:
        """Return the newest quarantined messages of topics that may be read. Raises DaemonUnavailable, PenstockError,
        OSError.
        """
        readable = await self._daemon.readable_topics()
        tables = Tables(self._layout, readable=readable)
        return await asyncio.to_thread(newest, tables, Selection(), MAX_SAMPLES)
