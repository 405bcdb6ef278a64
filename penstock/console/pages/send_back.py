"""The panel that sends messages in quarantine back: what a fix does to some of them, then all, watched and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from html import escape

from nicegui import ui

from penstock.client import ClientError, Log
from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.console.daemon_poll import Daemon
from penstock.console.theme import Html, panel, table
from penstock.console.wording import exact
from penstock.errors import PenstockError
from penstock.sql.quarantined import Extent, Selection, extent, newest, send_all
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.fixes import Fix, as_it_is, load_fix, replacing, setting
from penstock.upkeep.quarantine.preview import SAMPLES, Sample, preview
from penstock.upkeep.quarantine.send_back import SendBack, alone

AS_IT_IS, REPLACE, SET = "unchanged", "replace a text", "set a field"
LOOK = 0.25
LONGEST = 10_000
HINTS = {
    REPLACE: ("this text", "with this one"),
    SET: ("field, such as uuid", "value; {hash}: of the payload, {now}: milliseconds"),
}


class SendBackPanel:
    """The panel, for one selection."""

    def __init__(self, daemon: Daemon, settings: Settings, chosen: Selection) -> None:
        self._daemon, self._settings, self._chosen = daemon, settings, chosen
        self._tables: Tables | None = None
        self._about: Extent | None = None
        self._looked, self._going = 0, False
        ways = [AS_IT_IS, REPLACE, SET, *settings.pipeline.fixes]
        with panel("Send back", f"into their topics, each once: {chosen.words()}"):
            with ui.row().classes("items-center w-full").style("gap:10px 14px"):
                self._way = ui.select(ways, value=AS_IT_IS, label="correction").props("dense outlined")
                self._way.style("min-width:180px").on_value_change(self._changed)
                self._first, self._second = (ui.input().props(f"dense outlined maxlength={LONGEST}") for _ in "12")
                for one in (self._first, self._second):
                    one.style("flex:1 1 200px").on_value_change(self._forget)
                self._see = ui.button("preview", on_click=self._preview).props("outline no-caps dense")
                self._see.disable()  # until it is known where they are
            self._told = Html()
            self._bar = ui.linear_progress(0, show_value=False).props('aria-label="sent back"')
            with ui.row().style("gap:10px"):
                self._send = ui.button("send back", on_click=self._confirm).props("no-caps dense unelevated")
                self._stop = ui.button("stop", on_click=self._end).props("outline no-caps dense")
            with ui.element("div").classes("tail w-full"):
                self._samples = Html()
        with ui.dialog() as self._dialog, ui.card():
            self._question = ui.label()
            with ui.row().style("gap:10px"):
                ui.button("send messages", on_click=lambda: self._dialog.submit(True)).props("no-caps unelevated")
                ui.button("cancel", on_click=lambda: self._dialog.submit(False)).props("outline no-caps")
        self._changed()

    def of(self, tables: Tables) -> None:
        """What is sent is read here."""
        self._tables = tables
        self._see.enable()

    def _changed(self) -> None:
        hints = HINTS.get(self._way.value, ())
        for one, hint in zip((self._first, self._second), hints or ("", ""), strict=True):
            one.set_visibility(bool(hints))
            one.props(f'label="{hint}"')
        self._forget()

    def _forget(self) -> None:
        """What was previewed is not what would be sent now."""
        self._about = None
        self._told.show("")
        self._samples.show("")
        for one in (self._bar, self._send, self._stop):
            one.set_visibility(False)

    def _fix(self) -> Fix:
        """Raises BadFix."""
        way, first, second = self._way.value, self._first.value or "", self._second.value or ""
        if way in HINTS:
            return (replacing if way == REPLACE else setting)(first, second)
        return load_fix(way) if way in self._settings.pipeline.fixes else as_it_is

    async def _preview(self) -> None:
        self._forget()
        if self._tables is None:
            return
        self._told.show('<div class="dim" role="status">Reading...</div>')
        tables, chosen = self._tables, self._chosen
        try:
            fix = self._fix()
            about = await asyncio.to_thread(extent, tables, chosen)
            rows = await asyncio.to_thread(newest, tables, chosen, SAMPLES)
            found = await asyncio.to_thread(preview, rows, fix, tables.rules.events)
        except (PenstockError, OSError) as error:
            self._told.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
            return
        self._about = about
        self._told.show(acts_on(about, chosen, found))
        self._samples.show(samples(found))
        todo = about.of_log - about.before
        self._send.set_text(f"send {exact(todo)} back")
        self._send.set_visibility(todo > 0)

    async def _confirm(self) -> None:
        if self._about is None:
            return
        self._question.set_text(
            f"Send {exact(self._about.of_log - self._about.before)} messages back into their topics "
            f"({self._chosen.words()}; mended: {self._way.value})? This cannot be undone."
        )
        if await self._dialog and self._about is not None:
            await self._go(self._about, self._tables)

    async def _go(self, about: Extent, tables: Tables | None) -> None:
        if tables is None or self._going:
            return
        self._looked, self._going = 0, True
        shown = ui.timer(LOOK, lambda: self._watch(about))
        self._send.set_visibility(False)
        self._bar.set_visibility(True)
        self._stop.set_visibility(True)
        try:
            sent, left = await asyncio.to_thread(self._sent, tables, self._fix(), about)
            rest = "" if self._looked >= about.of_log else "; stopped"
            told = f"{exact(sent)} sent back, {exact(left)} left by the fix, {exact(about.before)} sent before{rest}"
            self._told.show(f'<div class="good" role="status">{told}</div>')
        except (PenstockError, ClientError, OSError) as error:
            self._told.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
        finally:
            self._going = False
            shown.cancel()
            self._samples.show("")
            self._bar.set_visibility(False)
            self._stop.set_visibility(False)

    def _watch(self, about: Extent) -> None:
        if not self._going:  # a look that was due as it ended
            return
        self._bar.set_value(self._looked / max(about.of_log, 1))
        self._told.show(f'<div class="dim" role="status">{exact(self._looked)} of {exact(about.of_log)}...</div>')

    def _end(self) -> None:
        self._going = False

    def _tell(self, looked: int) -> bool:
        self._looked = looked
        return self._going

    def _sent(self, tables: Tables, fix: Fix, about: Extent) -> tuple[int, int]:
        token = self._daemon.token
        return sent_back(self._settings, tables, self._chosen, fix, about, self._tell, token)


def sent_back(
    settings: Settings,
    tables: Tables,
    chosen: Selection,
    fix: Fix,
    about: Extent,
    tell: Callable[[int], bool],
    token: str = "",
) -> tuple[int, int]:
    """Send a selection back, with a token or our own: how many were sent, and how many the fix left.

    Raises SendingBack, BadFix, ClientError, OSError.
    """
    access = Access(settings)
    with alone(tables.layout), Log(access.rpc_address, token=token or access.token, retry_for=5.0) as log:
        return send_all(tables, chosen, SendBack(tables.layout, log, fix), about.newest, tell)


def acts_on(about: Extent, chosen: Selection, found: Sequence[Sample]) -> str:
    """What sending back would do; HTML."""
    todo = about.of_log - about.before
    parts = [f"<b>{exact(todo)}</b> messages ({escape(chosen.words())}) would be sent back into their topics"]
    if about.before:
        parts.append(f"{exact(about.before)} were sent back before and are passed over")
    if about.messages > about.of_log:
        parts.append(f"{exact(about.messages - about.of_log)} came from Kafka and stay")
    lands = sum(one.lands for one in found)
    mood = "good" if found and lands == len(found) else "warn"
    would = f'of the newest {len(found)}, <b class="{mood}">{lands}</b> would land' if found else ""
    return f"<div>{'; '.join(filter(None, [*parts, would]))}.</div>"


def samples(found: Sequence[Sample]) -> str:
    """Payloads before and after; HTML."""
    cells = [
        [
            escape(one.row.place),
            f"<code>{escape(_cut(one.row.payload))}</code>",
            "" if one.after is None else _same(one) or f"<code>{escape(_cut(one.after))}</code>",
            f'<span class="{"good" if one.lands else "bad"}">{escape(one.becomes.replace("_", " "))}</span>',
        ]
        for one in found
    ]
    return table(["message", "before", "after", "becomes"], cells, stack=True) if cells else ""


def _same(one: Sample) -> str:
    return '<span class="dim">the same</span>' if one.after == one.row.payload else ""


def _cut(payload: bytes) -> str:
    text = payload[:800].decode(errors="replace")
    return text if len(text) <= 200 else f"{text[:200]}..."
