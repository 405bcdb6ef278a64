"""The auditor that writes its counts to the log, one line for each key."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.kafka.auditing.auditor import AuditType
from penstock.kafka.auditing.interval_auditor import AbstractAuditor, millis
from penstock.kafka.auditing.stats import AuditKey, AuditStats, CountingAuditStats

BUCKET = "auditor.bucket.ms"
DEFAULT_BUCKET = 600_000
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOG = logging.getLogger("penstock.kafka.auditing.LoggingAuditor")


class LoggingAuditor(AbstractAuditor):
    """Counts by topic, bucket of the message's time, and what happened, and logs every interval (level INFO).

    A line: ``[FROM - TO] : (TOPIC,BUCKET,TYPE), (N messages, N bytes)``, times as ``Thu Jan 01 00:00:00 UTC 1970``.
    """

    properties = AbstractAuditor.properties | {BUCKET}
    _bucket = DEFAULT_BUCKET

    def configure(self, config: Mapping[str, Any]) -> None:
        """``auditor.bucket.ms`` and what all auditors have. Raises BadAuditorSetting."""
        self._bucket = millis(config, BUCKET, DEFAULT_BUCKET, least=1)
        super().configure(config)

    def audit_key(
        self, token: Any, topic: str, timestamp: int | None, messages: int, size: int, audit_type: AuditType
    ) -> Hashable:
        """Topic, bucket and type. Raises ValueError without a timestamp. Buckets divide towards 0, as Java does."""
        if timestamp is None:
            raise ValueError("a message without a timestamp is in no bucket")
        bucket = abs(timestamp) // self._bucket
        return AuditKey(topic, bucket if timestamp >= 0 else -bucket, audit_type)

    def create_stats(self) -> AuditStats:
        """Counts of messages and bytes."""
        return CountingAuditStats()

    def on_tick(self, stats: AuditStats) -> None:
        """Log an interval."""
        self._log(stats)

    def on_closed(self, current: AuditStats, following: AuditStats, timeout: float) -> None:
        """Log what is left."""
        _LOG.info("Logging auditing stats on closure...")
        self._log(current)
        self._log(following)

    def _log(self, stats: AuditStats) -> None:
        if isinstance(stats, CountingAuditStats):
            for key, count in stats.stats().items():
                if isinstance(key, AuditKey):
                    begin, end = key.bucket * self._bucket, (key.bucket + 1) * self._bucket
                    _LOG.info("[%s - %s] : %s, %s", date_text(begin), date_text(end), key, count)


def date_text(millis_: int) -> str:
    """A time as Java prints it, in UTC; milliseconds themselves beyond the year 9999."""
    try:
        time = _EPOCH + timedelta(milliseconds=millis_)
    except OverflowError:
        return f"{millis_} ms"
    return f"{DAYS[time.weekday()]} {MONTHS[time.month - 1]} {time:%d %H:%M:%S} UTC {time.year:04d}"
