"""Metrics of topics: their size on disk, and how far their readers lag."""

from __future__ import annotations

import contextlib

from penstock.log import CorruptBatch, Log, LogError
from penstock.log.topic_summary import TopicSummary
from penstock.server.metrics.prometheus import Family, Labels


def topic_families(log: Log) -> list[Family]:
    """Return families by topic, and by topic and cursor. Blocking."""
    sizes: list[tuple[Labels, float]] = []
    entries: list[tuple[Labels, float]] = []
    ages: list[tuple[Labels, float]] = []
    now = log.clock.micros()
    for name in log.names():
        # A topic that is deleted during the scan is left out.
        with contextlib.suppress(LogError, FileNotFoundError):
            summary = _summary(log, name)
            sizes.append(({"topic": name}, summary.segment_bytes))
            for cursor, backlog in summary.backlogs.items():
                labels: Labels = {"topic": name, "cursor": cursor}
                entries.append((labels, backlog.entries))
                ages.append((labels, backlog.lag(now).seconds))
    return [
        Family("penstock_topic_bytes", "gauge", "Bytes of a topic's segments", sizes),
        Family("penstock_cursor_lag_entries", "gauge", "Entries that a reader has still to read", entries),
        Family("penstock_cursor_lag_seconds", "gauge", "Age of the first entry that a reader has to read", ages),
    ]


def _summary(log: Log, name: str) -> TopicSummary:
    """Return the summary of a topic, which is opened only to repair damage."""
    try:
        return log.summaries.read(name)
    except CorruptBatch:
        return log.topic(name).read_repaired(lambda: log.summaries.read(name))
