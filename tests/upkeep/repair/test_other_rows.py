"""Rows of other files that a restored file must not bring a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.landing.event_rules import MAX_TIMESTAMP
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.upkeep.repair.other_rows import OtherRows
from tests.landing.typed.typed_life import Life, event
from tests.landing.writing.messages import DAY, source

YEAR_9999 = MAX_TIMESTAMP * 1000


@pytest.mark.parametrize("at", [0, YEAR_9999])
def test_events_at_the_ends_of_time_are_known(tmp_path: Path, at: int) -> None:
    layout = Layout.for_tables(tmp_path)
    for batch in range(2):
        Life(layout, ()).land(batch, [source([(batch, event(f"u{batch}"))], at=at, partition=0)])
    table = table_of(layout)
    damaged, _ = table.active()
    (keys,) = OtherRows(layout, table, damaged, 7 * DAY).keys()
    assert (keys.micros.tolist(), keys.topics) == ([at], ("t",))
