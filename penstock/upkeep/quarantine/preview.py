"""Predict what messages in quarantine would become if they were corrected and sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.upkeep.quarantine.fixes import BadFix, Fix, apply_fix
from penstock.upkeep.quarantine.send_back import Row

SAMPLES = 20
SKIPPED_BY_FIX = "skipped by the fix"


@dataclass(frozen=True, slots=True)
class Sample:
    """A row, its corrected payload (None if the correction skips it), and its prediction.

    ``becomes`` is ``event``, ``message``, a reason of quarantine, or why the row is not sent.
    """

    row: Row
    after: bytes | None
    becomes: str

    @property
    def lands(self) -> bool:
        """Return whether the row would land."""
        return self.becomes in (MessageKind.EVENT, MessageKind.MESSAGE)


def preview(rows: Sequence[Row], fix: Fix, rules: EventRules) -> list[Sample]:
    """Predict the outcome for rows, before transformations and the check for duplicates."""
    return [_sample(row, fix, rules) for row in rows]


def _sample(row: Row, fix: Fix, rules: EventRules) -> Sample:
    try:
        after = apply_fix(fix, row.payload, row.position)
    except BadFix as error:
        return Sample(row, None, str(error))
    if after is None:
        return Sample(row, None, SKIPPED_BY_FIX)
    if not after.startswith(b"{"):
        return Sample(row, after, MessageKind.MESSAGE)
    # The landing's own rules decide, so that the prediction cannot differ from the landing.
    (reason,) = event_columns(pa.array([after], pa.binary()), rules)["reason"].to_pylist()
    return Sample(row, after, reason or MessageKind.EVENT)
