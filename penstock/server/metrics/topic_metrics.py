"""Metrics of topics: their size on disk, how far their readers lag, and what relays copied."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.handover.heartbeat import take_pulse
from penstock.log import CorruptBatch, Log, LogError
from penstock.log.topic_summary import TopicSummary
from penstock.server.metrics.prometheus import Family, Labels

MAX_RELAY_SILENCE_S = 30.0
"""Silence after which a relay counts as not connected; one that loses its connection notices within 15 s."""


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


def refused_batches_family(counts: Mapping[str, int]) -> Family:
    """Return the batches of Kafka's producers that were refused, by the name of the error."""
    samples: list[tuple[Labels, float]] = [({"reason": reason}, count) for reason, count in sorted(counts.items())]
    return Family("penstock_kafka_refused_batches_total", "counter", "Refused batches of Kafka's producers", samples)


def relay_families(published: Mapping[str, dict[str, Any]], topics: Sequence[Family]) -> list[Family]:
    """Return families by relay and topic, from what each configured relay ``published``; empty if it has not started.

    ``topics`` are the families of ``topic_families``: a lag is the one of the relay's cursor, also while it is down.
    """
    counts: dict[str, list[tuple[Labels, float]]] = {"entries": [], "bytes": [], "retries": [], "refusals": []}
    lags: dict[str, list[tuple[Labels, float]]] = {family.name: [] for family in topics}
    connected: list[tuple[Labels, float]] = []
    for relay, statistics in published.items():
        is_silent = take_pulse(statistics).silent_s > MAX_RELAY_SILENCE_S
        connected.append(({"relay": relay}, int(bool(statistics.get("connected")) and not is_silent)))
        for topic, numbers in statistics.get("topics", {}).items():
            for name, samples in counts.items():
                samples.append(({"relay": relay, "topic": topic}, numbers.get(name, 0)))
        for family in topics:
            lags[family.name] += [
                ({"relay": relay, "topic": labels["topic"]}, number)
                for labels, number in family.samples
                if labels.get("cursor") == f"relay-{relay}"
            ]
    entries, seconds = lags["penstock_cursor_lag_entries"], lags["penstock_cursor_lag_seconds"]
    return [
        Family("penstock_relay_connected", "gauge", "Whether the other side of a relay answers: 1 or 0", connected),
        Family("penstock_relay_entries_total", "counter", "Entries that the other side stored", counts["entries"]),
        Family("penstock_relay_bytes_total", "counter", "Bytes of the payloads of these entries", counts["bytes"]),
        Family("penstock_relay_retries_total", "counter", "Attempts that failed and are repeated", counts["retries"]),
        Family("penstock_relay_refusals_total", "counter", "Appends the other side refused", counts["refusals"]),
        Family("penstock_relay_lag_entries", "gauge", "Entries that a relay has still to copy", entries),
        Family("penstock_relay_lag_seconds", "gauge", "Age of the first entry that a relay has to copy", seconds),
    ]


def _summary(log: Log, name: str) -> TopicSummary:
    """Return the summary of a topic, which is opened only to repair damage."""
    try:
        return log.summaries.read(name)
    except CorruptBatch:
        return log.topic(name).read_repaired(lambda: log.summaries.read(name))
