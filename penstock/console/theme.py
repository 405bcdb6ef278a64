"""What all pages share: colours, the head with its links and keys, small parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nicegui import ui

from penstock.console.daemon_poll import Daemon

PAGES = {
    "/": "Pipe",
    "/listeners": "Listeners",
    "/topics": "Topics",
    "/pipeline": "Pipeline",
    "/sql": "SQL",
    "/kafka": "Kafka",
    "/configuration": "Configuration",
}
REFRESH = 1.0
FIND = "e => location.assign('/find?q=' + encodeURIComponent(e.target.value))"
"""Done by the browser: it takes what is in the box, also while the console is away."""
SAID_EVERY = 0.5
"""Seconds between two looks whether anything is known of now."""

STATIC = Path(__file__).parent / "static"
STYLE = (STATIC / "console.css").read_text()
SCRIPT = (STATIC / "console.js").read_text()


@contextmanager
def frame(path: str, daemon: Daemon) -> Iterator[None]:
    """A page's head; what is built inside is its body."""
    ui.add_css(STYLE)
    ui.add_head_html(f"<script>{SCRIPT}</script>")
    with ui.row().classes("top items-center no-wrap").style("gap:20px"):
        ui.label("Penstock").classes("brand")
        for number, (target, name) in enumerate(PAGES.items(), 1):
            link = ui.link(name, target).props(f'data-page title="key {number}"')
            link.classes("here" if target == path else "")
        ui.space()
        find = ui.input(placeholder="find a uuid, topic:offset, time, text").props(
            'dense outlined debounce=0 aria-label="find a message" data-find'
        )
        find.classes("find").on("keydown.enter", js_handler=FIND)
        state = ui.label().classes("state dim").style("white-space:nowrap")
        if daemon.token:
            ui.link("Log out", "/logout").props('title="end this session"')
        switch = 'flat round dense aria-label="light or dark" title="light or dark (d)"'
        ui.button(icon="contrast").props(switch).on("click", js_handler="() => switchDark()")

    with ui.column().classes("page") as page:
        banner = ui.label().classes("banner").props('role="status"')
        banner.set_visibility(False)
        yield

    def say() -> None:
        late = daemon.unknown
        state.set_text("unknown" if late else "live")
        state.classes(replace="state bad" if late else "state good")
        banner.set_text(daemon.unknown_since())
        banner.set_visibility(late)
        page.classes(add="unknown") if late else page.classes(remove="unknown")

    ui.timer(SAID_EVERY, say)


def live(refresh: Callable[[], object]) -> None:
    """Call ``refresh`` now and every second while the page is open."""
    ui.timer(REFRESH, refresh)


def table(heads: list[str], rows: list[list[str]], numbers: Collection[int] = (), *, stack: bool = False) -> str:
    """A table as HTML; the cells are HTML already, columns ``numbers`` are set right.

    ``stack``: on a phone each row stands below the one before, cell below cell, with the heads beside them.
    """
    named = [f'data-head="{text}"' * stack for text in heads]
    kinds = [f'class="n" {named[at]}' if at in numbers else named[at] for at in range(len(heads))]
    head = "".join(f"<th {kind}>{text}</th>" for kind, text in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {kind}>{text}</td>" for kind, text in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    kind = "data stack" if stack else "data"
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


@contextmanager
def panel(title: str, hint: str = "") -> Iterator[ui.column]:
    """A framed part of a page with a heading."""
    with ui.column().classes("panel") as framed:
        with ui.row().classes("items-baseline w-full").style("gap:10px"):
            ui.label(title).classes("title").props('role="heading" aria-level="2"')
            ui.label(hint).classes("dim")
        yield framed


class Html:
    """A piece of HTML that is sent again only when it changes."""

    def __init__(self) -> None:
        self._element = ui.html("", sanitize=False).classes("w-full")
        self._text = ""

    def show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self._element.set_content(text)


class Chart:
    """A chart that is sent again only when it changes; its library, as large as all else, once there is one to show."""

    def __init__(self, height: int) -> None:
        self._place = ui.element("div").classes("w-full").style(f"height:{height}px")
        self._options: dict[str, Any] = {}
        self._chart: ui.echart | None = None

    def show(self, options: dict[str, Any]) -> None:
        """``options``: those of Apache ECharts."""
        if options == self._options:
            return
        self._options = options
        if self._chart is None:
            with self._place:
                self._chart = ui.echart(options).style("height:100%;width:100%")
        else:
            self._chart.options.clear()
            self._chart.options.update(options)
            self._chart.update()

    def set_visibility(self, visible: bool) -> None:
        """Whether it takes room."""
        self._place.set_visibility(visible)
