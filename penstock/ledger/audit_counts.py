"""What the auditors of Kafka clients told: shown beside the balance, and no term of its proof.

A client counts on its own side, by the times of its messages; so its counts say what it tried, sent and read, and
differ from the log's own by what is on its way, or was lost before it could tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.counts import Counts
from penstock.ledger.balance import Within, inside
from penstock.ledger.book import TierCounts
from penstock.ledger.daily_rollup import rolled_key, widened


@dataclass(frozen=True, slots=True)
class Audited:
    """The counts of one source and topic in a tier, over all lives of the source.

    Names are ``attempt``, ``success`` and ``failure`` (messages), and ``attempt_bytes`` and so on; of large messages
    that a consumer could not put together ``evicted``, ``expired`` and ``refused.WHY``, and ``skipped`` ones.
    """

    tier: str
    source: str
    topic: str
    counts: dict[str, int]


def audited(pages: TierCounts, within: Within = None) -> list[Audited]:
    """By tier, source and topic; of the buckets ``within`` alone where given."""
    within = widened(within, pages.rolled)
    found: dict[tuple[str, str, str], Counts] = {}
    for (tier, source, _), told in pages.audits.items():
        for (topic, minute), (_, counts) in told.items():
            if inside(rolled_key((topic, minute), pages.rolled)[1], within):
                found.setdefault((tier, source, topic), Counts()).absorb(counts)
    return [Audited(*names, counts.pruned()) for names, counts in sorted(found.items())]
