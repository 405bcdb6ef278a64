"""Losses are reported by reason, once a minute."""

from __future__ import annotations

import pytest

from penstock.config import ListenerConfig
from penstock.ingest.loss_reports import REPORT_INTERVAL_S, LossReports, oversize_text


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


@pytest.mark.parametrize(
    ("protocol", "codec", "text"),
    [
        ("udp", "gelf", "messages larger than defrag.max_size (9 bytes): 1"),
        ("http", "", "messages larger than max_line (5 bytes): 1"),
        ("tcp", "forward", "records larger than max_line, or requests larger than 16 MiB, max_body or max_messages: 1"),
    ],
)
def test_oversize_message_names_the_limit_of_its_protocol(
    protocol: str, codec: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"name": "a", "protocol": protocol, "port": 1, **({"codec": codec} if codec else {})}
    losses = LossReports(
        limits={"max_line": 5, "defrag.max_size": 9}, oversize=oversize_text(ListenerConfig.model_validate(keys))
    )
    losses.add({"refused.oversize": 1})
    losses.report()
    assert caplog.messages == [text]
