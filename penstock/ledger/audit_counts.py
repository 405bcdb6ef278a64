"""Counts that auditors of Kafka clients reported: shown next to the balance, never a term of it.

A client counts on its own side, by the times of its messages. Its counts differ from the log's by what is in flight or
was lost before the client could report.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.counts import Counts
from penstock.ledger.balance import Within, inside
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.book.daily_rollup import rolled_key, widened


@dataclass(frozen=True, slots=True)
class Audited:
    """The counts of one source and topic in a tier, summed over all incarnations of the source.

    Names are ``attempt``, ``success`` and ``failure`` (messages), ``attempt_bytes`` and so on; for large messages that
    a consumer could not assemble ``evicted``, ``expired`` and ``refused.REASON``; and ``skipped``.
    """

    tier: str
    source: str
    topic: str
    counts: dict[str, int]


def audited(pages: BookPages, within: Within = None) -> list[Audited]:
    """Return the counts by tier, source and topic, limited to the buckets ``within`` if given."""
    within = widened(within, pages.rolled)
    totals: dict[tuple[str, str, str], Counts] = {}
    for (tier, source, _), audit in pages.audits.items():
        for (topic, minute), (_, counts) in audit.items():
            if inside(rolled_key((topic, minute), pages.rolled)[1], within):
                totals.setdefault((tier, source, topic), Counts()).absorb(counts)
    return [Audited(*names, counts.pruned()) for names, counts in sorted(totals.items())]
