"""The receipt in words: the same ones on the page and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.counts import Counts
from penstock.ledger.receipt import PARTS, Receipt

MOST_REASONS = 3
WORDS = {
    "kernel_dropped": "dropped by the kernel",
    "bad_checksum": "with a bad checksum",
    "corrupt": "corrupt in a log buffer",
    "line.overlong": "overlong",
    "line.evicted": "unfinished and evicted",
    "gap.expired_unread": "expired unread",
    "gap.deleted": "deleted unread",
    "gap.corrupt": "corrupt in the log",
    "gap.absent": "absent in Kafka",
}
BAR = {"landed": "█", "quarantined": "▓", "lost": "x", "unaccounted": "!", "on_the_way": "░"}
"""A sign for each part of a bar of text; the others have that of ``landed``."""


def reason(name: str) -> str:
    """A loss in a word or two, after its number: ``invalid header``."""
    if name in WORDS:
        return WORDS[name]
    stem, _, rest = name.partition(".")
    if stem == "policy_drop":
        return f"too fast for handler {rest}"
    if stem == "handler_failed":
        return f"failed in handler {rest}"
    return f"{stem} {rest}".replace("_", " ").strip()


def reasons(counts: Mapping[str, int], most: int = MOST_REASONS) -> str:
    """Losses by reason, most first: ``3,200 invalid header, 2,718 dropped by the kernel``."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    shown = [f"{n:,} {reason(name)}" for name, n in ordered[:most]]
    rest = sum(n for _, n in ordered[most:])
    return ", ".join([*shown, f"{rest:,} for other reasons"] if rest else shown)


def verdict(told: Receipt) -> str:
    """What matters most."""
    if wrong := told.parts["unaccounted"]:
        return f"{wrong:,} messages are unaccounted for"
    if not told.sent:
        return "No message has come yet"
    lost = f"{told.lost:,} {'is' if told.lost == 1 else 'are'} lost" if told.lost else "none is lost"
    return f"Every message is accounted for; {lost}"


def sentence(told: Receipt) -> str:
    """``1,800,000 sent = landed 98.1 % + quarantined 1.5 % + lost 0.4 % + on the way 12``."""
    shown = told.shown()
    way = f"on the way {shown.pop('on_the_way'):,}"
    terms = [f"{PARTS[name]} {share(n, told.sent)}" for name, n in shown.items()]
    return f"{told.sent:,} sent = {' + '.join([*terms, way])}"


def share(part: int, whole: int) -> str:
    """``98.1 %``; what is there is never 0 %, and what lacks something never 100 %."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    return f"{min(percent, 99.9):.1f} %"


def bar(told: Receipt, width: int) -> str:
    """The parts as so many characters in proportion; one for the smallest at least."""
    whole = {name: n for name, n in told.parts.items() if n > 0}
    if not whole:
        return "·" * width
    room = width - len(whole)
    total = sum(whole.values())
    cells = {name: 1 + room * n // total for name, n in whole.items()}
    cells[max(whole, key=lambda name: whole[name])] += width - sum(cells.values())
    return "".join(BAR.get(name, BAR["landed"]) * n for name, n in cells.items())


def unknown(told: Receipt) -> str:
    """What is not known of what was sent."""
    parts = []
    if told.network:
        gone = Counts({name: n for name, n in told.network.items() if n})
        lost = ", ".join(f"{n:,} of {name}" for name, n in gone.items()) or "none"
        parts.append(f"the network lost {lost}, by the senders' reports")
    if told.unreported:
        parts.append(f"not known: what senders of {', '.join(told.unreported)} sent (they do not report)")
    return "; ".join(parts)
