"""The Kafka page: partitions that land, and handlers that deliver to Kafka."""

from __future__ import annotations

from html import escape
from typing import Any

from penstock.console.components.theme import Html, frame, live, panel, table
from penstock.console.daemon_poll import Daemon
from penstock.console.wording import exact, rate
from penstock.counts import WITHOUT_MESSAGE
from penstock.qualified_names import is_partition

HANDLER = "kafka"
NO_SOURCE = (
    "<div>Kafka is not read: messages land from the built-in log.</div>"
    '<div class="dim">To switch to Kafka: <code>penstock promote</code>, then <code>[pipeline] source</code>.</div>'
)
NO_HANDLER = (
    "<div>Nothing is sent to Kafka.</div>"
    '<div class="dim">A listener sends there with a handler of type <code>kafka</code>.</div>'
)


def build(daemon: Daemon) -> None:
    """Build the page."""
    with frame("/kafka", daemon):
        with panel("Landed from Kafka", "what became of each offset"):
            landed = Html()
        with panel("Sent to Kafka", "by the handlers of listeners"):
            sent = Html()

    def refresh() -> None:
        landed.show(partitions(daemon.balance))
        sent.show(handlers(daemon))

    live(refresh)


def partitions(balance: dict[str, Any]) -> str:
    """Return a row per partition: messages, chunks of large ones, offsets without a message."""
    rows = []
    for topic in balance.get("topics", ()):
        if is_partition(topic["topic"]):
            fates = topic["fates"]
            landed = sum(
                count for name, count in fates.items() if name.startswith(("landed.", "quarantined.", "duplicate"))
            )
            absent = sum(count for name, count in fates.items() if name.startswith(("gap.", *WITHOUT_MESSAGE)))
            numbers = (topic["end"], landed, fates.get("segment", 0), absent, topic["pending"])
            rows.append([escape(topic["topic"]), *map(exact, numbers)])
    heads = ["partition", "end", "messages", "chunks of large ones", "no message", "waiting"]
    return table(heads, rows, {1, 2, 3, 4, 5}) if rows else NO_SOURCE


def handlers(daemon: Daemon) -> str:
    """Return a row per route to a Kafka handler."""
    rows = []
    for route in daemon.balance.get("routes", ()):
        handler_stat = _handler_stat(daemon, route["source"], route["handler"])
        # A handler of type kafka may have any name; its type is in the statistics of its listener only.
        if handler_stat is None and route["handler"] != HANDLER:
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


def _handler_stat(daemon: Daemon, listener: str, handler: str) -> dict[str, Any] | None:
    """Return the statistics of a Kafka handler of a listener; None if it is not a Kafka handler."""
    listed_handlers = daemon.stat.get("listeners", {}).get(listener, {}).get("handlers", [])
    return next(
        (
            candidate
            for candidate in listed_handlers
            if candidate.get("name") == handler and candidate.get("type") == HANDLER
        ),
        None,
    )
