"""Parts that all pages share: styles, the header with links and keys, tables, panels and charts.

Invariant: an update is sent to the browser only if it differs from the last one; most polls change little.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from nicegui import ui

from penstock.console.daemon_poll import Daemon
from penstock.console.people import Person
from penstock.ledger.receipt import not_started_in

PAGES = {
    "/": "Pipe",
    "/listeners": "Listeners",
    "/topics": "Topics",
    "/pipeline": "Pipeline",
    "/sql": "SQL",
    "/kafka": "Kafka",
    "/alarms": "Alarms",
    "/configuration": "Configuration",
    "/audits": "Audits",
}
REFRESH_INTERVAL_S = 1.0
OPEN_FIND_PAGE = "e => location.assign('/find?q=' + encodeURIComponent(e.target.value))"
"""Runs in the browser: it takes the text of the box, also while the console does not respond."""
STATE_CHECK_INTERVAL_S = 0.5
"""Interval of the check whether the state is known; a part of the three seconds in ``daemon_poll``."""

STATIC = Path(__file__).parents[1] / "static"
STYLE = (STATIC / "console.css").read_text()
SCRIPT = (STATIC / "console.js").read_text() + (STATIC / "grid.js").read_text()


@contextmanager
def frame(path: str, daemon: Daemon, title: str = "") -> Iterator[None]:
    """Build the header of a page; what is built inside the block is its body.

    ``title`` is the heading for screen readers; by default the name of the page in the navigation.
    """
    ui.add_css(STYLE)
    ui.add_head_html(f"<script>{SCRIPT}</script>")
    # With a login the bar holds a name and its role as well; the box to find messages keeps its words.
    with ui.row().classes("top items-center no-wrap").style(f"gap:{12 if daemon.person.name else 20}px"):
        ui.label("Penstock").classes("brand")
        for number, (target, name) in enumerate(PAGES.items(), 1):
            link = ui.link(name, target).props(f'data-page title="key {number}"')
            link.classes("here" if target == path else "")
        ui.space()
        find_box = ui.input(placeholder="find a uuid, topic:offset, time, text").props(
            'dense outlined debounce=0 aria-label="find a message" data-find'
        )
        find_box.classes("find").on("keydown.enter", js_handler=OPEN_FIND_PAGE)
        state = ui.label().classes("state dim").style("white-space:nowrap")
        if daemon.person.name:
            name = daemon.person.name if daemon.person.is_operator else f"{daemon.person.name} (viewer)"
            ui.label(name).classes("person dim").props(f'title="{name}"')
        if daemon.person.has_session:
            ui.link("Log out", "/logout").props('title="end this session"')
        ui.button("?").props('flat round dense aria-label="keys" title="keys (?)"').on(
            "click", js_handler="() => showKeys()"
        )
        switch = 'flat round dense aria-label="light or dark" title="light or dark (d)"'
        ui.button(icon="contrast").props(switch).on("click", js_handler="() => switchDark()")

    with ui.column().classes("page") as page:
        ui.label(title or PAGES[path]).classes("page-title").props('role="heading" aria-level="1"')
        banner = ui.label().classes("banner").props('role="status"')
        banner.set_visibility(False)
        yield

    def show_state() -> None:
        is_unknown = daemon.unknown
        text, level = _state(daemon)
        state.set_text(text)
        state.classes(replace=f"state {level}")
        banner.set_text(daemon.unknown_since())
        banner.set_visibility(is_unknown)
        page.classes(add="unknown") if is_unknown else page.classes(remove="unknown")

    ui.timer(STATE_CHECK_INTERVAL_S, show_state)


def _state(daemon: Daemon) -> tuple[str, str]:
    """Return the text of the page's state, and its level."""
    if daemon.unknown:
        return "unknown", "bad"
    if missing := not_started_in(daemon.balance):
        names = missing[0]["process"] if len(missing) == 1 else f"{len(missing)} processes"
        return f"{names} cannot start", "bad"
    if stopped := daemon.stopped_receivers:
        return f"receiver stopped for {max(stopped.values()):.0f} s", "warn"
    if stopped_s := daemon.pipeline_stopped_s:
        return f"pipeline stopped for {stopped_s:.0f} s", "warn"
    if silent := daemon.silent_processes:
        return f"forwarder silent for {max(silent.values()):.0f} s", "warn"
    return "live", "good"


def viewer_note(person: Person, action: str) -> None:
    """Say in place of a form that a viewer may not do this."""
    ui.label(f"{person.name} is a viewer: only an operator may {action}").classes("dim viewer-note")


def live(refresh: Callable[[], object]) -> None:
    """Call ``refresh`` now and every second while the page is open."""
    ui.timer(REFRESH_INTERVAL_S, refresh)


def long_text(text: str) -> str:
    """Return a text of any length as HTML; long words such as addresses and names of listeners may break."""
    return f'<span class="long">{escape(text)}</span>' if text else ""


def table(heads: list[str], rows: list[list[str]], numbers: Collection[int] = (), *, stack: bool = False) -> str:
    """Return an HTML table; cells are HTML already, columns ``numbers`` are aligned right.

    ``stack``: on a phone each row is a block, one cell below the other, each with its column's head.
    """
    data_heads = [f'data-head="{text}"' * stack for text in heads]
    attributes = [
        f'class="n" {data_heads[column]}' if column in numbers else data_heads[column] for column in range(len(heads))
    ]
    head = "".join(f"<th {attribute}>{text}</th>" for attribute, text in zip(attributes, heads, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td {attribute}>{text}</td>" for attribute, text in zip(attributes, row, strict=True))
        + "</tr>"
        for row in rows
    )
    css_class = "data stack" if stack else "data"
    rows_html = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{css_class}">{rows_html}</table></div>'


@contextmanager
def panel(title: str, hint: str = "") -> Iterator[ui.column]:
    """Build a framed part of a page with a heading."""
    with ui.column().classes("panel") as framed_panel:
        with ui.row().classes("items-baseline w-full").style("gap:10px"):
            ui.label(title).classes("title").props('role="heading" aria-level="2"')
            ui.label(hint).classes("dim")
        yield framed_panel


class Html:
    """A piece of HTML; ``show`` sends it only if it changed."""

    def __init__(self) -> None:
        self._element = ui.html("", sanitize=False).classes("w-full")
        self._text = ""

    def show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self._element.set_content(text)


class Chart:
    """A chart; ``show`` sends its options only if they changed, and loads the chart library with the first ones."""

    def __init__(self, height: int) -> None:
        self._container = ui.element("div").classes("w-full").style(f"height:{height}px")
        self._options: dict[str, Any] = {}
        self._chart: ui.echart | None = None

    def show(self, options: dict[str, Any]) -> None:
        """Show a chart with these options of Apache ECharts."""
        if options == self._options:
            return
        self._options = options
        if self._chart is None:
            # Created late: the chart library is as large as the rest of the page.
            with self._container:
                self._chart = ui.echart(options).style("height:100%;width:100%")
        else:
            self._chart.options.clear()
            self._chart.options.update(options)
            self._chart.update()

    def set_visibility(self, visible: bool) -> None:
        """Show or hide the chart with its space."""
        self._container.set_visibility(visible)
