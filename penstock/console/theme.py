"""What all pages share: colours, the head with its links and keys, small parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

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
        find.classes("find").on("keydown.enter", lambda: ui.navigate.to(f"/find?q={quote(find.value or '', safe='')}"))
        state = ui.label().classes("dim").style("white-space:nowrap")
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
        state.classes(replace="bad" if late else "good")
        banner.set_text(daemon.unknown_since())
        banner.set_visibility(late)
        page.classes(add="unknown") if late else page.classes(remove="unknown")

    ui.timer(SAID_EVERY, say)


def live(refresh: Callable[[], object]) -> None:
    """Call ``refresh`` now and every second while the page is open."""
    ui.timer(REFRESH, refresh)


def table(heads: list[str], rows: list[list[str]], numbers: Collection[int] = ()) -> str:
    """A table as HTML; the cells are HTML already, columns ``numbers`` are set right."""
    kinds = ['class="n"' if column in numbers else "" for column in range(len(heads))]
    head = "".join(f"<th {kind}>{text}</th>" for kind, text in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {kind}>{text}</td>" for kind, text in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table class="data"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


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
