"""Auditors that count in intervals, and report each interval when it is over.

The rules are those of the Java library (specification B2): ticks fall on multiples of the interval; a message whose
time lies before the next tick counts in the current interval, however old it is, any other in the next one; an interval
is reported a delay after its end, for the sake of late messages. Unlike there, each auditor has its own configuration.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.kafka.auditing.auditor import Auditor, AuditType
from penstock.kafka.auditing.stats import AuditStats, StatsClosed

REPORTING_INTERVAL = "auditor.reporting.interval.ms"
REPORTING_DELAY = "auditor.reporting.delay.ms"
AUTO_TICK = "enable.auto.tick"
DEFAULT_INTERVAL = 600_000
DEFAULT_DELAY = 60_000
LAST = (1 << 63) - 1
_LOG = logging.getLogger("penstock.kafka.auditing")


class BadAuditorSetting(PenstockError, ValueError):
    """A setting of an auditor that means nothing; the text names the key."""


class AbstractAuditor(Auditor):
    """Counts in intervals; what is counted and reported is the subclass's.

    With ``enable.auto.tick=false`` there is no thread: who uses the auditor calls ``tick`` or ``tick_and_get_stats``,
    also before closing, as ``on_closed`` is not called then. In that mode messages count in the current interval up to
    the first tick, and after it in the next one, as there (the time of the next tick overflows).
    """

    properties: frozenset[str] = frozenset((REPORTING_INTERVAL, REPORTING_DELAY, AUTO_TICK))
    """Names of its settings in a client's configuration."""

    def __init__(self, name: str = "auditor", clock: Callable[[], float] = time.time) -> None:
        self._name, self._clock = name, clock
        self._interval, self._delay, self._auto = DEFAULT_INTERVAL, DEFAULT_DELAY, True
        self._next_tick = LAST
        self._ticks = 0
        self._current: AuditStats | None = None
        self._next: AuditStats | None = None
        self._ticking, self._wakes = threading.Lock(), threading.Condition()
        self._closing = self._ended = False
        self._deadline = 0.0
        self._thread: threading.Thread | None = None
        self.unrecorded = 0
        """Messages told after closing."""

    # What a subclass says

    @abstractmethod
    def on_tick(self, stats: AuditStats) -> None:
        """An interval is over; ``stats`` are closed."""

    @abstractmethod
    def on_closed(self, current: AuditStats, following: AuditStats, timeout: float) -> None:
        """The auditor is closing: report what is left within ``timeout`` seconds."""

    @abstractmethod
    def create_stats(self) -> AuditStats:
        """Stats for another interval."""

    @abstractmethod
    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable | None:
        """What to count these messages by; None: do not count them."""

    # The auditor's life

    def configure(self, config: Mapping[str, Any]) -> None:
        """Interval, delay and ticking. Raises BadAuditorSetting. A subclass that overrides it calls it."""
        self._interval = millis(config, REPORTING_INTERVAL, DEFAULT_INTERVAL, least=1)
        self._delay = millis(config, REPORTING_DELAY, DEFAULT_DELAY)
        self._auto = truth(config, AUTO_TICK, True)
        self._next_tick = (self.now() // self._interval + 1) * self._interval if self._auto else LAST

    def start(self) -> None:
        """Begin to count, and to tick. Only the first call does anything."""
        if self._current is not None:
            return
        self._current, self._next = self.create_stats(), self.create_stats()
        if self._auto:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Report what is left and end; after ``timeout`` seconds the report goes on without being waited for."""
        with self._wakes:
            if not self._closing:
                self._closing = True
                self._deadline = time.monotonic() + (timeout if timeout is not None else threading.TIMEOUT_MAX)
                self._wakes.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def now(self) -> int:
        """The clock, in milliseconds since the epoch."""
        return int(self._clock() * 1000)

    def wake(self) -> None:
        """Look at the clock at once: it was moved."""
        with self._wakes:
            self._wakes.notify()

    def _run(self) -> None:
        while not self._closing:
            try:
                if self.now() >= self._next_tick + self._delay:
                    self.tick()
            except Exception:  # noqa: BLE001 - an auditor's own code may raise anything; the next interval is reported
                _LOG.exception("the auditor %s could not report", self._name)
            self._wait()
        self._end()

    def _wait(self) -> None:
        with self._wakes:
            rest = (self._next_tick + self._delay - self.now()) / 1000
            if not self._closing and rest > 0:
                self._wakes.wait(min(rest, threading.TIMEOUT_MAX))

    def _end(self) -> None:
        current, following = self.stats()
        self._ended = True
        current.close()
        following.close()
        try:
            self.on_closed(current, following, max(0.0, self._deadline - time.monotonic()))
        except Exception:  # noqa: BLE001 - an auditor's own code may raise anything; the client closes all the same
            _LOG.exception("the auditor %s could not report on closing", self._name)

    # Counting and ticking

    def stats(self) -> tuple[AuditStats, AuditStats]:
        """Those of the current and of the next interval. Raises RuntimeError before ``start``."""
        if self._current is None or self._next is None:
            raise RuntimeError("the auditor is not started")
        return self._current, self._next

    @property
    def next_tick(self) -> int:
        """When the current interval ends, in milliseconds since the epoch."""
        return self._next_tick

    @property
    def ticks(self) -> int:
        """Intervals that are over."""
        return self._ticks

    def tick_and_get_stats(self) -> AuditStats:
        """End the current interval; its stats, closed."""
        with self._ticking:
            last, following = self.stats()
            self._current = following
            self._next_tick = _wrapped(self._next_tick + self._interval)
            self._next = self.create_stats()
            self._ticks += 1
            last.close()
            return last

    def tick(self) -> None:
        """End the current interval and report it."""
        self.on_tick(self.tick_and_get_stats())

    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        """Count messages; whatever ``audit_key`` raises is raised."""
        self.count(self.audit_key(token, topic, timestamp, messages, size, audit_type), timestamp, messages, size)

    def count(self, key: Hashable | None, timestamp: int | None, messages: int, size: int) -> None:
        """Count by ``key``, in the interval of ``timestamp``."""
        while key is not None:
            current, following = self.stats()
            try:
                chosen = following if timestamp is None or timestamp >= self._next_tick else current
                chosen.update(key, messages, size)
                return
            except StatsClosed:  # a tick came between, or the end
                if self._ended:
                    self.unrecorded += messages
                    return


def millis(config: Mapping[str, Any], key: str, default: int, least: int = 0) -> int:
    """A time in milliseconds of a configuration. Raises BadAuditorSetting."""
    given = config.get(key, default)
    try:
        value = int(given)
    except (TypeError, ValueError):
        raise BadAuditorSetting(f"{key}: {given!r} is not a number of milliseconds") from None
    if value < least:
        raise BadAuditorSetting(f"{key}: must be at least {least}, not {value}")
    return value


def truth(config: Mapping[str, Any], key: str, default: bool) -> bool:
    """A yes or no of a configuration. Raises BadAuditorSetting."""
    given = config.get(key, default)
    if isinstance(given, str) and given.lower() in ("true", "false"):
        return given.lower() == "true"
    if not isinstance(given, bool):
        raise BadAuditorSetting(f"{key}: {given!r} is neither true nor false")
    return given


def _wrapped(value: int) -> int:
    """A signed number of 64 bits, as Java adds them."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
