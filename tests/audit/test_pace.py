"""The progress has the count, then the rate, and the time left if the total is not exceeded."""

from __future__ import annotations

import pytest

from penstock.audit.pace import Pace


@pytest.mark.parametrize(
    ("elapsed_s", "count", "text"),
    [
        (0.5, 50, "50 of 6,000 rows"),
        (2.0, 1000, "1,000 of 6,000 rows, 500 a second, 10 s left"),
        (10.0, 100, "100 of 6,000 rows, 10 a second, 10 min left"),
        (100.0, 60, "60 of 6,000 rows, 1 a second, 2.8 h left"),
        (2.0, 6001, "6,001 rows, 3,000 a second"),
        (2.0, 0, "0 of 6,000 rows"),
    ],
)
def test_progress_has_count_rate_and_time_left(elapsed_s: float, count: int, text: str) -> None:
    shown: list[str] = []
    moments = iter((100.0, 100.0 + elapsed_s))
    Pace("rows", 6000, shown.append, lambda: next(moments)).advance(count)
    assert shown == [text]
