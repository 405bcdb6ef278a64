"""One topic: its messages page by page, searched, and as they come; one of them whole; its readers; a message to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.console.asked import place_of
from penstock.console.charts import behind
from penstock.console.daemon_poll import Away, Daemon
from penstock.console.message_view import line, whole
from penstock.console.pages.send_message import send_panel
from penstock.console.pages.topics import cursors
from penstock.console.theme import Chart, Html, frame, live, panel
from penstock.console.topic_reading import TopicReading
from penstock.console.wording import exact

READERS_EVERY = 5.0
WANTED = "a text, or a filter such as k:user v:vip-.*"


def build(daemon: Daemon, name: str, wanted: str = "", place: str = "") -> None:
    """The page; ``wanted`` is searched for, ``place`` (an offset or a time) gone to."""
    with frame("/topics", daemon):
        _Messages(daemon, name, wanted, place)
        with panel("Readers", "named cursors of this topic, and how far each was behind within the last hour"):
            readers = Html()
            chart = Chart(220)
            chart.set_visibility(False)
        send_panel(daemon, name)

    async def refresh() -> None:
        try:
            described = await daemon.get(f"/topics/{quote(name, safe='')}")
        except Away:  # said above
            return
        readers.show(cursors([described]))
        lines = daemon.latest.lags.of(name)
        chart.set_visibility(bool(lines))
        if lines:
            chart.show(behind(lines, daemon.at, daemon.events, daemon.latest.seen))

    ui.timer(READERS_EVERY, refresh)


class _Messages:
    """The panel with a page of messages, and the one below it with the message that was chosen."""

    def __init__(self, daemon: Daemon, name: str, wanted: str, place: str) -> None:
        self._name, self._client = name, ui.context.client
        self._reading = TopicReading(daemon, name, self._show, wanted)
        self._pointed = False
        self._first, self._chosen = place, ""
        self._lines: dict[str, ui.label] = {}
        with panel(name):
            self._controls(wanted, place)
            self._wrong, self._told = ui.label().classes("bad").props('role="alert"'), Html()
            self._tail = ui.element("div").classes("wide tail")
            self._tail.on("mouseenter", lambda: self._point(True)).on("mouseleave", lambda: self._point(False))
            with self._tail:
                ui.label("Reading...").classes("dim")
        with panel("The message", "click on one above, or Tab and Enter") as self._below:
            self._place = Html()
            with ui.tabs().props("dense no-caps align=left") as tabs:
                for one in ("JSON", "hex", "headers"):
                    ui.tab(one)
            with (
                ui.tab_panels(tabs, value="JSON", animated=False)
                .classes("w-full")
                .style("background:transparent") as panels
            ):
                self._parts = []
                for one in ("JSON", "hex", "headers"):
                    with ui.tab_panel(one).style("padding:6px 0"):
                        self._parts.append(Html())
        panels.set_visibility(False)
        tabs.set_visibility(False)
        self._of_message = (tabs, panels)
        ui.timer(0.01, self._begin, once=True)
        live(self._tick)

    def _controls(self, wanted: str, place: str) -> None:
        with ui.row().classes("items-center w-full").style("gap:10px 14px"):
            self._wanted = ui.input(placeholder=WANTED, value=wanted).props(
                'dense outlined clearable maxlength=1000 aria-label="search or filter"'
            )
            self._wanted.style("flex:1 1 300px").on("keydown.enter", self._search).on("clear", self._search)
            goal = ui.input(placeholder="offset, or time (UTC)").props('dense outlined aria-label="go to"')
            goal.style("flex:0 1 190px").on("keydown.enter", lambda: self._go(goal.value or ""))
            self._going = ui.switch("follow", value=not place).props('title="pauses under the pointer"')
            self._going.on_value_change(lambda: self._do(self._reading.newest) if self._going.value else None)
        with ui.row().classes("items-center w-full").style("gap:10px"):
            small = "outline no-caps dense padding='1px 10px'"
            self._older = ui.button("older", on_click=lambda: self._leave(self._reading.older)).props(small)
            self._newer = ui.button("newer", on_click=lambda: self._leave(self._reading.newer)).props(small)
            ui.button("newest", on_click=self._to_newest).props(small)
            self._stop = ui.button("stop searching", on_click=self._reading.stop_searching).props(small)
            self._stop.set_visibility(False)
            self._where = ui.label().classes("dim")

    async def _begin(self) -> None:
        if self._first:
            await self._go(self._first)
            if self._reading.entries:
                self._choose(self._reading.entries[0])
        else:
            await self._do(self._reading.newest)

    async def _tick(self) -> None:
        if self._going.value and not self._pointed and self._client.has_socket_connection:
            await self._do(self._reading.follow)

    async def _search(self) -> None:
        self._reading.wanted = (self._wanted.value or "").strip()
        query = f"?q={quote(self._reading.wanted)}" if self._reading.wanted else ""
        ui.navigate.history.replace(f"/topic/{quote(self._name)}{query}")
        await self._do(self._reading.newest)

    async def _go(self, text: str) -> None:
        place = place_of(text)
        if place is None:
            told = f"{text!r} is neither an offset nor a time such as 14:05 or 2026-11-22 14:05"
            self._wrong.set_text(told if text else "")
            return
        await self._leave(lambda: self._reading.go_to(place))

    async def _leave(self, look: Callable[[], Awaitable[None]]) -> None:
        """Stop following, as something else is looked at."""
        self._going.value = False
        await self._do(look)

    async def _to_newest(self) -> None:
        if self._going.value:
            await self._do(self._reading.newest)
        self._going.value = True

    async def _do(self, look: Callable[[], Awaitable[None]]) -> None:
        try:
            await look()
        except Away as error:
            self._wrong.set_text(str(error))
            return
        self._wrong.set_text("")

    def _point(self, pointed: bool) -> None:
        self._pointed = pointed
        self._say()

    def _say(self) -> None:
        """Where in the topic the page is, and how far a search has come."""
        page = self._reading
        paused = "; paused under the pointer" if self._pointed and self._going.value else ""
        here = f"offsets {_range(page.begin, page.end)} of {_range(page.start, page.stop)}{paused}"
        self._where.set_text(here if page.stop else "")
        self._older.set_enabled(page.begin > page.start)
        self._newer.set_enabled(page.end < page.stop)
        self._stop.set_visibility(page.searching)
        told = f"searched {exact(page.searched)} of {exact(page.stop - page.start)} offsets, {len(page.entries)} found"
        self._told.show(f'<div class="dim" role="status">{told}{"..." * page.searching}</div>' if page.wanted else "")

    def _show(self) -> None:
        if not self._client.has_socket_connection:
            if self._reading.searching:  # nobody looks any more
                self._reading.stop_searching()
            return
        self._say()
        self._tail.clear()
        self._lines.clear()
        with self._tail:
            if not self._reading.entries:
                empty = "Searching..." if self._reading.searching else "No message."
                ui.label(empty).classes("dim")
            for entry in reversed(self._reading.entries):
                shown = self._lines[entry["offset"]] = ui.label(line(entry)).props('tabindex=0 role="button"')
                shown.classes("tail-line chosen" if entry["offset"] == self._chosen else "tail-line")
                shown.on("click", lambda entry=entry: self._choose(entry))
                shown.on("keydown.enter", lambda entry=entry: self._choose(entry))

    def _choose(self, entry: dict[str, Any]) -> None:
        if self._chosen in self._lines:
            self._lines[self._chosen].classes(remove="chosen")
        self._chosen = entry["offset"]
        self._lines[self._chosen].classes(add="chosen")
        view = whole(self._name, entry)
        self._place.show(view.place)
        for shown in self._of_message:
            shown.set_visibility(True)
        for part, text in zip(self._parts, (view.text, view.hex, view.headers), strict=True):
            part.show(text)
        ui.run_javascript(f"getHtmlElement({self._below.id}).scrollIntoView({{block: 'nearest'}})")


def _range(begin: int, end: int) -> str:
    return f"{exact(begin)} to {exact(end - 1)}" if end > begin else "none"
