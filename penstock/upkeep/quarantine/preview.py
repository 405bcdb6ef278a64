"""What would become of messages in quarantine if they were sent back, mended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.upkeep.quarantine.fixes import BadFix, Fix, mended
from penstock.upkeep.quarantine.send_back import Row

SAMPLES = 20
LEFT = "skipped by the fix"


@dataclass(frozen=True, slots=True)
class Sample:
    """A row, its payload mended (None where the fix leaves it), and what it would be then: ``event``, ``message``, a
    reason of quarantine, or why it is not sent.
    """

    row: Row
    after: bytes | None
    becomes: str

    @property
    def lands(self) -> bool:
        """Whether it would land."""
        return self.becomes in (MessageKind.EVENT, MessageKind.MESSAGE)


def preview(rows: Sequence[Row], fix: Fix, rules: EventRules) -> list[Sample]:
    """Of rows as they are, before any transformation and duplicates."""
    return [_sample(row, fix, rules) for row in rows]


def _sample(row: Row, fix: Fix, rules: EventRules) -> Sample:
    try:
        after = mended(fix, row.payload, row.place)
    except BadFix as error:
        return Sample(row, None, str(error))
    if after is None:
        return Sample(row, None, LEFT)
    if not after.startswith(b"{"):
        return Sample(row, after, MessageKind.MESSAGE)
    (reason,) = event_columns(pa.array([after], pa.binary()), rules)["reason"].to_pylist()
    return Sample(row, after, reason or MessageKind.EVENT)
