"""The receipt on the first page: the verdict, the sum as a sentence and a bar, and what is behind each part of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from html import escape
from typing import Any

from nicegui import ui

from penstock.console.daemon_poll import Away, Daemon
from penstock.console.readable import readable_topics
from penstock.console.receipt_details import chip, detail, head, samples
from penstock.console.theme import Html, panel
from penstock.console.wording import PART_COLOURS
from penstock.errors import PenstockError
from penstock.landing.table_paths import Layout
from penstock.ledger.receipt import PARTS
from penstock.ledger.receipt_words import unknown
from penstock.sql.quarantined import Selection, newest
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import Row

DAY = 86_400
SAMPLES = 3


class ReceiptPanel:
    """The panel, and which part of it is open."""

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
        button = ui.element("button").classes(kind).props(f'type="button" aria-label="{PARTS[part]}: more"')
        button.style(f"--of:{PART_COLOURS[part]}").on("click", lambda: self._choose(part))
        button.set_visibility(False)
        return button

    async def _choose(self, part: str) -> None:
        self._open = "" if self._open == part else part
        self._samples = ""
        self.refresh()
        await self.look_closer()

    def refresh(self) -> None:
        """Show the last balance."""
        told = self._daemon.receipt
        if told is None:
            self._head.show(f'<div class="verdict warn">Waiting for the log daemon: {escape(self._daemon.error)}</div>')
            return
        self._head.show(head(told))
        self._note.show(f'<div class="dim">{escape(unknown(told))}</div>')
        shown = told.visible_parts()
        for part, n in told.parts.items():
            self._show(self._bar[part], part, n > 0, f"flex-grow:{n / max(told.sent, 1):.6f}", "")
            self._show(self._chips[part], part, part in shown, "", chip(part, n, told.sent))
        if not self._open:
            self._detail.show("")

    def _show(self, button: ui.element, part: str, visible: bool, style: str, text: str) -> None:
        button.set_visibility(visible)
        if style:
            button.style(style)
            button.props(f'title="{PARTS[part]}"')
        if text and getattr(button, "said", None) != text:
            button.said = text  # type: ignore[attr-defined]
            button.clear()
            with button:
                ui.html(text, sanitize=False)
        button.classes(add="chosen") if part == self._open else button.classes(remove="chosen")

    async def look_closer(self) -> None:
        """What is behind the part that is open."""
        part, told = self._open, self._daemon.receipt
        if not part or told is None:
            return
        series: Mapping[str, Any] = {"series": []}
        try:
            if part == "lost":
                series = await self._daemon.get("/balance/series", since=int(time.time()) - DAY, step=60)
            if part == "quarantined" and not self._samples:
                self._samples = samples(await self._newest())
        except (Away, PenstockError, OSError):
            return
        if part == self._open:
            self._detail.show(detail(part, told, self._daemon.balance, series) + self._samples)

    async def _newest(self) -> list[Row]:
        """The newest messages in quarantine of topics that may be read. Raises Away, PenstockError, OSError."""
        readable = await readable_topics(self._daemon)
        tables = Tables(self._layout, readable=readable)
        return await asyncio.to_thread(newest, tables, Selection(), SAMPLES)
