"""Losses are reported by reason, once a minute."""

from __future__ import annotations

import pytest

from penstock.ingest.loss_reports import REPORT_INTERVAL_S, LossReports


def test_each_reason_is_told_at_once_and_then_once_a_minute_with_all_that_came_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [-1000.0]
    losses = LossReports(lambda: now[0])
    losses.report()
    losses.add({"taken": 3, "unboxed": 1, "invalid.header": 2, "empty": 0})
    losses.report()
    assert caplog.messages == ["fragments with an invalid header: 2"]
    for _ in range(100):
        now[0] += REPORT_INTERVAL_S / 200
        losses.add({"invalid.header": 1, "refused.oversize": 1})
        losses.report()
    assert caplog.messages[1:] == ["messages larger than defrag.max_size: 1"]
    now[0] += REPORT_INTERVAL_S
    losses.report()
    assert sorted(caplog.messages[2:]) == [
        "fragments with an invalid header: 100",
        "messages larger than defrag.max_size: 99",
    ]
    now[0] += REPORT_INTERVAL_S
    losses.report()
    assert len(caplog.messages) == 4
