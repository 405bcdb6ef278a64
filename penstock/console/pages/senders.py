"""The senders page: who sends to each listener, what was lost, who is silent; and the hosts that relay to this one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from nicegui import ui

from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.theme import Html, frame, live, panel, table
from penstock.console.wording import exact, lasted
from penstock.counts import lost

REFRESH_INTERVAL_S = 3.0
SHOWN_SENDERS = 100
"""Limit: senders of each listener on the page; the search is for the others."""
NO_SENDERS = '<div class="dim">No such sender has sent yet.</div>'
NO_HOSTS = (
    '<div>No host relays to this one.</div><div class="dim">Another Penstock does it with a section '
    "<code>[[relay]]</code>.</div>"
)


def build_senders(daemon: Daemon) -> None:
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
        senders.show(senders_html(document))

    senders.show('<div class="dim" role="status">Reading...</div>')
    search_box.on_value_change(refresh)
    ui.timer(REFRESH_INTERVAL_S, refresh)


def senders_html(document: Mapping[str, Any]) -> str:
    """Return a table for each listener that has senders."""
    parts = []
    for listener in document["listeners"]:
        rows = [_sender_cells(sender) for sender in listener["senders"]]
        if rows:
            more = f", the largest {exact(len(rows))} of {exact(listener['number'])}" * (len(rows) < listener["number"])
            heads = ["sender", "accepted", "lost", "first seen", "last seen", "usual pause", "state"]
            parts.append(f"<h3>{escape(listener['listener'])}{more}</h3>{table(heads, rows, {1}, stack=True)}")
    return "".join(parts) or NO_SENDERS


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
    hint = "listeners of other hosts whose entries are relayed to this one"
    with frame("/hosts", daemon, "Hosts"), panel("Hosts", hint):
        hosts = Html()

    live(lambda: hosts.show(hosts_html(daemon.balance, time.time())))


def hosts_html(balance: Mapping[str, Any], now: float) -> str:
    """Return a row for each host and listener: entries that came from it, and their fates here."""
    rows = []
    for entry in balance.get("hosts", ()):
        fates = entry["fates"]
        landed = sum(count for name, count in fates.items() if name.startswith("landed."))
        numbers = (entry["accepted"], landed, entry["pending"], lost(fates).total())
        others = ", ".join(f"{escape(n)} {exact(c)}" for n, c in fates.items() if not n.startswith("landed."))
        # The last minute is known by its start.
        lag = lasted(max(now - entry["last_seen"] - 60, 0)) if entry["last_seen"] else ""
        cells = [escape(entry["host"]), escape(entry["listener"]), *map(exact, numbers), others]
        rows.append([*cells, _moment(entry["last_seen"]), lag])
    heads = ["host", "listener", "accepted", "landed", "pending", "lost", "other fates", "last minute", "ago"]
    return table(heads, rows, {2, 3, 4, 5}, stack=True) if rows else NO_HOSTS


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_s else ""
