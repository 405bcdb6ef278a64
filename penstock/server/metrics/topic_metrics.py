"""Metrics of topics: their size on disk, and how far their readers lag."""

from __future__ import annotations

import contextlib

from penstock.files.file_system import OS
from penstock.log import CorruptBatch, Cursors, Lag, Log, LogError
from penstock.log.cursors import lags
from penstock.log.store.segment import stored_bytes
from penstock.server.metrics.prometheus import Family, Labels


def topic_families(log: Log) -> list[Family]:
    """Return families by topic, and by topic and cursor. Blocking."""
    sizes: list[tuple[Labels, float]] = []
    entries: list[tuple[Labels, float]] = []
    ages: list[tuple[Labels, float]] = []
    for name in log.names():
        # A topic that is deleted during the scan is left out.
        with contextlib.suppress(LogError, FileNotFoundError):
            lag_by_cursor = _lags(log, name)
            sizes.append(({"topic": name}, stored_bytes(log.directory / name)))
            entries += [({"topic": name, "cursor": cursor}, lag.entries) for cursor, lag in lag_by_cursor.items()]
            ages += [({"topic": name, "cursor": cursor}, lag.seconds) for cursor, lag in lag_by_cursor.items()]
    return [
        Family("penstock_topic_bytes", "gauge", "Bytes of a topic's segments", sizes),
        Family("penstock_cursor_lag_entries", "gauge", "Entries that a reader has still to read", entries),
        Family("penstock_cursor_lag_seconds", "gauge", "Age of the first entry that a reader has to read", ages),
    ]


def _lags(log: Log, name: str) -> dict[str, Lag]:
    """Return the lag of each cursor of a topic, from its files; the topic is opened only to repair damage."""
    folder = log.directory / name
    try:
        return lags(folder, Cursors(OS, folder).offsets(), log.clock.micros())
    except CorruptBatch:
        topic = log.topic(name)
        return topic.read_repaired(topic.lags)
