"""What a verdict finds wrong, of a real pipe whose senders claim more or less than they did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Log
from penstock.config import load
from penstock.drill.pipe import DrillPipe
from penstock.drill.senders import TOPIC, Appender, DatagramSender, Sender, payload
from penstock.drill.settings import copied
from penstock.drill.verdict import judge, losses_of

SMALL = ["buffer.term_length=2MiB", "buffer.slots=64"]
LISTENER = """
[[listener]]
name = "events"
protocol = "udp"
max_line = "16KiB"
defrag = {max_size = "16KiB"}
handlers = [{type = "log", topic = "events"}]
"""


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DrillPipe]:
    """A pipe with one listener, whose environment is gone after the test."""
    for name in ("PYTHONPATH", "DRILL_FAULTS"):
        monkeypatch.setenv(name, "")
    (tmp_path / "penstock.toml").write_text(LISTENER)
    settings, _ = copied(load(tmp_path / "penstock.toml", SMALL), tmp_path / "data")
    settings.data_dir.mkdir()
    made = DrillPipe(settings, tmp_path, spark=False)
    made.start(60)
    yield made
    made.stop()


def appended(pipe: DrillPipe, *numbers: int) -> Appender:
    """An appender that appended these messages, and says so."""
    appender = Appender(pipe.settings, 1)
    with Log(pipe.settings.log.grpc) as log:
        offsets = log.append(TOPIC, [payload(appender.name, number) for number in numbers])
    appender.sent = len(numbers)
    appender.acknowledged = {(TOPIC, offset): (appender.name, n) for offset, n in zip(offsets, numbers, strict=True)}
    return appender


def wrong(pipe: DrillPipe, *senders: Sender) -> list[str]:
    return judge(pipe, senders).wrong


def test_lies_are_found_one_by_one(pipe: DrillPipe) -> None:
    honest = appended(pipe, 0, 1, 2)
    assert wrong(pipe, honest) == []
    honest.sent = 2
    assert wrong(pipe, honest) == ["1 messages are stored that nobody sent"]
    honest.sent = 3
    honest.acknowledged[TOPIC, 17] = honest.name, 2
    assert wrong(pipe, honest) == ["1 acknowledged appends are not stored, such as offset 17 of drill"]
    again = appended(pipe, 2)
    again.sent = 3
    assert wrong(pipe, again) == ["1 messages are stored twice, such as appends 2"]


def test_datagrams_that_nobody_counted_are_found(pipe: DrillPipe) -> None:
    sender = DatagramSender(pipe.settings.listener[0], pipe, 1)
    sender.burst()
    came = sender.datagrams
    pipe.settled()
    assert wrong(pipe, sender) == []
    sender.sent, sender.datagrams = sender.sent + 5, sender.datagrams + 5
    assert wrong(pipe, sender) == [
        f"events: {came + 5} datagrams sent, {came} counted",
        "5 datagrams are not stored, and the balance names 0 losses",
    ]


def listener(name: str, **counts: int) -> dict[str, object]:
    return {"name": name, "counts": counts, "books": []}


def test_losses_are_told_by_place_and_name() -> None:
    balance = {
        "listeners": [listener("a", accepted=9, kernel_dropped=2), listener("b", corrupt=1)],
        "topics": [{"topic": "t", "fates": {"landed.event": 3, "gap.corrupt": 4}}],
    }
    assert losses_of(balance) == {"a kernel_dropped": 2, "b corrupt": 1, "t gap.corrupt": 4}
