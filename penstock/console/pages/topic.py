"""The page of one topic: its messages page by page, a search, one message in detail, readers, and a form to send
one.

``TopicReading`` decides which messages are shown; this module builds the controls and draws what it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.console.charts import lag_chart
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.message_view import line, view_message
from penstock.console.pages.send_message import send_panel
from penstock.console.pages.topics import cursors
from penstock.console.search_input import parse_target
from penstock.console.theme import Chart, Html, frame, live, panel
from penstock.console.topic_reading import TopicReading
from penstock.console.wording import exact

READERS_INTERVAL_S = 5.0
SEARCH_HINT = "a text, or a filter, for example k:user v:vip-.*"


def build(daemon: Daemon, name: str, query: str = "", start_at: str = "") -> None:
    """Build the page; ``query`` is searched for, ``start_at`` (an offset or a time) is opened."""
    with frame("/topics", daemon, f"Topic {name}"):
        _MessagesPanel(daemon, name, query, start_at)
        with panel("Readers", "named cursors of this topic, and how far each was lag_chart within the last hour"):
            readers = Html()
            chart = Chart(220)
            chart.set_visibility(False)
        send_panel(daemon, name)

    async def refresh() -> None:
        try:
            described = await daemon.get(f"/topics/{quote(name, safe='')}")
        except DaemonUnavailable:  # the messages panel shows the error
            return
        readers.show(cursors([described]))
        lines = daemon.latest.lags.of_topic(name)
        chart.set_visibility(bool(lines))
        if lines:
            chart.show(lag_chart(lines, daemon.answered_s, daemon.events, daemon.latest.answered_unix_s))

    ui.timer(READERS_INTERVAL_S, refresh)


class _MessagesPanel:
    """The list of messages and the detail of the selected one, for one browser page.

    Used on the event loop only.
    """

    def __init__(self, daemon: Daemon, name: str, query: str, start_at: str) -> None:
        self._name, self._client = name, ui.context.client
        self._reading = TopicReading(daemon, name, self._draw_lines, query)
        self._is_hovered = False
        self._start_at, self._selected_offset = start_at, ""
        self._lines: dict[str, ui.label] = {}
        with panel(name):
            self._controls(query, start_at)
            self._error_label, self._search_state = ui.label().classes("bad").props('role="alert"'), Html()
            self._tail = ui.element("div").classes("wide tail")
            self._tail.on("mouseenter", lambda: self._set_hovered(True)).on(
                "mouseleave", lambda: self._set_hovered(False)
            )
            with self._tail:
                ui.label("Reading...").classes("dim")
        with panel("Message", "click a message above, or use Tab and Enter") as self._detail_panel:
            self._location = Html()
            with ui.tabs().props("dense no-caps align=left") as tabs:
                for tab_name in ("JSON", "hex", "headers"):
                    ui.tab(tab_name)
            with (
                ui.tab_panels(tabs, value="JSON", animated=False)
                .classes("w-full")
                .style("background:transparent") as panels
            ):
                self._tab_contents = []
                for tab_name in ("JSON", "hex", "headers"):
                    with ui.tab_panel(tab_name).style("padding:6px 0"):
                        self._tab_contents.append(Html())
        panels.set_visibility(False)
        tabs.set_visibility(False)
        self._message_views = (tabs, panels)
        ui.timer(0.01, self._load_first_page, once=True)
        live(self._tick)

    def _controls(self, query: str, start_at: str) -> None:
        with ui.row().classes("items-center w-full").style("gap:10px 14px"):
            self._search_box = ui.input(placeholder=SEARCH_HINT, value=query).props(
                'dense outlined clearable maxlength=1000 aria-label="search or filter"'
            )
            self._search_box.style("flex:1 1 300px").on("keydown.enter", self._search).on("clear", self._search)
            target_box = ui.input(placeholder="offset, or time (UTC)").props('dense outlined aria-label="go to"')
            target_box.style("flex:0 1 190px").on("keydown.enter", lambda: self._open_target(target_box.value or ""))
            self._follow_switch = ui.switch("follow", value=not start_at).props('title="pauses under the pointer"')
            self._follow_switch.on_value_change(
                lambda: self._run(self._reading.newest) if self._follow_switch.value else None
            )
        with ui.row().classes("items-center w-full").style("gap:10px"):
            small = "outline no-caps dense padding='1px 10px'"
            self._older_button = ui.button("older", on_click=lambda: self._stop_following(self._reading.older)).props(
                small
            )
            self._newer_button = ui.button("newer", on_click=lambda: self._stop_following(self._reading.newer)).props(
                small
            )
            ui.button("newest", on_click=self._to_newest).props(small)
            self._stop_button = ui.button("stop searching", on_click=self._reading.stop_searching).props(small)
            self._stop_button.set_visibility(False)
            self._range_label = ui.label().classes("dim")

    async def _load_first_page(self) -> None:
        if self._start_at:
            await self._open_target(self._start_at)
            if self._reading.entries:
                self._open_message(self._reading.entries[0])
        else:
            await self._run(self._reading.newest)

    async def _tick(self) -> None:
        # Paused under the pointer: a list that moves cannot be clicked.
        if self._follow_switch.value and not self._is_hovered and self._client.has_socket_connection:
            await self._run(self._reading.follow)

    async def _search(self) -> None:
        self._reading.query = (self._search_box.value or "").strip()
        query = f"?q={quote(self._reading.query)}" if self._reading.query else ""
        # The address carries the search, so it can be shared.
        ui.navigate.history.replace(f"/topic/{quote(self._name)}{query}")
        await self._run(self._reading.newest)

    async def _open_target(self, text: str) -> None:
        target = parse_target(text)
        if target is None:
            problem = f"{text!r} is neither an offset nor a time like 14:05 or 2026-11-22 14:05"
            self._error_label.set_text(problem if text else "")
            return
        await self._stop_following(lambda: self._reading.read_from(target))

    async def _stop_following(self, read: Callable[[], Awaitable[None]]) -> None:
        """Stop following and run ``read``: the user looks at something else."""
        self._follow_switch.value = False
        await self._run(read)

    async def _to_newest(self) -> None:
        if self._follow_switch.value:
            await self._run(self._reading.newest)
        self._follow_switch.value = True

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except DaemonUnavailable as error:
            self._error_label.set_text(str(error))
            return
        self._error_label.set_text("")

    def _set_hovered(self, hovered: bool) -> None:
        self._is_hovered = hovered
        self._show_state()

    def _show_state(self) -> None:
        """Show the range of the page, and the progress of a search."""
        page = self._reading
        paused = "; paused under the pointer" if self._is_hovered and self._follow_switch.value else ""
        offsets = f"offsets {_range_text(page.begin, page.end)} of {_range_text(page.start, page.stop)}{paused}"
        self._range_label.set_text(offsets if page.stop else "")
        self._older_button.set_enabled(page.begin > page.start)
        self._newer_button.set_enabled(page.end < page.stop)
        self._stop_button.set_visibility(page.searching)
        progress = (
            f"searched {exact(page.searched)} of {exact(page.stop - page.start)} offsets, found {len(page.entries)}"
        )
        self._search_state.show(
            f'<div class="dim" role="status">{progress}{"..." * page.searching}</div>' if page.query else ""
        )

    def _draw_lines(self) -> None:
        if not self._client.has_socket_connection:
            if self._reading.searching:  # the browser has closed the page
                self._reading.stop_searching()
            return
        self._show_state()
        # Limit: a page has at most fifty lines, so the list is built again instead of patched.
        self._tail.clear()
        self._lines.clear()
        with self._tail:
            if not self._reading.entries:
                empty = "Searching..." if self._reading.searching else "No messages."
                ui.label(empty).classes("dim")
            for entry in reversed(self._reading.entries):
                line_label = self._lines[entry["offset"]] = ui.label(line(entry)).props('tabindex=0 role="button"')
                line_label.classes("tail-line chosen" if entry["offset"] == self._selected_offset else "tail-line")
                line_label.on("click", lambda entry=entry: self._open_message(entry))
                line_label.on("keydown.enter", lambda entry=entry: self._open_message(entry))

    def _open_message(self, entry: dict[str, Any]) -> None:
        if self._selected_offset in self._lines:
            self._lines[self._selected_offset].classes(remove="chosen")
        self._selected_offset = entry["offset"]
        self._lines[self._selected_offset].classes(add="chosen")
        view = view_message(self._name, entry)
        self._location.show(view.location)
        for view_element in self._message_views:
            view_element.set_visibility(True)
        for part, text in zip(self._tab_contents, (view.text, view.hex, view.headers), strict=True):
            part.show(text)
        ui.run_javascript(f"getHtmlElement({self._detail_panel.id}).scrollIntoView({{block: 'nearest'}})")


def _range_text(begin: int, end: int) -> str:
    return f"{exact(begin)} to {exact(end - 1)}" if end > begin else "none"
