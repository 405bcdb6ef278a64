"""The panel that sends quarantined messages back: preview of a fix, confirmation, progress, stop.

Invariant: what is sent is what was previewed. The preview fixes the selection's newest position, and any change of the
fix discards it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from html import escape

from nicegui import ui

from penstock.client import ClientError, Log
from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.console.components.theme import Html, panel, table
from penstock.console.daemon_poll import Daemon
from penstock.console.wording import counted, exact
from penstock.errors import PenstockError
from penstock.sql.quarantined import Extent, Selection, extent, newest, send_all
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.fixes import Fix, describe_fix, keep_payload, load_fix, replace_text, set_field
from penstock.upkeep.quarantine.preview import SAMPLES, Sample, preview
from penstock.upkeep.quarantine.send_back import SendBack, hold_send_lock

UNCHANGED, REPLACE, SET = "unchanged", "replace a text", "set a field"
PROGRESS_INTERVAL_S = 0.25
MAX_INPUT_CHARS = 10_000
HINTS = {
    REPLACE: ("text to replace", "replacement"),
    SET: ("field, for example uuid", "value; {hash}: hash of the payload, {now}: time in ms"),
}


class SendBackPanel:
    """The panel for one selection on one browser page.

    ``reload`` shows the messages and the history again after sending.
    Used on the event loop; only ``_report_progress`` is called from the thread that sends.
    """

    def __init__(
        self, daemon: Daemon, settings: Settings, selection: Selection, reload: Callable[[], Awaitable[None]]
    ) -> None:
        self._reload = reload
        self._daemon, self._settings, self._selection = daemon, settings, selection
        self._tables: Tables | None = None
        self._extent: Extent | None = None
        self._processed, self._is_sending = 0, False
        choices = [UNCHANGED, REPLACE, SET, *settings.pipeline.fixes]
        with panel("Send back", f"to their topics, each message once: {selection.words()}"):
            with ui.row().classes("items-center w-full").style("gap:10px 14px"):
                self._fix_choice = ui.select(choices, value=UNCHANGED, label="fix").props("dense outlined")
                self._fix_choice.style("min-width:180px").on_value_change(self._fix_changed)
                self._first_field, self._second_field = (
                    ui.input().props(f"dense outlined maxlength={MAX_INPUT_CHARS}") for _ in "12"
                )
                for field in (self._first_field, self._second_field):
                    field.style("flex:1 1 200px").on_value_change(self._discard_preview)
                self._preview_button = ui.button("preview", on_click=self._preview).props("outline no-caps dense")
                self._preview_button.disable()  # until ``enable`` names the tables
            self._message = Html()
            self._bar = ui.linear_progress(0, show_value=False).props('aria-label="progress of sending back"')
            with ui.row().style("gap:10px"):
                self._send_button = ui.button("send back", on_click=self._confirm).props(
                    "no-caps dense unelevated text-color=on-primary"
                )
                self._stop_button = ui.button("stop", on_click=self._request_stop).props("outline no-caps dense")
            with ui.element("div").classes("tail w-full"):
                self._samples = Html()
        with ui.dialog().props('aria-label="send back"') as self._dialog, ui.card():
            self._question = ui.label()
            with ui.row().style("gap:10px"):
                ui.button("send messages", on_click=lambda: self._dialog.submit(True)).props(
                    "no-caps unelevated text-color=on-primary"
                )
                ui.button("cancel", on_click=lambda: self._dialog.submit(False)).props("outline no-caps")
        self._fix_changed()

    def enable(self, tables: Tables) -> None:
        """Enable the preview of messages in ``tables``."""
        self._tables = tables
        self._preview_button.enable()

    def _fix_changed(self) -> None:
        hints = HINTS.get(self._fix_choice.value, ())
        for field, hint in zip((self._first_field, self._second_field), hints or ("", ""), strict=True):
            field.set_visibility(bool(hints))
            field.props(f'label="{hint}"')
        self._discard_preview()

    def _discard_preview(self) -> None:
        """Discard the preview: it no longer shows what would be sent."""
        self._extent = None
        self._message.show("")
        self._samples.show("")
        for control in (self._bar, self._send_button, self._stop_button):
            control.set_visibility(False)

    def _selected_fix(self) -> Fix:
        """Return the selected fix. Raises BadFix."""
        choice, first_text, second_text = (
            self._fix_choice.value,
            self._first_field.value or "",
            self._second_field.value or "",
        )
        if choice in HINTS:
            return (replace_text if choice == REPLACE else set_field)(first_text, second_text)
        return load_fix(choice) if choice in self._settings.pipeline.fixes else keep_payload

    def _fix_text(self) -> str:
        choice = self._fix_choice.value
        texts = (self._first_field.value or "", self._second_field.value or "")
        if choice == REPLACE:
            return describe_fix(replaced=texts)
        return describe_fix(field=texts) if choice == SET else describe_fix(choice if choice != UNCHANGED else "")

    async def _preview(self) -> None:
        self._discard_preview()
        if self._tables is None:
            return
        self._message.show('<div class="dim" role="status">Reading...</div>')
        tables, selection = self._tables, self._selection
        try:
            fix = self._selected_fix()
            selected_extent = await asyncio.to_thread(extent, tables, selection)
            rows = await asyncio.to_thread(newest, tables, selection, SAMPLES)
            previewed = await asyncio.to_thread(preview, rows, fix, tables.rules.events)
        except (PenstockError, OSError) as error:
            self._message.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
            return
        self._extent = selected_extent
        self._message.show(describe_effect(selected_extent, selection, previewed))
        self._samples.show(samples(previewed))
        unsent = selected_extent.of_log - selected_extent.before
        self._send_button.set_text(f"send {exact(unsent)} back")
        self._send_button.set_visibility(unsent > 0)

    async def _confirm(self) -> None:
        if self._extent is None:
            return
        self._question.set_text(
            f"Send {counted(self._extent.of_log - self._extent.before, 'message')} back to "
            "their topics "
            f"({self._selection.words()}; fix: {self._fix_choice.value})? This cannot be undone."
        )
        if await self._dialog and self._extent is not None:
            await self._send_selection(self._extent, self._tables)

    async def _send_selection(self, selected_extent: Extent, tables: Tables | None) -> None:
        # A second click, or a second answer of the dialog, must not send twice at the same time.
        if tables is None or self._is_sending:
            return
        self._processed, self._is_sending = 0, True
        progress_timer = ui.timer(PROGRESS_INTERVAL_S, lambda: self._show_progress(selected_extent))
        self._send_button.set_visibility(False)
        self._bar.set_visibility(True)
        self._stop_button.set_visibility(True)
        try:
            self._daemon.check_operator()
            # In a thread: sending takes minutes, and the page must stay responsive to the stop button.
            fix, fix_text = self._selected_fix(), self._fix_text()
            sent, skipped = await asyncio.to_thread(self._send_in_thread, tables, fix, fix_text, selected_extent)
            ending = "" if self._processed >= selected_extent.of_log else "; stopped"
            words = self._selection.words()
            await self._daemon.record(f"send {sent} quarantined messages back", selection=words, fix=fix_text)
            earlier = exact(selected_extent.before)
            summary = f"{exact(sent)} sent back, {exact(skipped)} skipped by the fix, {earlier} sent before{ending}"
            self._message.show(f'<div class="good" role="status">{summary}</div>')
        except (PenstockError, ClientError, OSError) as error:
            self._message.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
        finally:
            self._is_sending = False
            progress_timer.cancel()
            self._samples.show("")
            self._bar.set_visibility(False)
            self._stop_button.set_visibility(False)
        # Also after an error: some messages may have been sent.
        await self._reload()

    def _show_progress(self, selected_extent: Extent) -> None:
        if not self._is_sending:  # the timer was due when sending ended
            return
        self._bar.set_value(self._processed / max(selected_extent.of_log, 1))
        self._message.show(
            f'<div class="dim" role="status">{exact(self._processed)} of {exact(selected_extent.of_log)}...</div>'
        )

    def _request_stop(self) -> None:
        self._is_sending = False

    def _report_progress(self, processed: int) -> bool:
        self._processed = processed
        return self._is_sending

    def _send_in_thread(self, tables: Tables, fix: Fix, fix_text: str, selected_extent: Extent) -> tuple[int, int]:
        token = self._daemon.token
        return send_selection_back(
            self._settings, tables, self._selection, fix, selected_extent, self._report_progress, token, fix_text
        )


def send_selection_back(
    settings: Settings,
    tables: Tables,
    selection: Selection,
    fix: Fix,
    selected_extent: Extent,
    report_progress: Callable[[int], bool],
    token: str = "",
    fix_text: str = "",
) -> tuple[int, int]:
    """Send a selection back and return how many messages were sent, and how many the fix skipped.

    ``token`` is the user's; "" uses the console's own. Raises SendingBack, BadFix, ClientError, OSError.
    """
    access = Access(settings)
    # Lock: one sender per table, shared with ``penstock pipeline quarantine``; each records what it has sent.
    with hold_send_lock(tables.layout), Log(access.rpc_address, token=token or access.token, retry_for=5.0) as log:
        sender = SendBack(tables.layout, log, fix, fix_text)
        return send_all(tables, selection, sender, selected_extent.newest, report_progress)


def describe_effect(selected_extent: Extent, selection: Selection, previewed: Sequence[Sample]) -> str:
    """Return the preview of sending back, as HTML."""
    unsent = selected_extent.of_log - selected_extent.before
    parts = [f"{counted(unsent, 'message')} ({escape(selection.words())}) would be sent back to their topics"]
    if selected_extent.before:
        parts.append(f"{exact(selected_extent.before)} sent back before and skipped")
    if selected_extent.messages > selected_extent.of_log:
        parts.append(
            f"{exact(selected_extent.messages - selected_extent.of_log)} from Kafka, which cannot be sent back"
        )
    landing = sum(sample.lands for sample in previewed)
    css_class = "good" if previewed and landing == len(previewed) else "warn"
    outcome = f'of the newest {len(previewed)}, <b class="{css_class}">{landing}</b> would land' if previewed else ""
    return f"<div>{'; '.join(filter(None, [*parts, outcome]))}.</div>"


def samples(previewed: Sequence[Sample]) -> str:
    """Return payloads before and after the fix, as HTML."""
    cells = [
        [
            escape(sample.row.position),
            f"<code>{escape(_excerpt(sample.row.payload))}</code>",
            "" if sample.after is None else _unchanged_mark(sample) or f"<code>{escape(_excerpt(sample.after))}</code>",
            f'<span class="{"good" if sample.lands else "bad"}">{escape(sample.becomes.replace("_", " "))}</span>',
        ]
        for sample in previewed
    ]
    return table(["message", "before", "after", "becomes"], cells, stack=True) if cells else ""


def _unchanged_mark(sample: Sample) -> str:
    return '<span class="dim">unchanged</span>' if sample.after == sample.row.payload else ""


def _excerpt(payload: bytes) -> str:
    text = payload[:800].decode(errors="replace")
    return text if len(text) <= 200 else f"{text[:200]}..."
