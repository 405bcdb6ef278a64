"""Auditors with ticks, compared with recordings of the Java library: counts, ticks, and log lines."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.kafka.auditing import AuditKey, AuditType, CountingAuditStats, LoggingAuditor, StatsClosed
from penstock.kafka.auditing.log_auditor import format_java_date
from penstock.testing import FakeClock, wait_until
from tests.kafka.kafka_vectors import recorded

CASES = json.loads(recorded("li_auditing.json"))["sequences"]
LOGGER = "penstock.kafka.auditing.LoggingAuditor"
TIME_LEFT = "on closing the time that is left is told, where the original mixes two clocks and tells 0"


class Recording(LoggingAuditor):
    """An auditor that stores what it reported."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__("test-auditor", clock.time)
        self.reported: list[Any] = []
        self.closed: list[Any] = []

    def on_tick(self, stats: Any) -> None:
        self.reported.append(as_recorded(stats))
        super().on_tick(stats)

    def on_closed(self, current: Any, following: Any, timeout: float) -> None:
        self.closed.append(
            {"current": as_recorded(current), "next": as_recorded(following), "timeoutPositive": timeout > 0}
        )
        super().on_closed(current, following, timeout)


def as_recorded(stats: Any) -> dict[str, Any]:
    """Return the statistics in the form of the recordings."""
    assert isinstance(stats, CountingAuditStats)
    return {str(key): [count.messages, count.size, str(count)] for key, count in stats.stats().items()}


def _state(auditor: Recording, clock: FakeClock) -> dict[str, Any]:
    current, following = auditor.stats()
    return {
        "now": round(clock.now * 1000),
        "ticks": auditor.ticks,
        "nextTick": auditor.next_tick,
        "current": as_recorded(current),
        "next": as_recorded(following),
        "onTickCalls": len(auditor.reported),
    }


def _apply(auditor: Recording, clock: FakeClock, op: dict[str, Any]) -> None:
    match op["op"]:
        case "record":
            count = (op["topic"], op["timestamp"], op["messages"], op["bytes"], AuditType(op["type"]))
            if op["error"]:
                with pytest.raises(ValueError, match="timestamp"):
                    auditor.record(None, *count)
            else:
                auditor.record(None, *count)
        case "advance":
            clock.now = round(clock.now * 1000 + op["ms"]) / 1000
            auditor.wake()
            ticks = op["state"]["ticks"]
            wait_until(lambda: auditor.ticks == ticks and len(auditor.reported) == op["state"]["onTickCalls"])
        case "tick":
            auditor.tick()
        case "tickAndGetStats":
            stats = auditor.tick_and_get_stats()
            assert as_recorded(stats) == op["result"]
            with pytest.raises(StatsClosed, match=re.escape(op["updateOnClosedStats"])):
                stats.update("key", 1, 1)
        case "close":
            auditor.close(2)
            assert auditor.is_alive == op["alive"]
            assert auditor.reported == op["onTick"]
            expected = [count | {"timeoutPositive": True} for count in op["onClosed"]]
            assert auditor.closed == expected, TIME_LEFT


def _recorded_lines() -> list[list[str]]:
    """Return the lines that the original logged, by sequence."""
    sequences: list[list[str]] = []
    for line in recorded("li_logging_auditor.log").decode().splitlines():
        source, _, text = line.partition(" - ")
        if "Starting auditor" in text or "Automatic ticking is disabled" in text:
            sequences.append([])
        elif source.endswith("LoggingAuditor"):
            sequences[-1].append(text)
    return sequences


def _unordered(lines: list[str]) -> list[list[str]]:
    """Sort the lines before and after closing: the original's order is that of its hash tables."""
    parts: list[list[str]] = [[]]
    for line in lines:
        parts += [[]] if line.startswith("Logging") else []
        parts[-1].append(line)
    return [sorted(part) for part in parts]


@pytest.mark.parametrize(
    ("case", "lines"), list(zip(CASES, _recorded_lines(), strict=True)), ids=[case["name"] for case in CASES]
)
def test_auditor_counts_and_reports_as_recorded(
    case: dict[str, Any], lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    clock = FakeClock(case["startTime"] / 1000)
    auditor = Recording(clock)
    auditor.configure(case["config"])
    assert auditor.next_tick == case["nextTickAfterConfigure"]
    auditor.start()
    for index, op in enumerate(case["ops"]):
        _apply(auditor, clock, op)
        if "state" in op:
            assert _state(auditor, clock) == op["state"], index
    logged = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert _unordered(logged) == _unordered(lines)


def test_each_auditor_has_its_own_configuration() -> None:
    auditors = [LoggingAuditor("one", FakeClock(0).time), LoggingAuditor("other", FakeClock(0).time)]
    for auditor, interval in zip(auditors, (1000, 7000), strict=True):
        auditor.configure({"auditor.reporting.interval.ms": interval})
    assert [auditor.next_tick for auditor in auditors] == [1000, 7000]


@pytest.mark.parametrize("name", ["LoggingAuditor", "logging", "com.linkedin.kafka.clients.auditing.LoggingAuditor"])
def test_logging_auditor_is_loaded_by_each_of_its_names(name: str) -> None:
    from penstock.kafka.client.plugins.loading import load_auditor

    assert isinstance(load_auditor(name, {}), LoggingAuditor)


def test_time_is_formatted_like_in_java() -> None:
    assert format_java_date(0) == "Thu Jan 01 00:00:00 UTC 1970"
    assert format_java_date(1_700_000_000_000) == "Tue Nov 14 22:13:20 UTC 2023"
    assert format_java_date(1 << 62) == f"{1 << 62} ms"


def test_keys_and_counts_are_formatted_like_in_the_log() -> None:
    assert str(AuditKey("topic", 3, AuditType.ATTEMPT)) == "(topic,3,ATTEMPT)"
    stats = CountingAuditStats()
    stats.update("key", 1, 10)
    stats.update("key", 2, 5)
    assert [str(count) for count in stats.stats().values()] == ["(3 messages, 15 bytes)"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
