"""The auditor that writes its counts to the log, one line per key."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.kafka.auditing.auditor import AuditType
from penstock.kafka.auditing.interval_auditor import AbstractAuditor, read_milliseconds
from penstock.kafka.auditing.stats import AuditKey, AuditStats, CountingAuditStats

BUCKET = "auditor.bucket.ms"
DEFAULT_BUCKET_MS = 600_000
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOG = logging.getLogger("penstock.kafka.auditing.LoggingAuditor")


class LoggingAuditor(AbstractAuditor):
    """Counts by topic, bucket of the creation time, and fate; logs every interval at level INFO.

    A line is ``[FROM - TO] : (TOPIC,BUCKET,TYPE), (N messages, N bytes)`` with times as ``Thu Jan 01 00:00:00 UTC
    1970``.
    """

    properties = AbstractAuditor.properties | {BUCKET}
    _bucket_ms = DEFAULT_BUCKET_MS

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply ``auditor.bucket.ms`` and the common settings. Raises BadAuditorSetting."""
        self._bucket_ms = read_milliseconds(config, BUCKET, DEFAULT_BUCKET_MS, minimum=1)
        super().configure(config)

    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable:
        """Return topic, bucket and fate. Raises ValueError without a timestamp."""
        if timestamp is None:
            raise ValueError("message without a timestamp: its bucket is undefined")
        # Divides towards 0 as Java does, for times before 1970.
        bucket = abs(timestamp) // self._bucket_ms
        return AuditKey(topic, bucket if timestamp >= 0 else -bucket, audit_type)

    def create_stats(self) -> AuditStats:
        """Return empty counts of messages and bytes."""
        return CountingAuditStats()

    def on_tick(self, stats: AuditStats) -> None:
        """Log an interval."""
        self._log_stats(stats)

    def on_closed(self, current: AuditStats, following: AuditStats, timeout: float) -> None:
        """Log the remaining counts."""
        _LOG.info("Logging auditing stats on closure...")
        self._log_stats(current)
        self._log_stats(following)

    def _log_stats(self, stats: AuditStats) -> None:
        if isinstance(stats, CountingAuditStats):
            for key, count in stats.stats().items():
                if isinstance(key, AuditKey):
                    begin, end = key.bucket * self._bucket_ms, (key.bucket + 1) * self._bucket_ms
                    _LOG.info("[%s - %s] : %s, %s", format_java_date(begin), format_java_date(end), key, count)


def format_java_date(milliseconds: int) -> str:
    """Format a time in UTC as Java's Date.toString; plain milliseconds beyond the year 9999."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return f"{DAYS[time.weekday()]} {MONTHS[time.month - 1]} {time:%d %H:%M:%S} UTC {time.year:04d}"
