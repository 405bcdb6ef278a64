"""The page of one topic: its messages page by page as lines or columns, a search, conditions on fields, a histogram,
one message in detail, readers, and a form to send one.

``TopicReading`` decides which messages are shown; this module builds the controls and draws what it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui
from nicegui.events import GenericEventArguments

from penstock.console.components.charts import histogram, lag_chart
from penstock.console.components.message_fields import columns_html, fields_html, mark_text, parse_condition
from penstock.console.components.message_view import line, view_message
from penstock.console.components.search_input import parse_target, search_parameters
from penstock.console.components.theme import Chart, Html, frame, live, panel
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.pages.panels.send_message import send_panel
from penstock.console.pages.topics import cursors
from penstock.console.topic_reading import TopicReading
from penstock.console.wording import exact

READERS_INTERVAL_S = 5.0
HISTOGRAM_INTERVAL_S = 15.0
MATCH_INTERVALS = 30
"""Bars of the histogram of a search, each of at least a minute."""
LINES, COLUMNS = "lines", "columns"
TABS = ("JSON", "fields", "hex", "headers")
EMIT_OFFSET = """e => {
    const row = e.target.closest('[data-offset]');
    if (row && !getSelection().toString()) emit(row.dataset.offset);
}"""
EMIT_CONDITION = """e => {
    const button = e.target.closest('[data-condition]');
    if (button) emit(button.dataset.condition);
}"""
SEARCH_HINT = "a text, or a filter, for example k:user v:vip-.*"


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Parameters of the page's address: a search, conditions ``field=value``, a view, and where to start."""

    query: str = ""
    conditions: Sequence[str] = ()
    view: str = ""
    start_at: str = ""


def build(daemon: Daemon, name: str, address: PageAddress) -> None:
    """Build the page of topic ``name``; the message at ``address.start_at`` (an offset or a time) is opened."""
    with frame("/topics", daemon, f"Topic {name}"):
        _MessagesPanel(daemon, name, address)
        with panel("Readers", "named cursors of this topic, and how far each was behind within the last hour"):
            readers = Html()
            chart = Chart(220)
            chart.set_visibility(False)
        send_panel(daemon, name)

    async def refresh() -> None:
        try:
            described = await daemon.get(f"/topics/{quote(name, safe='')}")
        except DaemonUnavailable:  # the messages panel shows the error
            readers.show(cursors([]))
            return
        readers.show(cursors([described]))
        lags = daemon.latest.lags.of_topic(name)
        chart.set_visibility(bool(lags))
        if lags:
            chart.show(lag_chart(lags, daemon.answered_s, daemon.events, daemon.latest.answered_unix_s))

    ui.timer(READERS_INTERVAL_S, refresh)


class _MessagesPanel:
    """The list of messages and the detail of the selected one, for one browser page.

    Used on the event loop only.
    """

    def __init__(self, daemon: Daemon, name: str, address: PageAddress) -> None:
        self._name, self._client = name, ui.context.client
        self._reading = TopicReading(daemon, name, self._draw, address.query)
        self._reading.conditions = dict(filter(None, map(parse_condition, address.conditions)))
        self._is_hovered = False
        self._start_at, self._selected_offset = address.start_at, ""
        with panel(name):
            self._controls(address)
            self._chart = Chart(110)
            self._has_failed = False
            self._error_label, self._search_state = ui.label().classes("bad").props('role="alert"'), Html()
            with ui.element("div").classes("wide tail") as tail:
                self._messages = Html()
                self._messages.show('<div class="dim">Reading...</div>')
            tail.on("mouseenter", lambda: self._set_hovered(True)).on("mouseleave", lambda: self._set_hovered(False))
            for event in ("click", "keydown.enter"):
                tail.on(event, self._open_offset, js_handler=EMIT_OFFSET)
        with panel("Message", "click a message above, or use Tab and Enter") as self._detail_panel:
            self._location = Html()
            with ui.tabs().props("dense no-caps align=left") as tabs:
                for tab_name in TABS:
                    ui.tab(tab_name)
            with (
                ui.tab_panels(tabs, value="JSON", animated=False)
                .classes("w-full")
                .style("background:transparent") as panels
            ):
                self._tab_contents = []
                for tab_name in TABS:
                    with ui.tab_panel(tab_name).style("padding:6px 0"):
                        self._tab_contents.append(Html())
        self._detail_panel.on("click", self._add_condition, js_handler=EMIT_CONDITION)
        panels.set_visibility(False)
        tabs.set_visibility(False)
        self._message_views = (tabs, panels)
        ui.timer(0.01, self._load_first_page, once=True)
        live(self._tick)
        ui.timer(HISTOGRAM_INTERVAL_S, self._draw_histogram)

    def _controls(self, address: PageAddress) -> None:
        with ui.row().classes("items-center w-full").style("gap:10px 14px"):
            self._search_box = ui.input(placeholder=SEARCH_HINT, value=address.query).props(
                'dense outlined clearable maxlength=1000 aria-label="search or filter"'
            )
            self._search_box.style("flex:1 1 300px").on("keydown.enter", self._search).on("clear", self._search)
            target_box = ui.input(placeholder="offset, or time (UTC)").props('dense outlined aria-label="go to"')
            target_box.style("flex:0 1 190px").on("keydown.enter", lambda: self._open_target(target_box.value or ""))
            self._follow_switch = ui.switch("follow", value=not address.start_at).props(
                'title="pauses under the pointer"'
            )
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
            self._view = ui.toggle([LINES, COLUMNS], value=COLUMNS if address.view == COLUMNS else LINES)
            self._view.props(
                "dense unelevated no-caps toggle-color=primary toggle-text-color=on-primary padding='1px 10px'"
            )
            self._view.on_value_change(self._change_view)
            self._range_label = ui.label().classes("dim")
            self._pause_label = ui.label("paused under the pointer").classes("dim")
        self._conditions = ui.row().classes("items-center").style("gap:8px")

    async def _load_first_page(self) -> None:
        if self._start_at:
            await self._open_target(self._start_at)
            if self._reading.entries:
                self._open_message(self._reading.entries[0])
            self._show_conditions()
        else:
            self._show_conditions()
            await self._run(self._reading.newest)

    async def _tick(self) -> None:
        # Paused under the pointer: a list that moves cannot be clicked.
        if self._follow_switch.value and not self._is_hovered and self._client.has_socket_connection:
            await self._run(self._reading.follow)

    async def _search(self) -> None:
        self._reading.query = (self._search_box.value or "").strip()
        await self._show_matches()

    async def _show_matches(self) -> None:
        self._show_address()
        self._show_conditions()
        await self._run(self._reading.newest)
        await self._draw_histogram()

    def _show_address(self) -> None:
        # The address carries the search, so it can be shared.
        parameters = [
            *([("q", self._reading.query)] if self._reading.query else []),
            *(("where", f"{path}={value}") for path, value in self._reading.conditions.items()),
            *([("view", COLUMNS)] if self._view.value == COLUMNS else []),
        ]
        ui.navigate.history.replace(f"/topic/{quote(self._name)}{'?' if parameters else ''}{urlencode(parameters)}")

    def _change_view(self) -> None:
        self._show_address()
        self._show_conditions()
        self._draw()

    def _show_conditions(self) -> None:
        """Show each condition with a button that removes it, and in the columns view a box for another one."""
        self._conditions.clear()
        with self._conditions:
            for path, value in self._reading.conditions.items():
                ui.button(f"{path} = {value[:40]}", on_click=lambda path=path: self._remove_condition(path)).props(
                    f'outline no-caps dense icon-right=close padding="1px 10px" aria-label="{escape(f"remove {path}")}"'
                )
            if self._view.value == COLUMNS or self._reading.conditions:
                box = ui.input(placeholder="field=value").props('dense outlined aria-label="field=value"')
                box.on("keydown.enter", lambda: self._add_condition_text(box.value or ""))

    async def _add_condition(self, event: GenericEventArguments) -> None:
        await self._add_condition_text(str(event.args))

    async def _add_condition_text(self, text: str) -> None:
        condition = parse_condition(text)
        if condition is None:
            self._error_label.set_text(f"{text!r} is not like data.user=ann")
            return
        self._error_label.set_text("")
        self._reading.conditions[condition[0]] = condition[1]
        await self._show_matches()

    async def _remove_condition(self, path: str) -> None:
        self._reading.conditions.pop(path, None)
        await self._show_matches()

    async def _draw_histogram(self) -> None:
        """Show when messages were appended: all of the last hour, or, for a search, the matches on the page."""
        if not self._client.has_socket_connection:
            return
        if self._reading.is_search:
            self._chart.set_visibility(True)
            self._chart.show(histogram(count_by_interval(self._reading.entries)))
            return
        try:
            self._chart.show(
                histogram(await self._reading.count_by_time(datetime.now(UTC).replace(second=0, microsecond=0)))
            )
        except DaemonUnavailable:  # the label above the messages shows the error
            self._chart.set_visibility(False)
            return
        self._chart.set_visibility(True)

    async def _open_target(self, text: str) -> None:
        target = parse_target(text)
        if target is None:
            problem = f"{text!r} is neither an offset nor a time like 14:05 or 2026-11-22 14:05"
            self._error_label.set_text(problem if text else "")
            return
        self._error_label.set_text("")
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
            self._has_failed = True
            return
        # A page that follows its topic reads each second, and must not remove the complaint about an input.
        if self._has_failed:
            self._error_label.set_text("")
        self._has_failed = False

    def _set_hovered(self, hovered: bool) -> None:
        self._is_hovered = hovered
        self._show_state()

    def _show_state(self) -> None:
        """Show the range of the page, and the progress of a search."""
        page = self._reading
        # The label keeps its space: text that came and went would move the list from under the pointer and back.
        is_paused = self._is_hovered and self._follow_switch.value
        self._pause_label.style(f"visibility:{'visible' if is_paused else 'hidden'}")
        offsets = f"offsets {_range_text(page.begin, page.end)} of {_range_text(page.start, page.stop)}"
        self._range_label.set_text(offsets if page.stop else "")
        self._older_button.set_enabled(page.begin > page.start)
        self._newer_button.set_enabled(page.end < page.stop)
        self._stop_button.set_visibility(page.searching)
        progress = (
            f"searched {exact(page.searched)} of {exact(page.stop - page.start)} offsets, found {len(page.entries)}"
        )
        self._search_state.show(
            f'<div class="dim" role="status">{progress}{"..." * page.searching}</div>' if page.is_search else ""
        )

    def _draw(self) -> None:
        if not self._client.has_socket_connection:
            if self._reading.searching:  # the browser has closed the page
                self._reading.stop_searching()
            return
        self._show_state()
        entries = self._reading.entries[::-1]
        # A filter has no text that could be marked.
        mark = search_parameters(self._reading.query).get("text", "")
        if not entries:
            self._messages.show(
                f'<div class="dim">{"Searching..." if self._reading.searching else "No messages."}</div>'
            )
        elif self._view.value == COLUMNS:
            self._messages.show(columns_html(entries, mark, self._selected_offset, self._reading.conditions))
        else:
            self._messages.show("".join(self._line_html(entry, mark) for entry in entries))

    def _line_html(self, entry: dict[str, Any], mark: str) -> str:
        chosen = " chosen" if entry["offset"] == self._selected_offset else ""
        return (
            f'<div class="tail-line{chosen}" data-offset="{escape(entry["offset"])}" tabindex="0" role="button">'
            f"{mark_text(line(entry), mark)}</div>"
        )

    def _open_offset(self, event: GenericEventArguments) -> None:
        # The list may have moved on before the click arrived.
        for entry in self._reading.entries:
            if entry["offset"] == event.args:
                self._open_message(entry)

    def _open_message(self, entry: dict[str, Any]) -> None:
        self._selected_offset = entry["offset"]
        # A list that grows would push the message, which is below it, away from the reader.
        self._follow_switch.value = False
        self._draw()
        view = view_message(self._name, entry)
        self._location.show(view.location)
        for view_element in self._message_views:
            view_element.set_visibility(True)
        texts = (view.text, fields_html(entry, self._reading.conditions), view.hex, view.headers)
        for part, text in zip(self._tab_contents, texts, strict=True):
            part.show(text)
        ui.run_javascript(f"getHtmlElement({self._detail_panel.id}).scrollIntoView({{block: 'nearest'}})")


def count_by_interval(entries: Sequence[dict[str, Any]]) -> list[tuple[datetime, int]]:
    """Divide the time from the first to the last message; return the start of each interval and its messages."""
    if not entries:
        return []
    times = [datetime.fromisoformat(entry["timestamp"]).timestamp() for entry in entries]
    first, width = min(times), max(60.0, (max(times) - min(times)) / MATCH_INTERVALS)
    counts = Counter(int((moment - first) // width) for moment in times)
    return [(datetime.fromtimestamp(first + number * width, UTC), counts[number]) for number in range(max(counts) + 1)]


def _range_text(begin: int, end: int) -> str:
    return f"{exact(begin)} to {exact(end - 1)}" if end > begin else "none"
