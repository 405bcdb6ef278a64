"""Base class of auditors that count in intervals and report each interval after its end.

The rules follow AbstractAuditor in li-apache-kafka-clients: ticks fall on multiples of the interval; a message
created before the next tick counts in the current interval, however old it is, any other in the following one; an
interval is reported a delay after its end, so that late messages still count. Unlike the Java library, each auditor
has its own configuration.
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
DEFAULT_INTERVAL_MS = 600_000
DEFAULT_DELAY_MS = 60_000
NEVER_MS = (1 << 63) - 1
"""The next tick without automatic ticks: the largest time in Java."""
_LOG = logging.getLogger("penstock.kafka.auditing")


class BadAuditorSetting(PenstockError, ValueError):
    """A setting of an auditor is invalid; the text names the key."""


class AbstractAuditor(Auditor):
    """Counts in intervals; subclasses decide by which key and what to report.

    With ``enable.auto.tick=false`` there is no thread: the owner calls ``tick`` or ``tick_and_get_stats``, also before
    closing, because ``on_closed`` is not called. Messages then count in the current interval until the first tick, and
    after it in the following one, as in the Java library (the time of the next tick overflows).
    """

    properties: frozenset[str] = frozenset((REPORTING_INTERVAL, REPORTING_DELAY, AUTO_TICK))
    """Keys of its settings in a client's configuration."""

    def __init__(self, name: str = "auditor", clock: Callable[[], float] = time.time) -> None:
        self._name, self._clock = name, clock
        self._interval_ms, self._delay_ms, self._auto = DEFAULT_INTERVAL_MS, DEFAULT_DELAY_MS, True
        self._next_tick = NEVER_MS
        self._ticks = 0
        self._current: AuditStats | None = None
        self._following: AuditStats | None = None
        self._tick_lock, self._wakeup = threading.Lock(), threading.Condition()
        self._closing = self._ended = False
        self._deadline = 0.0
        self._thread: threading.Thread | None = None
        self.unrecorded = 0
        """Messages recorded after closing."""

    @abstractmethod
    def on_tick(self, stats: AuditStats) -> None:
        """Report a finished interval; ``stats`` are closed."""

    @abstractmethod
    def on_closed(self, current: AuditStats, following: AuditStats, timeout: float) -> None:
        """Report the remaining counts within ``timeout`` seconds."""

    @abstractmethod
    def create_stats(self) -> AuditStats:
        """Return empty stats for a new interval."""

    @abstractmethod
    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable | None:
        """Return the key by which to count these messages; None to leave them out."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply interval, delay and ticking. A subclass that overrides this calls it. Raises BadAuditorSetting."""
        self._interval_ms = read_milliseconds(config, REPORTING_INTERVAL, DEFAULT_INTERVAL_MS, minimum=1)
        self._delay_ms = read_milliseconds(config, REPORTING_DELAY, DEFAULT_DELAY_MS)
        self._auto = read_flag(config, AUTO_TICK, True)
        self._next_tick = (self.now() // self._interval_ms + 1) * self._interval_ms if self._auto else NEVER_MS

    def start(self) -> None:
        """Start counting and ticking. Further calls do nothing."""
        if self._current is not None:
            return
        self._current, self._following = self.create_stats(), self.create_stats()
        if self._auto:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Report remaining counts and stop; after ``timeout`` seconds the report continues in the background."""
        with self._wakeup:
            if not self._closing:
                self._closing = True
                self._deadline = time.monotonic() + (timeout if timeout is not None else threading.TIMEOUT_MAX)
                self._wakeup.notify()
        # A subclass may close the auditor from its own thread, which cannot join itself.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        """Whether the auditor's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def now(self) -> int:
        """Return the clock's time in milliseconds since the epoch."""
        return int(self._clock() * 1000)

    def wake(self) -> None:
        """Re-read the clock now, after it was moved."""
        with self._wakeup:
            self._wakeup.notify()

    def _run(self) -> None:
        while not self._closing:
            try:
                if self.now() >= self._next_tick + self._delay_ms:
                    self.tick()
            except Exception:  # noqa: BLE001 - an auditor's own code may raise anything; the next interval is reported
                _LOG.exception("auditor %s: report failed; the next interval is reported as usual", self._name)
            self._wait_for_tick()
        self._report_remaining()

    def _wait_for_tick(self) -> None:
        with self._wakeup:
            delay_s = (self._next_tick + self._delay_ms - self.now()) / 1000
            if not self._closing and delay_s > 0:
                self._wakeup.wait(min(delay_s, threading.TIMEOUT_MAX))

    def _report_remaining(self) -> None:
        current, following = self.stats()
        # Order: the flag before the stats close, so that a recorder that sees closed stats stops instead of looping.
        self._ended = True
        current.close()
        following.close()
        try:
            self.on_closed(current, following, max(0.0, self._deadline - time.monotonic()))
        except Exception:  # noqa: BLE001 - an auditor's own code may raise anything; the client still closes
            _LOG.exception("auditor %s: report on closing failed, its last counts are missing", self._name)

    def stats(self) -> tuple[AuditStats, AuditStats]:
        """Return the stats of the current and of the following interval. Raises RuntimeError before ``start``."""
        if self._current is None or self._following is None:
            raise RuntimeError("the auditor is not started")
        return self._current, self._following

    @property
    def next_tick(self) -> int:
        """End of the current interval, in milliseconds since the epoch."""
        return self._next_tick

    @property
    def ticks(self) -> int:
        """Number of finished intervals."""
        return self._ticks

    def tick_and_get_stats(self) -> AuditStats:
        """End the current interval and return its closed stats."""
        with self._tick_lock:
            last, following = self.stats()
            # Order: the new interval is in place before the old one closes, so a recorder that meets StatsClosed
            # retries with it.
            self._current = following
            self._next_tick = _wrap_int64(self._next_tick + self._interval_ms)
            self._following = self.create_stats()
            self._ticks += 1
            last.close()
            return last

    def tick(self) -> None:
        """End the current interval and report it."""
        self.on_tick(self.tick_and_get_stats())

    def record(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> None:
        """Count messages; exceptions of ``audit_key`` pass through."""
        self.count(self.audit_key(token, topic, timestamp, messages, size, audit_type), timestamp, messages, size)

    def count(self, key: Hashable | None, timestamp: int | None, messages: int, size: int) -> None:
        """Count by ``key`` in the interval of ``timestamp``."""
        while key is not None:
            current, following = self.stats()
            try:
                interval_stats = following if timestamp is None or timestamp >= self._next_tick else current
                interval_stats.update(key, messages, size)
                return
            except StatsClosed:  # a tick or the close came first
                if self._ended:
                    self.unrecorded += messages
                    return


def read_milliseconds(config: Mapping[str, Any], key: str, default: int, minimum: int = 0) -> int:
    """Return a setting in milliseconds. Raises BadAuditorSetting."""
    setting = config.get(key, default)
    try:
        milliseconds = int(setting)
    except (TypeError, ValueError):
        raise BadAuditorSetting(f"{key}: {setting!r} is not a whole number of milliseconds") from None
    if milliseconds < minimum:
        raise BadAuditorSetting(f"{key}: must be at least {minimum}, not {milliseconds}")
    return milliseconds


def read_flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    """Return a setting that is true or false. Raises BadAuditorSetting."""
    setting = config.get(key, default)
    if isinstance(setting, str) and setting.lower() in ("true", "false"):
        return setting.lower() == "true"
    if not isinstance(setting, bool):
        raise BadAuditorSetting(f"{key}: {setting!r} is neither true nor false")
    return setting


def _wrap_int64(number: int) -> int:
    """Reduce a number to a signed 64-bit one, as Java's addition does."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
