"""The receipt in words, shared by console and terminal."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.counts import Counts, Name
from penstock.ledger.receipt import PARTS, Receipt

MAX_REASONS = 3
WORDS = {
    "kernel_dropped": "dropped by the kernel",
    "disk_full": "not stored because the disk was full",
    "log_full": "not stored because the log was full",
    "bad_checksum": "with a bad checksum",
    "corrupt": "corrupt in a log buffer",
    "line.overlong": "overlong",
    "line.evicted": "unfinished and evicted",
    "gap.expired_unread": "expired unread",
    "gap.corrupt": "corrupt in the log",
    "gap.absent": "not readable as stored",
    "gap.expired_before": "expired before the first batch",
    "not_a_message.control": "control records",
    "not_a_message.aborted": "of aborted transactions",
}
BAR = {"landed": "█", "quarantined": "▓", "lost": "x", "unaccounted": "!", "on_the_way": "░"}
"""Character for each part of a text bar; other parts use that of ``landed``."""


def reason(name: str) -> str:
    """Return a loss in a few words that follow its number, for example ``invalid header``."""
    if name in WORDS:
        return WORDS[name]
    stem, _, detail = name.partition(".")
    if stem == "policy_drop":
        return f"too fast for handler {detail}"
    if stem == "handler_failed":
        return f"failed in handler {detail}"
    if stem == "contract":
        # The names of table and column are the user's, as in the configuration.
        return f"{stem} {detail}"
    return f"{stem} {detail}".replace("_", " ").strip()


def reasons(counts: Mapping[str, int], limit: int = MAX_REASONS, skipped_bytes: int = 0) -> str:
    """Return losses by reason, largest first: ``3,200 invalid header, 1 overlong (9,100,000 bytes)``."""
    ordered = sorted(counts.items(), key=lambda loss: (-loss[1], loss[0]))
    sizes: dict[str, str] = {Name.LINE_OVERLONG: f" ({skipped_bytes:,} bytes)"} if skipped_bytes else {}
    named = [f"{count:,} {reason(name)}{sizes.get(name, '')}" for name, count in ordered[:limit]]
    unnamed = sum(count for _, count in ordered[limit:])
    return ", ".join([*named, f"{unnamed:,} for other reasons"] if unnamed else named)


def verdict(receipt: Receipt) -> str:
    """Return the most important fact of a receipt: an open balance, then losses, refusals, and what cannot start."""
    unaccounted = receipt.parts["unaccounted"]
    if unaccounted:
        return f"{unaccounted:,} {_plural('message', unaccounted)} unaccounted for"
    refused = receipt.refused_requests
    also = f"; {refused:,} {_plural('request', refused)} refused" if refused else ""
    if names := receipt.not_started:
        also += f"; {names[0] if len(names) == 1 else f'{len(names):,} processes'} cannot start"
    if receipt.unreadable:
        also += f"; {receipt.unreadable:,} {_plural('file', receipt.unreadable)} of the tables cannot be read"
    if not receipt.sent:
        return f"No message has arrived yet{also}"
    if receipt.lost:
        return f"{receipt.lost:,} {_plural('message', receipt.lost)} lost of {receipt.sent:,}, all explained{also}"
    return f"No message lost of {receipt.sent:,}{also}"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def sentence(receipt: Receipt) -> str:
    """Return the sum: ``1,800,000 sent = landed 98.1 % + quarantined 1.5 % + lost 0.4 % + on the way 12``."""
    parts = receipt.visible_parts()
    on_the_way = f"on the way {parts.pop('on_the_way'):,}"
    terms = [f"{PARTS[name]} {share(count, receipt.sent)}" for name, count in parts.items()]
    return f"{receipt.sent:,} sent = {' + '.join([*terms, on_the_way])}"


def share(part: int, total: int) -> str:
    """Return a percentage that never rounds a small part to 0 % or an incomplete whole to 100 %: ``98.1 %``."""
    if part in (0, total):
        return "100 %" if part else "0 %"
    percent = 100 * part / total
    if percent < 0.1:
        return "<0.1 %"
    return f"{min(percent, 99.9):.1f} %"


def bar(receipt: Receipt, width: int) -> str:
    """Return the parts as ``width`` characters in proportion, at least one for each part."""
    parts = {name: count for name, count in receipt.parts.items() if count > 0}
    if not parts:
        return "·" * width
    free_cells = width - len(parts)
    total = sum(parts.values())
    cells = {name: 1 + free_cells * count // total for name, count in parts.items()}
    cells[max(parts, key=lambda name: parts[name])] += width - sum(cells.values())
    return "".join(BAR.get(name, BAR["landed"]) * count for name, count in cells.items())


def remarks(receipt: Receipt) -> str:
    """Return sentences for what the sum does not show, if any: Kafka's offsets without a message, unknown counts."""
    sentences = []
    if receipt.without_message:
        count = receipt.without_message.total()
        sentences.append(f"{count:,} offsets of Kafka hold no message: {reasons(receipt.without_message, limit=5)}")
    if receipt.network:
        by_listener = Counts({name: count for name, count in receipt.network.items() if count})
        lost = ", ".join(f"{count:,} of {name}" for name, count in by_listener.items()) or "none"
        sentences.append(f"the network lost {lost}, by the senders' reports")
    if receipt.unreported:
        sentences.append(f"not known: what senders of {', '.join(receipt.unreported)} sent (they do not report)")
    return "; ".join(sentences)
