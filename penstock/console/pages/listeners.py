"""Listeners: statistics, fragments and losses, holes in words."""

from __future__ import annotations

from html import escape
from typing import Any

from nicegui import ui

from penstock.console.charts import bars, heat
from penstock.console.daemon_poll import Daemon
from penstock.console.theme import Chart, Html, frame, live, panel, table
from penstock.console.wording import exact, lasted, meaning, rate, size

ARRAYS = {
    "v0_fragments": ("Fragments received", "index of the fragment"),
    "v0_invalid_checksum": ("Messages whose checksum did not hold", "fragments of the message"),
    "v0_invalid_fragments": ("Fragments that did not fit their message", "index of the fragment"),
    "dropped_fragments": ("Fragments given up with their message", "index of the fragment"),
}
PLAIN = (
    "udp_simple_messages",
    "udp_invalid_version",
    "v0_invalid_type",
    "v0_invalid_multipart_header",
    "unknown_command",
    "v0_commands",
    "exceptions",
    "unhandled_objects",
    "holes_from_dead_port",
    "holes_from_new_message",
)


def build(daemon: Daemon) -> None:
    """The page."""
    with frame("/listeners", daemon):
        names = list(daemon.stat.get("listeners", {}))
        if not names:
            ui.label("No listener has said anything yet.").classes("dim")
            return
        with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
            for name in names:
                ui.tab(name)
        with ui.tab_panels(tabs, value=names[0], animated=False).classes("w-full").style("background:transparent"):
            for name in names:
                with ui.tab_panel(name).style("padding:0;gap:18px"):
                    _listener(daemon, name)


def _listener(daemon: Daemon, name: str) -> None:
    with panel("Now"):
        now = Html()
    with panel("Its counts", "since its books were opened"):
        books = Html()
    with panel("Holes", "what the senders' message numbers say"):
        holes = Html()
    charts = {}
    for key, (title, axis) in ARRAYS.items():
        with panel(title, "number per power of two"):
            none = ui.label("None.").classes("dim")
            charts[key] = (none, Chart(260), axis)
    with panel("plog's statistics"):
        plain = Html()

    def refresh() -> None:
        stat, counts = daemon.stat.get("listeners", {}).get(name, {}), _counts(daemon, name)
        now.show(_now(daemon, name, stat))
        books.show(_books(counts))
        holes.show(f"<div>{escape(explained(counts))}</div>")
        plain.show(table(["key", "count"], [[key, exact(stat.get(key, 0))] for key in PLAIN], {1}))
        for key, (none, chart, axis) in charts.items():
            _draw(stat.get(key) or [], none, chart, axis)

    live(refresh)


def _counts(daemon: Daemon, name: str) -> dict[str, int]:
    listeners: list[dict[str, Any]] = daemon.balance.get("listeners", [])
    return next((dict(one["counts"]) for one in listeners if one["name"] == name), {})


def _now(daemon: Daemon, name: str, stat: dict[str, Any]) -> str:
    pairs = (
        (rate(daemon.rate(f"listener/{name}/accepted")), "messages"),
        (rate(daemon.rate(f"listener/{name}/taken", f"listener/{name}/lines")), "datagrams or lines"),
        (rate(daemon.rate(f"listener/{name}/kernel_dropped")), "dropped by the kernel"),
        (size(stat.get("receive_buffer", 0)), "receive buffer"),
        (lasted(stat.get("uptime", 0) / 1000), "up"),
        (exact(stat.get("incarnation", 0)), "times started"),
    )
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:14px 40px">'
        + "".join(f'<div><div class="number">{value}</div><div class="dim">{word}</div></div>' for value, word in pairs)
        + "</div>"
    )


def _books(counts: dict[str, int]) -> str:
    rows = [[escape(name), exact(count), escape(meaning(name))] for name, count in sorted(counts.items())]
    return table(["count", "number", "meaning"], rows, {1}) if rows else '<div class="dim">Nothing yet.</div>'


def explained(counts: dict[str, int]) -> str:
    """Holes and jumps in words."""
    hole, jump = counts.get("hole", 0), counts.get("jump", 0)
    if not hole and not jump:
        return "None: every sender's numbers follow each other."
    parts = []
    if hole:
        parts.append(
            f"{exact(hole)} message numbers are missing between ones that came: so many messages were lost on the way, "
            "or are still under way."
        )
    if jump:
        parts.append(
            f"{exact(jump)} times a sender's numbers leapt further than maximum_hole: it was started again, "
            "or lost very much at once."
        )
    return " ".join(parts)


def _draw(counts: list[Any], none: ui.label, chart: Chart, axis: str) -> None:
    flat = [n for row in counts for n in (row if isinstance(row, list) else [row])]
    none.set_visibility(not any(flat))
    chart.set_visibility(any(flat))
    if any(flat):
        two = isinstance(counts[0], list)
        chart.show(heat(counts, axis, "fragments of the message") if two else bars(counts, axis))
