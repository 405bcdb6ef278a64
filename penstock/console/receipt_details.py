"""What the receipt's panel shows, as HTML: the verdict, the terms of the sum, and what is behind one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from penstock.console.cures import cure
from penstock.console.theme import table
from penstock.console.wording import clock, exact, meaning
from penstock.counts import EXPIRED_READ, GAP_DELETED, Name
from penstock.ledger.receipt import PARTS, Receipt
from penstock.ledger.receipt_words import share, verdict
from penstock.upkeep.quarantine.send_back import Row

MOST_MINUTES = 3
LONGEST_SAMPLE = 160
MEANS = {
    "landed": "rows of the tables",
    "quarantined": "they look like events and are none: rows of the table quarantine, kept as they came",
    "duplicate": "events whose uuid had landed already; one of each is in the table",
    "deleted": "rows that had landed, and were taken out of the table: by request, or as their retention says",
    "dropped": "what pipeline.transform dropped; the table says of which offsets",
    "kept": "in topics that no pipeline reads: they stay in the log as long as retention keeps them",
    "handed_on": "of listeners whose messages go to other handlers than the log",
    "expired": "dropped from the log by retention, after all its readers had read them",
    "lost": "gone: no table, topic or handler has them",
    "unaccounted": "the books do not close: penstock balance --rebuild computes them from the files alone",
    "on_the_way": "in log buffers, in topics and not landed yet, or waiting for the rest of their fragments",
}
SEND_BACK = (
    '<div class="dim">Correct the sender, or <a href="/quarantine">see the messages by shape</a>, correct them and '
    "send them again; or use <code>penstock pipeline quarantine</code>.</div>"
)
NO_SAMPLES = '<div class="dim">There are no samples: what is lost is nowhere, not even its sender is known.</div>'


def head(told: Receipt) -> str:
    """The verdict, with the number of lost in it."""
    kind = "bad" if told.parts["unaccounted"] else "warn" if told.lost else "good"
    return (
        f'<div class="verdict {kind}">{escape(verdict(told))}</div>'
        f'<div class="sum"><span class="number">{exact(told.sent)}</span> sent =</div>'
    )


def chip(part: str, n: int, whole: int) -> str:
    """A term of the sum."""
    told = f"{share(n, whole)} <small>{exact(n)}</small>" if part != "on_the_way" else exact(n)
    return f"<i></i>{PARTS[part]} <b>{told}</b>"


def detail(part: str, told: Receipt, balance: Mapping[str, Any], series: Mapping[str, Any]) -> str:
    """What a part is, where it is, and what can be done about it."""
    what = f'<div class="dim">{PARTS[part].capitalize()}: {escape(MEANS[part])}.</div>'
    if part == "lost":
        return what + _lost(told, series)
    if part == "quarantined":
        return what + _quarantined(told) + SEND_BACK
    cells = [[escape(where), exact(n)] for where, n in _places(part, balance) if n]
    return what + (table(["where", "messages"], cells, {1}) if cells else "")


def _lost(told: Receipt, series: Mapping[str, Any]) -> str:
    found = [(n, name, place) for place, counts in told.losses.items() for name, n in counts.items()]
    blocks = (
        f'<div class="finding bad-edge"><div><b>{exact(n)}</b> {escape(meaning(name))}</div>'
        f'<div class="dim">{escape(place)}; {escape(minutes(name, series))}</div>'
        f'<div class="dim">{escape(cure(name, place))}</div></div>'
        for n, name, place in sorted(found, reverse=True)
    )
    return "".join(blocks) + NO_SAMPLES if found else '<div class="dim">Nothing.</div>'


def _quarantined(told: Receipt) -> str:
    cells = [
        [
            f'<a href="/quarantine?{urlencode({"reason": name.partition(".")[2], "topic": topic})}">'
            f"{escape(name.partition('.')[2].replace('_', ' '))}</a>",
            escape(topic),
            exact(n),
        ]
        for topic, counts in told.quarantined.items()
        for name, n in counts.most_common()
    ]
    return table(["reason", "topic", "messages"], cells, {2})


def minutes(name: str, series: Mapping[str, Any]) -> str:
    """The minutes of the last day in which most was lost for a reason: ``01:15 (2,718)``."""
    found = Counter({one["bucket"]: one["counts"].get(name, 0) for one in series["series"]})
    worst = sorted((bucket, n) for bucket, n in found.most_common(MOST_MINUTES) if n)
    more = sum(1 for n in found.values() if n) - len(worst)
    said = ", ".join(f"{clock(bucket)} ({exact(n)})" for bucket, n in worst) or "more than a day ago"
    return f"{said}, and {more} more" if more > 0 else said


def _places(part: str, balance: Mapping[str, Any]) -> list[tuple[str, int]]:
    topics, routes = balance["topics"], balance["routes"]
    if part == "landed":
        names = {"landed.event": "events", "landed.syslog": "syslog", "landed.message": "messages"}
        return [(f"{t['topic']}: {word}", t["fates"].get(fate, 0)) for t in topics for fate, word in names.items()]
    if part == "on_the_way":
        buffers = [(f"log buffer of {r['source']}, for {r['handler']}", r["in_buffer"]) for r in routes]
        return [*buffers, *((f"topic {t['topic']}", t["pending"]) for t in topics)]
    if part == "handed_on":
        return [(f"{r['source']} to {r['handler']}", r["delivered"]) for r in routes if r["handler"] != "log"]
    if part == "kept":
        return [(t["topic"], t["logged"]) for t in topics if not t["read_by_pipeline"]]
    if part == "unaccounted":
        return [(f"topic {t['topic']}", t["unaccounted"]) for t in topics]
    prefixes = {"expired": (EXPIRED_READ,), "dropped": (Name.DROPPED,), "deleted": (Name.DELETED, GAP_DELETED)}
    prefix = prefixes.get(part, (part,))
    return [(t["topic"], sum(n for name, n in t["fates"].items() if name.startswith(prefix))) for t in topics]


def samples(found: list[Row]) -> str:
    """Some rows in quarantine."""
    cells = [
        [f"{row.timestamp.astimezone():%H:%M:%S}", escape(f"{row.topic}:{row.offset}"), f"<code>{_text(row)}</code>"]
        for row in found
    ]
    return table(["received", "where", "the newest of them"], cells, stack=True) if cells else ""


def _text(row: Row) -> str:
    text = row.payload[: 2 * LONGEST_SAMPLE].decode(errors="replace")
    return escape(text if len(text) <= LONGEST_SAMPLE else f"{text[:LONGEST_SAMPLE]}...")
