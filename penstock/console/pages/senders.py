"""The senders page: who sends to each listener, what was lost, who is silent; and the hosts that relay to this one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from nicegui import ui

from penstock.config import Settings
from penstock.console.components.empty_states import first_message_html
from penstock.console.components.theme import Html, frame, live, long_text, panel, table
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.wording import exact, lasted
from penstock.counts import lost

REFRESH_INTERVAL_S = 3.0
SHOWN_SENDERS = 100
"""Limit: senders of each listener on the page; the search is for the others."""
NO_HOSTS = (
    '<div>No host relays to this one.</div><div class="dim">Another Penstock does it with a section '
    "<code>[[relay]]</code>.</div>"
)


def build_senders(daemon: Daemon, settings: Settings) -> None:
    """Build the page of senders."""
    with frame("/senders", daemon, "Senders"), panel("Senders", "times are UTC"):
        search_box = ui.input(placeholder="find a sender").props("dense outlined clearable").classes("w-full")
        problem = ui.label().classes("bad").props('role="alert"')
        senders = Html()

    async def refresh() -> None:
        text = (search_box.value or "").strip()
        try:
            document = await daemon.get("/senders", limit=SHOWN_SENDERS, search=text)
        except DaemonUnavailable as error:
            problem.set_text(str(error))
            return
        problem.set_text("")
        empty = _not_found_html(text) if text else _no_senders_html(settings)
        senders.show(senders_html(document) or empty)

    senders.show('<div class="dim" role="status">Reading...</div>')
    search_box.on_value_change(refresh)
    ui.timer(REFRESH_INTERVAL_S, refresh)


def senders_html(document: Mapping[str, Any]) -> str:
    """Return a table for each listener that has senders; empty if none has."""
    parts = []
    for listener in document["listeners"]:
        rows = [_sender_cells(sender) for sender in listener["senders"]]
        if rows:
            more = f", the largest {exact(len(rows))} of {exact(listener['number'])}" * (len(rows) < listener["number"])
            heads = ["sender", "accepted", "lost", "first seen", "last seen", "usual pause", "state"]
            parts.append(f"<h3>{escape(listener['listener'])}{more}</h3>{table(heads, rows, {1}, stack=True)}")
    return "".join(parts)


def _no_senders_html(settings: Settings) -> str:
    return f"<div>No sender has sent a message yet. Send the first one:</div>{first_message_html(settings)}"


def _not_found_html(text: str) -> str:
    return f'<div class="dim">No sender has {long_text(text)} in its name.</div>'


def _sender_cells(sender: Mapping[str, Any]) -> list[str]:
    losses = ", ".join(f"{escape(name)} {exact(count)}" for name, count in sender["losses"].items())
    pause = lasted(sender["usual_pause_s"]) if sender["usual_pause_s"] else ""
    state = "new" if sender["new"] else ""
    if sender["silent"]:
        state = f'<span class="warn">silent for {lasted(sender["silence_s"])}</span>'
    times = (_moment(sender["first_seen"]), _moment(sender["last_seen"]))
    return [escape(sender["sender"]), exact(sender["accepted"]), losses, *times, pause, state]


def build_hosts(daemon: Daemon) -> None:
    """Build the page of hosts."""
    hint = "listeners of hosts that relay to this one, or land here over Kafka; sent to pending there is counted there"
    with frame("/hosts", daemon, "Hosts"), panel("Hosts", hint):
        hosts = Html()

    live(lambda: hosts.show(hosts_html(daemon.balance, time.time())))


def hosts_html(balance: Mapping[str, Any], now: float) -> str:
    """Return a row for each host and listener: its own counts, entries that came from it, and their fates here."""
    rows = []
    for entry in balance.get("hosts", ()):
        fates = entry["fates"]
        landed = sum(count for name, count in fates.items() if name.startswith("landed."))
        numbers = [exact(count) for count in (entry["accepted"], landed, entry["pending"], lost(fates).total())]
        others = ", ".join(f"{escape(n)} {exact(c)}" for n, c in fates.items() if not n.startswith("landed."))
        # The last minute is known by its start.
        lag = lasted(max(now - entry["last_seen"] - 60, 0)) if entry["last_seen"] else ""
        names = [escape(entry["host"]), escape(entry["listener"])]
        over_kafka = entry.get("way") == "kafka"
        there, state = _counts_of_kafka(entry) if over_kafka else _counts_there(entry.get("on_host"))
        rows.append(
            [*names, entry.get("way", "relay"), *there, *numbers, others, _moment(entry["last_seen"]), lag, *state]
        )
    heads = ["host", "listener", "way", "sent", "accepted", "lost there", "pending there", "lost with disk"]
    heads += ["arrived", "landed", "pending", "lost", "other fates", "last minute", "ago"]
    heads += ["lag", "reported", "clock", "version", "books"]
    return table(heads, rows, set(range(3, 12)), stack=True) if rows else NO_HOSTS


def _counts_there(there: Mapping[str, Any] | None) -> tuple[list[str], list[str]]:
    """Return the cells of what a host counts and of its state, which are empty before it registers."""
    if there is None:
        return [""] * 5, ["", "", "", "", "not registered"]
    sent = "" if there["sent"] is None else exact(there["sent"])
    counts = [exact(there[name]) for name in ("accepted", "lost", "pending", "lost_with_disk")]
    books = "equal"
    if there["unaccounted"]:
        since = f" since {_moment(there['differs_since'])}" if there["differs_since"] else ""
        books = f'<span class="bad">{exact(there["unaccounted"])} differ{since}</span>'
    clock = f"{there['clock_offset_s']:+.1f} s"
    lag, reported, version = lasted(there["lag_s"]), _moment(there["reported_at"]), escape(there["version"])
    return [sent, *counts], [lag, reported, clock, version, books]


def _counts_of_kafka(entry: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the cells of a host that forwards to Kafka: what it counts, and the differences."""
    if (compared := entry.get("over_kafka")) is None:
        return _counts_there(None)
    lost_there = compared["failed"] + compared["dropped"]
    counts = [compared["accepted"], lost_there, compared["pending"], compared["lost_with_disk"]]
    parts = []
    for name, style in (("missing", "bad"), ("doubled", "warn"), ("in_kafka", "dim")):
        if compared[name]:
            first = (compared.get(f"{name}_minutes") or [0])[0]
            since = f" since {_moment(first)}" if first else ""
            parts.append(f'<span class="{style}">{exact(compared[name])} {name.replace("_", " ")}{since}</span>')
    clock = f"{compared['clock_offset_s']:+.1f} s"
    books = ", ".join(parts) or "equal"
    state = ["", _moment(compared["reported_at"]), clock, escape(compared["version"]), books]
    return ["", *map(exact, counts)], state


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_s else ""
