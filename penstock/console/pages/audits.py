"""The audits page: verdicts of the audits on this machine, findings by partition and hour, and earlier verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from nicegui import ui

from penstock.audit.reports.check_history import CAUTION, NO_VERSION, read_histories
from penstock.config import Settings
from penstock.console.components.theme import Html, frame, long_text, panel, table
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.pages.alarms import time_words
from penstock.console.wording import exact, lasted

REFRESH_INTERVAL_S = 3.0
SHOWN_CHECKS = 100
LEVELS = {0: "good", 1: "bad", 2: "warn"}
KINDS = {
    "missing": "missing",
    "doubled": "doubled",
    "unexplained": "without a committed record",
    "differing": "other content",
}
NO_AUDIT = (
    "<div>No audit has recorded a check here.</div>"
    '<div class="dim">To compare a topic with a table every five minutes: '
    "<code>penstock audit kafka://broker:9092/orders s3://lake/orders --every 5m --config penstock.toml</code></div>"
)


def build(daemon: Daemon, settings: Settings) -> None:
    """Build the page."""
    with frame("/audits", daemon):
        with panel("Verdicts", "the worst first; times are UTC"):
            verdicts = Html()
            verdicts.show('<div class="dim" role="status">Reading...</div>')
        with panel("Findings", "by partition, and by hour of the record's time"):
            findings = Html()
        with panel("History", f"the last {SHOWN_CHECKS} checks, newest first"):
            history = Html()

    async def refresh() -> None:
        try:
            readable = await daemon.readable_topics()
        except DaemonUnavailable as error:
            verdicts.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
            return
        audits = await asyncio.to_thread(read_histories, settings.audits)
        audits = [audit for audit in audits if readable is None or audit["topic"] in readable]
        verdicts.show(verdicts_html(audits))
        findings.show(findings_html(audits))
        history.show(history_html(audits))

    ui.timer(REFRESH_INTERVAL_S, refresh)


def verdicts_html(audits: Sequence[Mapping[str, Any]]) -> str:
    """Return a row per audit, with its verdict first."""
    rows = [
        [
            _stacked(
                [
                    f'<b class="{LEVELS[audit["status"]]}">{long_text(audit["verdict"])}</b>',
                    *(f'<span class="warn">{long_text(text)}</span>' for text in audit["warnings"]),
                ]
            ),
            long_text(audit["source"]),
            long_text(_table_words(audit)),
            f'<span class="nw">{time_words(audit["at_s"])}</span>',
            lasted(audit["every_s"]) if audit["every_s"] else "once",
        ]
        for audit in audits
    ]
    return table(["verdict", "source", "table", "checked", "every"], rows, stack=True) if rows else NO_AUDIT


def _table_words(audit: Mapping[str, Any]) -> str:
    version = f", version {audit['version']}" if audit.get("version") else ""
    return f"{audit['table']} ({audit['kind']}{version}), {audit['proof']}" if "kind" in audit else str(audit["table"])


def findings_html(audits: Iterable[Mapping[str, Any]]) -> str:
    """Return a row per partition with findings, and one per hour of an audit by counts."""
    rows = [
        [
            long_text(audit["topic"]),
            str(part["partition"]),
            f'<span class="nw">{exact(part["begin"])} to {exact(part["due"])}</span>',
            exact(part["rows"]),
            _stacked(
                [
                    *(_kind_html(part, kind) for kind in KINDS if part[kind]["offsets"]),
                    *([_undecided_html(part)] if part["undecided"] else []),
                ]
            ),
            _stacked(_hour_html(hour_s, count) for hour_s, count in part["missing_by_hour"]),
            _stacked(map(long_text, _causes(part))),
        ]
        for audit in audits
        for part in audit["partitions"]
        if part["undecided"] or any(part[kind]["offsets"] for kind in KINDS)
    ]
    heads = ["topic", "partition", "must be there", "rows", "offsets", "missing by hour", "commits and files"]
    by_hour = [
        [long_text(audit["topic"]), f'<span class="nw">{time_words(hour_s)[:16]}</span>', exact(records), exact(count)]
        for audit in audits
        for hour_s, records, count in audit["hours"]
    ]
    tables = [table(heads, rows, {1, 3}, stack=True)] if rows else []
    tables += [table(["topic", "hour", "records", "rows"], by_hour, {2, 3}, stack=True)] if by_hour else []
    return "".join(tables) or '<div class="dim">No finding.</div>'


def _hour_html(hour_s: int, count: int) -> str:
    return f'<span class="nw">{time_words(hour_s)[:16]}: {exact(count)}</span>'


def _kind_html(part: Mapping[str, Any], kind: str) -> str:
    offsets = part[kind]
    spans = [str(begin) if end == begin + 1 else f"{begin} to {end - 1}" for begin, end in offsets["first"]]
    more = offsets["ranges"] - len(spans)
    words = ", ".join(spans) + (f" and {exact(more)} more ranges" if more else "")
    return f'<span class="bad">{exact(offsets["offsets"])} {KINDS[kind]}</span>: {long_text(words)}'


def _undecided_html(part: Mapping[str, Any]) -> str:
    return f'<span class="warn">{exact(part["undecided"])} cannot be decided</span>'


def _causes(part: Mapping[str, Any]) -> Iterable[str]:
    yield from (f"lost by {commit}" for commit in part["lost_by"])
    yield from (f"doubled in {file}" + f", added by {commit}" * bool(commit) for file, commit in part["doubled_in"])
    yield from (f"{exact(rows)} also in {file}, {NO_VERSION}" for file, rows in part["orphans"])
    if part["orphans"]:
        yield CAUTION


def history_html(audits: Iterable[Mapping[str, Any]]) -> str:
    """Return a row per check."""
    checks = sorted((check for audit in audits for check in audit["checks"]), key=lambda check: -check["at_s"])
    rows = [
        [
            f'<span class="nw">{time_words(check["at_s"])}</span>',
            f'<span class="{LEVELS[check["status"]]}">{long_text(check["verdict"])}</span>',
        ]
        for check in checks[:SHOWN_CHECKS]
    ]
    return table(["time", "verdict"], rows, stack=True) if rows else '<div class="dim">No check yet.</div>'


def _stacked(parts: Iterable[str]) -> str:
    """Return HTML parts below each other in one cell; "" for none, so that a phone leaves the cell out."""
    divisions = "".join(f"<div>{part}</div>" for part in parts)
    return f"<div>{divisions}</div>" if divisions else ""
