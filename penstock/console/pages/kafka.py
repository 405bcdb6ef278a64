"""Kafka: partitions that are landed from, handlers that send to it."""

from __future__ import annotations

from html import escape
from typing import Any

from penstock.console.daemon_poll import Daemon
from penstock.console.theme import Html, frame, live, panel, table
from penstock.console.wording import exact, rate

HANDLER = "kafka"
MOST = 200
"""Partitions that are shown."""
NO_SOURCE = (
    "<div>Kafka is not read: messages land from the built-in log.</div>"
    '<div class="dim">To go on with Kafka: <code>penstock promote</code>, then <code>[pipeline] source</code>.</div>'
)
NO_HANDLER = (
    "<div>Nothing is sent to Kafka.</div>"
    '<div class="dim">A listener sends there with a handler of type <code>kafka</code>.</div>'
)


def build(daemon: Daemon) -> None:
    """The page."""
    with frame("/kafka", daemon):
        with panel("Landed from Kafka", "each offset of a partition has a fate"):
            landed = Html()
        with panel("Sent to Kafka", "by the handlers of listeners"):
            sent = Html()

    def refresh() -> None:
        landed.show(partitions(daemon.balance))
        sent.show(handlers(daemon))

    live(refresh)


def partitions(balance: dict[str, Any]) -> str:
    """A row for each partition: messages, segments of large ones, what was absent."""
    rows = []
    for topic in balance.get("topics", ()):
        if "/" in topic["topic"]:
            fates = topic["fates"]
            whole = sum(n for name, n in fates.items() if name.startswith(("landed.", "quarantined.", "duplicate")))
            gone = sum(n for name, n in fates.items() if name.startswith("gap."))
            numbers = (topic["end"], whole, fates.get("segment", 0), gone, topic["pending"])
            rows.append([escape(topic["topic"]), *map(exact, numbers)])
    heads = ["partition", "end", "messages", "segments of large ones", "absent", "waiting"]
    return table(heads, rows, {1, 2, 3, 4, 5}) if rows else NO_SOURCE


def handlers(daemon: Daemon) -> str:
    """A row for each route to a Kafka handler."""
    rows = []
    for route in daemon.balance.get("routes", ()):
        stat = _stat(daemon, route["source"], route["handler"])
        if stat is None and route["handler"] != HANDLER:
            continue
        prefix = f"route/{route['source']}/{route['handler']}/delivered"
        numbers = (route["delivered"], route["handler_failed"], route["policy_drop"], route["in_buffer"])
        rows.append(
            [
                escape(route["source"]),
                escape(route["handler"]),
                rate(daemon.rate(prefix)),
                *map(exact, numbers),
            ]
        )
    heads = ["listener", "handler", "rate", "delivered", "failed", "dropped", "in the buffer"]
    return table(heads, rows, {2, 3, 4, 5, 6}) if rows else NO_HANDLER


def _stat(daemon: Daemon, listener: str, handler: str) -> dict[str, Any] | None:
    """What a Kafka handler leaves in its listener's statistics; None where it is no Kafka handler."""
    listed = daemon.stat.get("listeners", {}).get(listener, {}).get("handlers", [])
    return next((one for one in listed if one.get("name") == handler and one.get("type") == HANDLER), None)
