"""The alarms page: rules with their state, what fires, history, and a form to acknowledge and mute."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui

from penstock.console.components.search_input import parse_target
from penstock.console.components.theme import Html, frame, long_text, panel, table, viewer_note
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.wording import lasted
from penstock.errors import PenstockError

REFRESH_INTERVAL_S = 3.0
SHOWN_HISTORY = 100
MUTE_TIMES = {"1 hour": 3600, "4 hours": 4 * 3600, "1 day": 86_400, "1 week": 7 * 86_400}
UNTIL, UNMUTE = "until a time (UTC)", "end the mute"
ALL = "all of this alarm"
LEVELS = {"quiet": "dim", "pending": "warn", "firing": "bad"}
NO_DESTINATION = (
    "Alarms have no destination: set webhook, command, slack, pagerduty or smtp in [alarms], then try it with "
    "penstock alarms test."
)


def build(daemon: Daemon) -> None:
    """Build the page."""
    with frame("/alarms", daemon):
        with panel("Alarms that fire", "times are UTC"):
            problem = ui.label().classes("bad").props('role="alert"')
            destination, firing = Html(), Html()
            firing.show('<div class="dim" role="status">Reading...</div>')
        form = _Form(daemon) if daemon.person.is_operator else None
        if not form:
            viewer_note(daemon.person, "acknowledge and mute alarms")
        with panel("Rules", "evaluated by the log daemon every few seconds"):
            rules = Html()
        with panel("History", f"the last {SHOWN_HISTORY}, newest first"):
            history = Html()

    async def refresh() -> None:
        try:
            document = await daemon.get("/alarms")
        except DaemonUnavailable as error:
            problem.set_text(str(error))
            return
        problem.set_text("")
        destination.show("" if document["delivered"] else f'<div class="warn">{escape(NO_DESTINATION)}</div>')
        firing.show(firing_html(document))
        rules.show(rules_html(document))
        history.show(history_html(document))
        if form:
            form.offer(document)

    if form:
        form.on_change = refresh
    ui.timer(REFRESH_INTERVAL_S, refresh)


class _Form:
    """The form to acknowledge and mute alarms, for one browser page. Used on the event loop only."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._labels: dict[str, dict[str, str]] = {}
        self._document: dict[str, Any] = {"alarms": []}
        self.on_change: Any = None
        with (
            panel("Acknowledge or mute", "an acknowledged alarm is not delivered until it ends and begins again"),
            ui.row().classes("items-center w-full").style("gap:10px 14px"),
        ):
            self._alarm = ui.select([], label="alarm", on_change=self._offer_labels)
            self._which = ui.select([ALL], value=ALL, label="which")
            self._note = ui.input("note").props("dense outlined maxlength=500").style("flex:1 1 220px")
            self._acknowledge_button = ui.button("acknowledge", on_click=self._acknowledge)
            self._time = ui.select(
                [*MUTE_TIMES, UNTIL, UNMUTE], value="1 hour", label="mute", on_change=self._offer_labels
            )
            self._until = ui.input("2026-01-31 18:00").props('dense outlined aria-label="end of the mute (UTC)"')
            self._until.bind_visibility_from(self._time, "value", value=UNTIL)
            self._mute_button = ui.button("mute", on_click=self._mute)
            for choice, width in ((self._alarm, 250), (self._which, 220), (self._time, 190)):
                choice.props("dense outlined options-dense").style(f"min-width:{width}px")
            for button in (self._acknowledge_button, self._mute_button):
                button.props("outline no-caps dense padding='3px 12px'")
            self._outcome = Html()

    def offer(self, document: dict[str, Any]) -> None:
        """Offer the alarms of a new answer; a selection stays."""
        names = [rule["alarm"] for rule in document["alarms"] if rule["evaluated"]]
        self._document = document
        if names != self._alarm.options:
            firing = [rule["alarm"] for rule in document["alarms"] if rule["state"] == "firing"]
            self._alarm.set_options(names, value=(firing or names)[0])
        self._offer_labels()

    def _offer_labels(self) -> None:
        rule = next((rule for rule in self._document["alarms"] if rule["alarm"] == self._alarm.value), None)
        if rule is None:
            return
        is_unmute = self._time.value == UNMUTE
        self._labels = label_choices(rule, is_unmute=is_unmute)
        options = list(self._labels)
        if options != self._which.options:
            self._which.set_options(options, value=self._which.value if self._which.value in options else options[0])
        self._acknowledge_button.set_enabled(bool(rule["firing"]) and not is_unmute)

    async def _acknowledge(self) -> None:
        await self._post("acknowledge", {}, "acknowledged")

    async def _mute(self) -> None:
        choice = str(self._time.value)
        if choice == UNTIL:
            target = parse_target(self._until.value or "") or {}
            if "timestamp" not in target:
                self._outcome.show('<div class="bad" role="alert">The end is a time like 2026-01-31 18:00.</div>')
                return
            until = datetime.fromisoformat(target["timestamp"]).timestamp()
            if until <= time.time():
                self._outcome.show('<div class="bad" role="alert">The end is in the past.</div>')
                return
        else:
            until = 0 if choice == UNMUTE else time.time() + MUTE_TIMES[choice]
        await self._post("mute", {"until": until}, "unmuted" if choice == UNMUTE else "muted")

    async def _post(self, action: str, document: dict[str, Any], done: str) -> None:
        person, name = self._daemon.person, str(self._alarm.value)
        labels = self._labels.get(str(self._which.value), {})
        body = {"labels": labels, "note": self._note.value or "", **document}
        author = {"by": person.name or "console", "from": person.origin}
        try:
            path = f"/alarms/{quote(name, safe='')}/{action}"
            await self._daemon.request("POST", path, json=body | author)
        except PenstockError as error:
            self._outcome.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
            return
        self._outcome.show(f'<div class="good" role="status">{escape(name)}: {done}</div>')
        self._note.set_value("")
        await self.on_change()


def label_choices(rule: Mapping[str, Any], *, is_unmute: bool) -> dict[str, dict[str, str]]:
    """Return labels of alarms that fire and of mutes, by their words; ``is_unmute`` leaves out alarms."""
    labels = [entry["labels"] for entry in (*([] if is_unmute else rule["firing"]), *rule["mutes"])]
    # Only a mute can be ended, by exactly its own labels: "all" would end none of the mutes that have labels.
    choices = {label_words(label) or ALL: label for label in labels}
    return choices if is_unmute and choices else {ALL: {}, **choices}


def firing_html(document: Mapping[str, Any]) -> str:
    """Return a row for each alarm that fires."""
    rows = [
        [
            f'<b class="{"bad" if rule["severity"] == "critical" else "warn"}">{escape(rule["severity"])}</b>',
            long_text(alarm["summary"]),
            f'<span class="nw">{time_words(alarm["since"])}</span>',
            _handling_html(alarm),
        ]
        for rule in document["alarms"]
        for alarm in rule["firing"]
    ]
    if not rows:
        return '<div class="good">No alarm fires.</div>'
    return table(["severity", "alarm", "since", "handled"], rows, stack=True)


def _handling_html(alarm: Mapping[str, Any]) -> str:
    parts = []
    if acknowledged := alarm["acknowledged"]:
        note = f": {acknowledged['note']}" * bool(acknowledged["note"])
        parts.append(f"acknowledged by {acknowledged['by']}, {time_words(acknowledged['at'])}{note}")
    if alarm["muted"]:
        parts.append("muted")
    handled = long_text("; ".join(parts)) or '<span class="warn">not yet</span>'
    return handled + ('; <span class="bad">delivery given up, see the log</span>' if alarm["given_up"] else "")


def rules_html(document: Mapping[str, Any]) -> str:
    """Return a row for each rule."""
    rows = [
        [
            f"<b>{escape(rule['alarm'].removeprefix('Penstock'))}</b>",
            _state_html(rule),
            f'<span class="nw">{since}</span>' if (since := since_words(rule)) else "",
            f'<code class="condition">{escape(rule["condition"])}</code>',
            f'<span class="nw">{lasted(rule["hold_s"]) if rule["hold_s"] else "at once"}</span>',
            long_text("; ".join(map(mute_words, rule["mutes"]))),
        ]
        for rule in document["alarms"]
    ]
    rules = table(["alarm", "state", "since", "condition", "after", "muted"], rows, stack=True)
    return f'<div class="short-rows rules">{rules}</div>'


def _state_html(rule: Mapping[str, Any]) -> str:
    state = rule["state"] if rule["evaluated"] else "by Prometheus only"
    return f'<span class="{LEVELS[rule["state"]]}">{state}</span>'


def history_html(document: Mapping[str, Any]) -> str:
    """Return a row for each entry of the history."""
    rows = [
        [
            f'<span class="nw">{time_words(entry["at"])}</span>',
            escape(entry["alarm"].removeprefix("Penstock")),
            escape(f"{entry['state']} until {time_words(entry['until'])}" if "until" in entry else entry["state"]),
            long_text(entry["summary"] or label_words(entry["labels"])),
            long_text(entry["by"]),
            long_text(entry["note"]),
        ]
        for entry in document["history"][:SHOWN_HISTORY]
    ]
    if not rows:
        return '<div class="dim">Nothing has happened yet.</div>'
    return table(["time", "alarm", "what", "summary", "by", "note"], rows, stack=True)


def since_words(rule: Mapping[str, Any]) -> str:
    """Return since when the oldest alarm of a rule fires or is pending; "" if it is quiet."""
    since = [alarm["since"] for alarm in rule["firing"] or rule["pending"]]
    return time_words(min(since)) if since else ""


def mute_words(mute: Mapping[str, Any]) -> str:
    """Return a mute in words."""
    return ", ".join(
        filter(None, [f"until {time_words(mute['until'])} by {mute['by']}", label_words(mute["labels"]), mute["note"]])
    )


def label_words(labels: Mapping[str, str]) -> str:
    """Return labels in words."""
    return ", ".join(f"{name}={text}" for name, text in labels.items())


def time_words(moment: str | float) -> str:
    """Return a time (text or seconds since the epoch) in UTC."""
    time_of = datetime.fromisoformat(moment) if isinstance(moment, str) else datetime.fromtimestamp(moment, UTC)
    return time_of.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
