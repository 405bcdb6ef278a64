"""Behaviour of all auditors: ticks, closing, threads, and failures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.auditing import (
    AbstractAuditor,
    AuditKey,
    AuditType,
    BadAuditorSetting,
    CountingAuditStats,
    LoggingAuditor,
    NoOpAuditor,
    StatsClosed,
)
from penstock.kafka.auditing.stats import Count
from penstock.kafka.client.plugins.loading import CannotLoad, load_auditor
from penstock.testing import FakeClock, wait_until

SETTINGS = {"auditor.reporting.interval.ms": "60000", "auditor.reporting.delay.ms": "6000"}


class Adding(AbstractAuditor):
    """An auditor that adds up everything it reports."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__("adding", (clock or FakeClock(0)).time)
        self.total: dict[Hashable, Count] = {}
        self.fails = False
        self.counts_at_close: tuple[int, int] | None = None

    def on_tick(self, stats: Any) -> None:
        if self.fails:
            raise OSError("nobody wants to hear it")
        for key, count in stats.stats().items():
            before = self.total.get(key, Count())
            self.total[key] = Count(before.messages + count.messages, before.size + count.size)

    def on_closed(self, current: Any, following: Any, timeout: float) -> None:
        self.counts_at_close = len(current.stats()), len(following.stats())
        self.on_tick(current)
        self.on_tick(following)

    def create_stats(self) -> CountingAuditStats:
        return CountingAuditStats()

    def audit_token(self, key: Any, value: Any) -> Any:
        return key

    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable | None:
        return None if token == "skip" else (topic, audit_type)


def _started(clock: FakeClock, **more: str) -> Adding:
    auditor = Adding(clock)
    auditor.configure({**SETTINGS, **more})
    auditor.start()
    return auditor


# AbstractAuditorTest


def test_tick() -> None:
    clock = FakeClock(0)
    auditor = _started(clock)
    for stamp in (0, 59_999, 60_000):
        auditor.record(None, "topic", stamp, 1, 10, AuditType.SUCCESS)
    for seconds, ticks in ((65.999, 0), (66, 1)):
        clock.now = seconds
        auditor.wake()
        if ticks:
            wait_until(lambda: auditor.ticks == 1)
        assert auditor.ticks == ticks
    wait_until(lambda: auditor.total == {("topic", AuditType.SUCCESS): (2, 20)})
    auditor.close()
    assert auditor.total == {("topic", AuditType.SUCCESS): (3, 30)}


def test_close() -> None:
    auditor = _started(FakeClock(0))
    assert auditor.is_alive
    auditor.record(None, "topic", 0, 1, 10, AuditType.SUCCESS)
    auditor.record(None, "topic", 60_000, 1, 10, AuditType.SUCCESS)
    auditor.close()
    auditor.close()
    assert (auditor.is_alive, auditor.counts_at_close) == (False, (1, 1))
    for stats in auditor.stats():
        with pytest.raises(StatsClosed):
            stats.update("key", 1, 1)


def test_concurrency() -> None:
    """Four of five threads each report 10,000 counts of three topics and three kinds while the fifth ticks without
    a pause.
    """
    auditor = Adding()
    auditor.configure({"enable.auto.tick": "false"})
    auditor.start()
    topics, kinds, rounds, workers = ("a", "b", "c"), tuple(AuditType), 10_000, 5

    def report_counts() -> None:
        for _ in range(rounds):
            for topic in topics:
                for kind in kinds:
                    auditor.record(None, topic, 0, 1, 10, kind)

    threads = [threading.Thread(target=report_counts) for _ in range(workers)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        auditor.tick()
    auditor.tick()
    auditor.tick()
    total = workers * rounds
    assert auditor.total == {(topic, kind): (total, 10 * total) for topic in topics for kind in kinds}
    assert auditor.ticks > 10


# CountingAuditStatsTest


def test_record() -> None:
    stats = CountingAuditStats()
    for size in (5, 7):
        stats.update(AuditKey("topic", 0, AuditType.SUCCESS), 1, size)
    stats.update(AuditKey("topic", 1, AuditType.FAILURE), 2, 3)
    stats.close()
    assert stats.stats() == {
        AuditKey("topic", 0, AuditType.SUCCESS): (2, 12),
        AuditKey("topic", 1, AuditType.FAILURE): (2, 3),
    }


def test_record_without_a_key_is_not_counted() -> None:
    auditor = _started(FakeClock(0))
    auditor.record("skip", "topic", 0, 1, 10, AuditType.SUCCESS)
    auditor.close()
    assert auditor.total == {}


def test_failed_report_is_logged_and_the_next_report_is_made(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(0)
    auditor = _started(clock)
    auditor.fails = True
    clock.now = 66
    auditor.wake()
    wait_until(lambda: "nobody wants to hear it" in caplog.text)
    auditor.fails = False
    auditor.record(None, "topic", 60_000, 1, 10, AuditType.SUCCESS)
    auditor.close()
    assert auditor.total == {("topic", AuditType.SUCCESS): (1, 10)}


def test_failed_report_on_closing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    auditor = _started(FakeClock(0))
    auditor.fails = True
    with caplog.at_level(logging.ERROR):
        auditor.close()
    assert "report on closing failed" in caplog.text


def test_close_waits_no_longer_than_its_timeout() -> None:
    reported = threading.Event()

    class Slow(Adding):
        def on_closed(self, current: Any, following: Any, timeout: float) -> None:
            reported.wait(60)

    auditor = Slow()
    auditor.configure(SETTINGS)
    auditor.start()
    began = time.monotonic()
    auditor.close(0.1)
    assert time.monotonic() - began < 30
    reported.set()


def test_messages_after_closing_are_counted_separately() -> None:
    auditor = _started(FakeClock(0))
    auditor.close()
    auditor.record(None, "topic", 0, 3, 10, AuditType.SUCCESS)
    assert auditor.unrecorded == 3


class RecordedAtClose(CountingAuditStats):
    """Stats in which a recorder counts a message when they have just been closed."""

    def __init__(self, auditor: Adding) -> None:
        super().__init__()
        self.auditor, self.attempts = auditor, 0

    def update(self, key: Hashable, messages: int, size: int) -> None:
        self.attempts += 1
        if self.attempts > 5:
            raise RuntimeError("the recorder tries closed stats again and again")
        super().update(key, messages, size)

    def close(self) -> None:
        super().close()
        self.auditor.record(None, "topic", 0, 1, 10, AuditType.SUCCESS)


class RecordedWhileClosing(Adding):
    def create_stats(self) -> CountingAuditStats:
        return RecordedAtClose(self)


def test_message_recorded_while_stats_close_is_counted_once_in_the_next_interval_or_separately() -> None:
    auditor = RecordedWhileClosing(FakeClock(0))
    auditor.configure(SETTINGS)
    auditor.start()
    auditor.tick()
    assert auditor.total == {}
    auditor.tick()
    assert auditor.total == {("topic", AuditType.SUCCESS): Count(1, 10)}
    auditor.close()
    assert auditor.total == {("topic", AuditType.SUCCESS): Count(2, 20)}
    assert auditor.unrecorded == 2


def test_auditor_that_is_not_started_raises() -> None:
    auditor = Adding()
    auditor.configure({})
    with pytest.raises(RuntimeError, match="not started"):
        auditor.record(None, "topic", 0, 1, 1, AuditType.SUCCESS)
    auditor.close()


@pytest.mark.parametrize(
    ("settings", "error_text"),
    [
        ({"auditor.reporting.interval.ms": "0"}, "auditor.reporting.interval.ms: must be at least 1"),
        ({"auditor.reporting.delay.ms": "soon"}, "auditor.reporting.delay.ms: 'soon' is not a whole number"),
        ({"enable.auto.tick": "perhaps"}, "enable.auto.tick: 'perhaps' is neither true nor false"),
        ({"auditor.bucket.ms": -1}, "auditor.bucket.ms: must be at least 1"),
    ],
)
def test_bad_setting_is_named_in_the_error(settings: dict[str, Any], error_text: str) -> None:
    with pytest.raises(BadAuditorSetting, match=error_text):
        LoggingAuditor().configure(settings)
    with pytest.raises(CannotLoad, match=error_text):
        load_auditor("logging", settings)


@given(st.integers(0, 1 << 41), st.integers(1, 1 << 31))
def test_next_tick_is_the_next_multiple_of_the_interval(now: int, interval: int) -> None:
    auditor = Adding(FakeClock(now / 1000))
    auditor.configure({"auditor.reporting.interval.ms": interval})
    assert auditor.next_tick % interval == 0
    assert 0 < auditor.next_tick - auditor.now() <= interval


def test_by_default_nothing_is_audited() -> None:
    for name in (None, "none", "NoOpAuditor"):
        auditor = load_auditor(name, {})
        assert isinstance(auditor, NoOpAuditor)
        auditor.configure({})
        auditor.start()
        auditor.record(auditor.audit_token(b"k", b"v"), "topic", None, 1, 1, AuditType.SUCCESS)
        auditor.close()


def test_auditor_is_configured_by_instance_or_class() -> None:
    instance = Adding()
    assert load_auditor(instance, {}) is instance
    assert isinstance(load_auditor(Adding, {}), Adding)
    assert isinstance(load_auditor("tests.kafka.auditing.test_interval_auditor:Adding", {}), AbstractAuditor)
    with pytest.raises(CannotLoad, match="is not an Auditor"):
        load_auditor("builtins:dict", {})
