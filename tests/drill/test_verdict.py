"""Errors that a verdict finds on a real pipe whose senders make false claims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Log
from penstock.config import load
from penstock.drill.pipe import DrillPipe
from penstock.drill.senders import TOPIC, Appender, DatagramSender, Sender, payload
from penstock.drill.settings import isolate_settings
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
    """A pipe with one listener, whose environment variables are removed after the test."""
    for name in ("PYTHONPATH", "DRILL_FAULTS"):
        monkeypatch.setenv(name, "")
    (tmp_path / "penstock.toml").write_text(LISTENER)
    settings, _ = isolate_settings(load(tmp_path / "penstock.toml", SMALL), tmp_path / "data")
    settings.data_dir.mkdir()
    drill_pipe = DrillPipe(settings, tmp_path, spark=False)
    drill_pipe.start(60)
    yield drill_pipe
    drill_pipe.stop()


def appended(pipe: DrillPipe, *numbers: int) -> Appender:
    """Append messages and return their appender, which claims them."""
    appender = Appender(pipe.settings, 1)
    with Log(pipe.settings.log.grpc) as log:
        offsets = log.append(TOPIC, [payload(appender.name, number) for number in numbers])
    appender.sent = len(numbers)
    appender.acknowledged = {(TOPIC, offset): (appender.name, n) for offset, n in zip(offsets, numbers, strict=True)}
    return appender


def errors_of(pipe: DrillPipe, *senders: Sender) -> list[str]:
    return judge(pipe, senders).wrong


def test_each_false_claim_is_an_error(pipe: DrillPipe) -> None:
    honest = appended(pipe, 0, 1, 2)
    assert errors_of(pipe, honest) == []
    honest.sent = 2
    assert errors_of(pipe, honest) == ["messages stored but never sent: 1"]
    honest.sent = 3
    honest.acknowledged[TOPIC, 17] = honest.name, 2
    assert errors_of(pipe, honest) == ["acknowledged appends not stored: 1, for example offset 17 of drill"]
    repeated = appended(pipe, 2)
    repeated.sent = 3
    assert errors_of(pipe, repeated) == ["messages stored twice: 1, for example appends 2"]


def test_uncounted_datagrams_are_an_error(pipe: DrillPipe) -> None:
    sender = DatagramSender(pipe.settings.listener[0], pipe, 1)
    sender.burst()
    came = sender.datagrams
    pipe.settled()
    assert errors_of(pipe, sender) == []
    sender.sent, sender.datagrams = sender.sent + 5, sender.datagrams + 5
    assert errors_of(pipe, sender) == [
        f"events: {came + 5} datagrams sent, {came} counted",
        "datagrams not stored: 5; losses in the balance: 0",
    ]


def listener(name: str, **counts: int) -> dict[str, object]:
    return {"name": name, "counts": counts, "books": []}


def test_losses_are_named_by_origin_and_count() -> None:
    balance = {
        "listeners": [listener("a", accepted=9, kernel_dropped=2), listener("b", corrupt=1)],
        "topics": [{"topic": "t", "fates": {"landed.event": 3, "gap.corrupt": 4}}],
    }
    assert losses_of(balance) == {"a kernel_dropped": 2, "b corrupt": 1, "t gap.corrupt": 4}
