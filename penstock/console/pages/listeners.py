"""The listeners page: rates, counts, fragments, and holes in the senders' message numbers."""

from __future__ import annotations

from html import escape
from typing import Any

from nicegui import ui

from penstock.config import Settings
from penstock.console.components.charts import bars, heat
from penstock.console.components.empty_states import first_message_html
from penstock.console.components.findings_list import findings_html
from penstock.console.components.theme import Chart, Html, frame, live, panel, table
from penstock.console.daemon_poll import Daemon
from penstock.console.findings import not_started
from penstock.console.wording import counted, exact, lasted, meaning, rate, size

SIZE_CLASS_COUNTERS = {
    "v0_fragments": ("Fragments received", "index of the fragment"),
    "v0_invalid_checksum": ("Messages with a wrong checksum", "fragments of the message"),
    "v0_invalid_fragments": ("Fragments that contradict their message", "index of the fragment"),
    "dropped_fragments": ("Fragments discarded with their message", "index of the fragment"),
}
PLAIN_COUNTERS = (
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


def build(daemon: Daemon, settings: Settings) -> None:
    """Build the page."""
    with frame("/listeners", daemon):
        with ui.row().style("gap:20px"):
            ui.link("Senders", "/senders")
            ui.link("Hosts", "/hosts")
        # A listener that starts later is on the page when it is opened again.
        names = list(daemon.stat.get("listeners", {}))
        if not names:
            with panel("Listeners", "none has reported yet; open this page again once the first one runs"):
                missing = Html()
                Html().show(first_message_html(settings))
            live(lambda: missing.show(findings_html(not_started(daemon))))
            return
        if daemon.is_empty:
            with panel("Send a first message"):
                Html().show(first_message_html(settings))
        with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
            for name in names:
                ui.tab(name)
        with ui.tab_panels(tabs, value=names[0], animated=False).classes("w-full").style("background:transparent"):
            for name in names:
                with ui.tab_panel(name).style("padding:0;gap:18px"):
                    _build_listener(daemon, name)


def _build_listener(daemon: Daemon, name: str) -> None:
    with panel("Now"):
        now = Html()
    with panel("Counts", "since the ledger was created"):
        counts_html = Html()
    with panel("Holes", "gaps in the senders' message numbers"):
        holes = Html()
    charts = {}
    for key, (title, axis) in SIZE_CLASS_COUNTERS.items():
        with panel(title, "count by size class (1, 2-3, 4-7, ...)"):
            placeholder = ui.label("None.").classes("dim")
            charts[key] = (placeholder, Chart(260), axis)
    with panel("plog's statistics"):
        plain_counters = Html()

    def refresh() -> None:
        stat, counts = daemon.stat.get("listeners", {}).get(name, {}), _counts(daemon, name)
        now.show(_rates_html(daemon, name, stat))
        counts_html.show(_counts_html(counts))
        holes.show(f"<div>{escape(describe_holes(counts))}</div>")
        plain_counters.show(table(["key", "count"], [[key, exact(stat.get(key, 0))] for key in PLAIN_COUNTERS], {1}))
        for key, (placeholder, chart, axis) in charts.items():
            _show_chart(stat.get(key) or [], placeholder, chart, axis)

    live(refresh)


def _counts(daemon: Daemon, name: str) -> dict[str, int]:
    listeners: list[dict[str, Any]] = daemon.balance.get("listeners", [])
    return next((dict(listener["counts"]) for listener in listeners if listener["name"] == name), {})


def _rates_html(daemon: Daemon, name: str, stat: dict[str, Any]) -> str:
    stopped_s = daemon.stopped_s(name)
    banner = f'<div class="finding warn-edge">receiver stopped for {stopped_s:.0f} s</div>' if stopped_s else ""
    for text in daemon.not_started(name):
        banner += f'<div class="finding bad-edge">{escape(text)}</div>'
    for handler, silent_s in daemon.silent_forwarders(name).items():
        banner += f'<div class="finding warn-edge">forwarder to {escape(handler)} silent for {silent_s:.0f} s</div>'
    pairs = (
        (rate(daemon.rate(f"listener/{name}/accepted")), "messages"),
        (rate(daemon.rate(f"listener/{name}/taken", f"listener/{name}/lines")), "datagrams or lines"),
        (rate(daemon.rate(f"listener/{name}/kernel_dropped")), "dropped by the kernel"),
        (size(stat.get("receive_buffer", 0)), "receive buffer"),
        (lasted(stat.get("uptime", 0) / 1000), "up"),
        (exact(stat.get("incarnation", 0)), "times started"),
    )
    return (
        f"{banner}"
        '<div style="display:flex;flex-wrap:wrap;gap:14px 40px">'
        + "".join(f'<div><div class="number">{text}</div><div class="dim">{word}</div></div>' for text, word in pairs)
        + "</div>"
    )


def _counts_html(counts: dict[str, int]) -> str:
    rows = [[escape(name), exact(count), escape(meaning(name))] for name, count in sorted(counts.items())]
    return table(["count", "number", "meaning"], rows, {1}) if rows else '<div class="dim">No counts yet.</div>'


def describe_holes(counts: dict[str, int]) -> str:
    """Return holes and jumps in words."""
    hole, jump = counts.get("hole", 0), counts.get("jump", 0)
    if not hole and not jump:
        return "None: the message numbers of every sender are consecutive."
    parts = []
    if hole:
        parts.append(
            f"{counted(hole, 'message number')} missing: the messages were lost on the network or are still on the way."
        )
    if jump:
        parts.append(
            f"{counted(jump, 'jump')} of more than maximum_hole: a sender restarted or lost many messages at once."
        )
    return " ".join(parts)


def _show_chart(counts: list[Any], placeholder: ui.label, chart: Chart, axis: str) -> None:
    # Counters are one- or two-dimensional; a chart without a count is hidden, its library never loaded.
    flat = [count for row in counts for count in (row if isinstance(row, list) else [row])]
    placeholder.set_visibility(not any(flat))
    chart.set_visibility(any(flat))
    if any(flat):
        two = isinstance(counts[0], list)
        chart.show(heat(counts, axis, "fragments of the message") if two else bars(counts, axis))
