"""What was lost is told by reason, once a minute."""

from __future__ import annotations

from penstock.ingest.loss_reports import Losses
from penstock.process.rate_limited_log import SAY_AGAIN


def test_each_reason_is_told_at_once_and_then_once_a_minute_with_all_that_came_together() -> None:
    said: list[str] = []
    now = [-1000.0]
    losses = Losses("events", said.append, lambda: now[0])
    losses.tell()
    losses.add({"taken": 3, "unboxed": 1, "invalid.header": 2, "empty": 0})
    losses.tell()
    assert said == ["listener 'events': fragments with an invalid header: 2"]
    for _ in range(100):
        now[0] += SAY_AGAIN / 200
        losses.add({"invalid.header": 1, "refused.oversize": 1})
        losses.tell()
    assert said[1:] == ["listener 'events': messages larger than defrag.max_size: 1"]
    now[0] += SAY_AGAIN
    losses.tell()
    assert sorted(said[2:]) == [
        "listener 'events': fragments with an invalid header: 100",
        "listener 'events': messages larger than defrag.max_size: 99",
    ]
    now[0] += SAY_AGAIN
    losses.tell()
    assert len(said) == 4
