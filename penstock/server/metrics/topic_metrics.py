"""Metrics of the topics: what they take on the disk, and how far their readers are behind."""

from __future__ import annotations

import contextlib

from penstock.files.file_system import OS
from penstock.log import CorruptBatch, Cursors, Lag, Log, LogError
from penstock.log.cursors import lags
from penstock.log.store.segment import stored_bytes
from penstock.server.metrics.prometheus import Family, Labels


def of_topics(log: Log) -> list[Family]:
    """Families by topic, and by topic and cursor; a topic that goes meanwhile is left out. Blocking."""
    sizes: list[tuple[Labels, float]] = []
    entries: list[tuple[Labels, float]] = []
    ages: list[tuple[Labels, float]] = []
    for name in log.names():
        with contextlib.suppress(LogError, FileNotFoundError):
            found = _lags(log, name)
            sizes.append(({"topic": name}, stored_bytes(log.directory / name)))
            entries += [({"topic": name, "cursor": cursor}, lag.entries) for cursor, lag in found.items()]
            ages += [({"topic": name, "cursor": cursor}, lag.seconds) for cursor, lag in found.items()]
    return [
        Family("penstock_topic_bytes", "gauge", "Bytes of a topic's segments", sizes),
        Family("penstock_cursor_lag_entries", "gauge", "Entries that a reader has still to read", entries),
        Family("penstock_cursor_lag_seconds", "gauge", "Age of the first entry that a reader has to read", ages),
    ]


def _lags(log: Log, name: str) -> dict[str, Lag]:
    """How far a topic's cursors are behind; it is opened only where something in it has to be made a gap."""
    folder = log.directory / name
    try:
        return lags(folder, Cursors(OS, folder).all(), log.clock.micros())
    except CorruptBatch:
        topic = log.topic(name)
        return topic.read_repaired(topic.lags)
