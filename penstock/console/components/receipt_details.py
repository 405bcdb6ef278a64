"""HTML of the receipt panel: the verdict, the terms of the sum, and the details of one term.

Functions here take a receipt and answers of the daemon; ``pages/receipt`` requests them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from penstock.console.components.theme import table
from penstock.console.findings import remedy
from penstock.console.wording import clock, exact, meaning
from penstock.counts import EXPIRED_READ, GAP_DELETED, Name
from penstock.ledger.receipt import PARTS, Receipt, count_of, receipt
from penstock.ledger.receipt_words import share, verdict
from penstock.upkeep.quarantine.send_back import Row

MAX_MINUTES = 3
MAX_SAMPLE_CHARS = 160
PART_MEANINGS = {
    "landed": "rows of the tables",
    "quarantined": "messages that look like events but are invalid: rows of the table quarantine, stored unchanged",
    "sent_back": "messages that were sent back from quarantine: resolved, and counted again as what they became",
    "duplicate": "events whose uuid has already landed; the table has one of each",
    "deleted": "landed rows that were deleted from the table, by request or by retention",
    "dropped": "messages that pipeline.transform dropped; the table records their offsets",
    "kept": "messages of topics that no pipeline reads: they stay in the log until retention drops them",
    "handed_on": "messages of listeners that send to other handlers than the log",
    "expired": "messages that retention dropped from the log after all readers, if there were any, had read them",
    "lost": "messages that no table, topic or handler has",
    "unaccounted": "messages that the ledger cannot explain: penstock balance --rebuild recomputes it from the files",
    "on_the_way": "messages in log buffers, in topics but not landed yet, or waiting for missing fragments",
}
SEND_BACK = (
    '<div class="dim">Correct the sender, or <a href="/quarantine">inspect the messages by shape</a>, correct them and '
    "send them again; or use <code>penstock pipeline quarantine</code>.</div>"
)
NO_SAMPLES = '<div class="dim">No samples: lost messages are stored nowhere, and their senders are unknown.</div>'


def verdict_html(receipt: Receipt) -> str:
    """Return the verdict, with its number of lost messages, and the total."""
    is_bad = receipt.parts["unaccounted"] or receipt.not_started or receipt.unreadable
    kind = "bad" if is_bad else "warn" if receipt.lost else "good"
    return (
        f'<div class="verdict {kind}">{escape(verdict(receipt))}</div>'
        f'<div class="sum"><span class="number">{exact(receipt.sent)}</span> sent =</div>'
    )


def chip(part: str, count: int, total: int) -> str:
    """Return one term of the sum."""
    text = f"{share(count, total)} <small>{exact(count)}</small>" if part != "on_the_way" else exact(count)
    return f"<i></i>{PARTS[part]} <b>{text}</b>"


def detail(part: str, receipt: Receipt, balance: Mapping[str, Any], series: Mapping[str, Any]) -> str:
    """Return the meaning of a part, the place of its messages and the remedy."""
    meaning_html = f'<div class="dim">{PARTS[part].capitalize()}: {escape(PART_MEANINGS[part])}.</div>'
    if part == "lost":
        return meaning_html + _lost_detail(receipt, series)
    if part == "quarantined":
        return meaning_html + _quarantined_detail(receipt) + SEND_BACK
    # Origins without messages are left out: a deployment may have a thousand topics.
    cells = [[escape(origin), exact(count)] for origin, count in _messages_by_origin(part, balance) if count]
    return meaning_html + (table(["where", "messages"], cells, {1}) if cells else "")


def _lost_detail(receipt: Receipt, series: Mapping[str, Any]) -> str:
    losses = [(count, name, origin) for origin, counts in receipt.losses.items() for name, count in counts.items()]
    blocks = (
        f'<div class="finding bad-edge"><div><b>{exact(count)}</b> lost: {escape(meaning(name))}</div>'
        f'<div class="dim">{escape(origin)}; {escape(worst_minutes(count_of(name), series))}</div>'
        f'<div class="dim">{escape(remedy(name, origin))}</div></div>'
        for count, name, origin in sorted(losses, reverse=True)
    )
    return "".join(blocks) + NO_SAMPLES if losses else '<div class="dim">No messages.</div>'


def _quarantined_detail(receipt: Receipt) -> str:
    cells = [
        [
            f'<a href="/quarantine?{urlencode({"reason": name.partition(".")[2], "topic": topic})}">'
            f"{escape(name.partition('.')[2].replace('_', ' '))}</a>",
            escape(topic),
            exact(count),
        ]
        for topic, counts in receipt.quarantined.items()
        for name, count in counts.most_common()
    ]
    return table(["reason", "topic", "messages"], cells, {2})


def worst_minutes(name: str, series: Mapping[str, Any]) -> str:
    """Return the minutes of the last day with the most losses for a reason: ``01:15 (2,718)``."""
    lost_by_minute = Counter({interval["bucket"]: interval["counts"].get(name, 0) for interval in series["series"]})
    worst = sorted((bucket, count) for bucket, count in lost_by_minute.most_common(MAX_MINUTES) if count)
    more = sum(1 for count in lost_by_minute.values() if count) - len(worst)
    text = ", ".join(f"{clock(bucket)} ({exact(count)})" for bucket, count in worst) or "more than a day ago"
    return f"{text}, and {more} more" if more > 0 else text


def _messages_by_origin(part: str, balance: Mapping[str, Any]) -> list[tuple[str, int]]:
    topics, routes = balance["topics"], balance["routes"]
    if part == "landed":
        names = {"landed.event": "events", "landed.syslog": "syslog", "landed.message": "messages"}
        return [
            (f"{topic['topic']}: {word}", topic["fates"].get(fate, 0))
            for topic in topics
            for fate, word in names.items()
        ]
    if part == "on_the_way":
        buffers = [(f"log buffer of {route['source']}, for {route['handler']}", route["in_buffer"]) for route in routes]
        # While the first pipeline starts, or fails, the rows of the log wait for it.
        awaits_pipeline = not receipt(balance).parts["kept"]
        terms = {topic["topic"]: "pending" if topic["read_by_pipeline"] else "logged" for topic in topics}
        waiting = {name: term if awaits_pipeline else "pending" for name, term in terms.items()}
        return [*buffers, *((f"topic {topic['topic']}", topic[waiting[topic["topic"]]]) for topic in topics)]
    if part == "handed_on":
        return [
            (f"{route['source']} to {route['handler']}", route["delivered"])
            for route in routes
            if route["handler"] != "log"
        ]
    if part == "kept":
        return [(topic["topic"], topic["logged"]) for topic in topics if not topic["read_by_pipeline"]]
    if part == "unaccounted":
        return [(f"topic {topic['topic']}", topic["unaccounted"]) for topic in topics]
    # The fates of a topic that a part sums up; a part that is not listed is a fate itself.
    if part == "sent_back":
        return [(topic, sum(counts.values())) for topic, counts in balance.get("sent_back", {}).items()]
    prefixes = {"expired": (EXPIRED_READ,), "dropped": (Name.DROPPED,), "deleted": (Name.DELETED, GAP_DELETED)}
    prefix = prefixes.get(part, (part,))
    return [
        (topic["topic"], sum(count for name, count in topic["fates"].items() if name.startswith(prefix)))
        for topic in topics
    ]


def samples(rows: list[Row]) -> str:
    """Return a table of some rows in quarantine."""
    cells = [
        [
            f"{row.timestamp.astimezone():%H:%M:%S}",
            escape(f"{row.topic}:{row.offset}"),
            f"<code>{_sample_text(row)}</code>",
        ]
        for row in rows
    ]
    return table(["received", "where", "newest messages"], cells, stack=True) if cells else ""


def _sample_text(row: Row) -> str:
    preview = row.payload[: 2 * MAX_SAMPLE_CHARS].decode(errors="replace")
    return escape(preview if len(preview) <= MAX_SAMPLE_CHARS else f"{preview[:MAX_SAMPLE_CHARS]}...")
