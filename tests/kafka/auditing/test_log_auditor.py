"""Auditors that tick, against what the Java library's did: counts, ticks, and the lines of the log."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.kafka.auditing import AuditKey, AuditType, CountingAuditStats, LoggingAuditor, StatsClosed
from penstock.kafka.auditing.log_auditor import format_java_date
from penstock.testing import FakeClock
from tests.kafka.kafka_vectors import recorded

CASES = json.loads(recorded("li_auditing.json"))["sequences"]
LOGGER = "penstock.kafka.auditing.LoggingAuditor"
TIME_LEFT = "on closing the time that is left is told, where the original mixes two clocks and tells 0"


class Recording(LoggingAuditor):
    """Remembers what it reported."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__("test-auditor", clock.time)
        self.reported: list[Any] = []
        self.closed: list[Any] = []

    def on_tick(self, stats: Any) -> None:
        self.reported.append(shown(stats))
        super().on_tick(stats)

    def on_closed(self, current: Any, following: Any, timeout: float) -> None:
        self.closed.append({"current": shown(current), "next": shown(following), "timeoutPositive": timeout > 0})
        super().on_closed(current, following, timeout)


def shown(stats: Any) -> dict[str, Any]:
    """Stats as they are recorded."""
    assert isinstance(stats, CountingAuditStats)
    return {str(key): [count.messages, count.size, str(count)] for key, count in stats.stats().items()}


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _state(auditor: Recording, clock: FakeClock) -> dict[str, Any]:
    current, following = auditor.stats()
    return {
        "now": round(clock.now * 1000),
        "ticks": auditor.ticks,
        "nextTick": auditor.next_tick,
        "current": shown(current),
        "next": shown(following),
        "onTickCalls": len(auditor.reported),
    }


def _do(auditor: Recording, clock: FakeClock, op: dict[str, Any]) -> None:
    match op["op"]:
        case "record":
            told = (op["topic"], op["timestamp"], op["messages"], op["bytes"], AuditType(op["type"]))
            if op["error"]:
                with pytest.raises(ValueError, match="timestamp"):
                    auditor.record(None, *told)
            else:
                auditor.record(None, *told)
        case "advance":
            clock.now = round(clock.now * 1000 + op["ms"]) / 1000
            auditor.wake()
            ticks = op["state"]["ticks"]
            eventually(lambda: auditor.ticks == ticks and len(auditor.reported) == op["state"]["onTickCalls"])
        case "tick":
            auditor.tick()
        case "tickAndGetStats":
            stats = auditor.tick_and_get_stats()
            assert shown(stats) == op["result"]
            with pytest.raises(StatsClosed, match=re.escape(op["updateOnClosedStats"])):
                stats.update("key", 1, 1)
        case "close":
            auditor.close(2)
            assert auditor.is_alive == op["alive"]
            assert auditor.reported == op["onTick"]
            expected = [told | {"timeoutPositive": True} for told in op["onClosed"]]
            assert auditor.closed == expected, TIME_LEFT


def _lines() -> list[list[str]]:
    """What the original logged, by sequence."""
    found: list[list[str]] = []
    for line in recorded("li_logging_auditor.log").decode().splitlines():
        source, _, text = line.partition(" - ")
        if "Starting auditor" in text or "Automatic ticking is disabled" in text:
            found.append([])
        elif source.endswith("LoggingAuditor"):
            found[-1].append(text)
    return found


def _unordered(lines: list[str]) -> list[list[str]]:
    """Lines before and after closing, each sorted: the original's order is that of hashes."""
    parts: list[list[str]] = [[]]
    for line in lines:
        parts += [[]] if line.startswith("Logging") else []
        parts[-1].append(line)
    return [sorted(part) for part in parts]


@pytest.mark.parametrize(
    ("case", "lines"), list(zip(CASES, _lines(), strict=True)), ids=[case["name"] for case in CASES]
)
def test_an_auditor_counts_and_reports_as_recorded(
    case: dict[str, Any], lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    clock = FakeClock(case["startTime"] / 1000)
    auditor = Recording(clock)
    auditor.configure(case["config"])
    assert auditor.next_tick == case["nextTickAfterConfigure"]
    auditor.start()
    for place, op in enumerate(case["ops"]):
        _do(auditor, clock, op)
        if "state" in op:
            assert _state(auditor, clock) == op["state"], place
    logged = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert _unordered(logged) == _unordered(lines)


def test_two_auditors_have_each_their_own_configuration() -> None:
    auditors = [LoggingAuditor("one", FakeClock(0).time), LoggingAuditor("other", FakeClock(0).time)]
    for auditor, interval in zip(auditors, (1000, 7000), strict=True):
        auditor.configure({"auditor.reporting.interval.ms": interval})
    assert [auditor.next_tick for auditor in auditors] == [1000, 7000]


@pytest.mark.parametrize("name", ["LoggingAuditor", "logging", "com.linkedin.kafka.clients.auditing.LoggingAuditor"])
def test_the_logging_auditor_is_known_by_its_names(name: str) -> None:
    from penstock.kafka.client.plugins import load_auditor

    assert isinstance(load_auditor(name, {}), LoggingAuditor)


def test_a_time_is_told_as_java_tells_it() -> None:
    assert format_java_date(0) == "Thu Jan 01 00:00:00 UTC 1970"
    assert format_java_date(1_700_000_000_000) == "Tue Nov 14 22:13:20 UTC 2023"
    assert format_java_date(1 << 62) == f"{1 << 62} ms"


def test_keys_and_counts_read_as_in_the_log() -> None:
    assert str(AuditKey("topic", 3, AuditType.ATTEMPT)) == "(topic,3,ATTEMPT)"
    stats = CountingAuditStats()
    stats.update("key", 1, 10)
    stats.update("key", 2, 5)
    assert [str(count) for count in stats.stats().values()] == ["(3 messages, 15 bytes)"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
