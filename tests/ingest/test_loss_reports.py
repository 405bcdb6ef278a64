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


def test_report_names_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    losses = LossReports(limits={"max_line": 65536, "defrag.max_size": 1024})
    losses.add({"line.overlong": 1, "skipped_bytes": 70000, "refused.oversize": 2, "invalid.header": 3})
    losses.report()
    assert sorted(caplog.messages) == [
        "bytes of lines longer than max_line (65536 bytes): 70000",
        "fragments with an invalid header: 3",
        "lines longer than max_line (65536 bytes): 1",
        "messages larger than defrag.max_size (1024 bytes): 2",
    ]
