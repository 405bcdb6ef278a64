"""The entry to all that needs Kafka's client, for code that must not import Kafka's client, an extra."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.ledger.kafka_hosts import ENDS_TIER

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.from_kafka.partitions import KafkaPartitions
    from penstock.proof.group_offsets import GroupOffsets
    from penstock.proof.reread_kafka import KafkaRecords


def kafka_records(kafka: Mapping[str, str] | None, gap: int, event_types: Sequence[str] = ()) -> KafkaRecords | None:
    """Return the records of Kafka; None without ``kafka``, the properties of its client."""
    if kafka is None:
        return None
    from penstock.proof.reread_kafka import KafkaRecords

    return KafkaRecords(kafka, gap, event_types)


def group_offsets(kafka: Mapping[str, str] | None, group: str) -> GroupOffsets | None:
    """Return the offsets of a consumer group that shows how far the pipeline is; None without Kafka or a group."""
    if kafka is None or not group:
        return None
    from penstock.proof.group_offsets import GroupOffsets

    return GroupOffsets(kafka, group)


def kafka_partitions(settings: Settings) -> KafkaPartitions | None:
    """Return the partitions that the pipeline lands; None if it lands topics of the log."""
    if settings.pipeline.source != "kafka":
        return None
    from penstock.landing.from_kafka.partitions import KafkaPartitions

    return KafkaPartitions(settings.pipeline.kafka)


def ends_reader(kafka: Mapping[str, str] | None, patterns: Sequence[str]) -> Callable[[], dict[str, Any] | None]:
    """Return a function that reads the ends of all partitions of selected topics, as a post to the ledger.

    It returns None without Kafka, or if that does not answer.
    """
    if kafka is None:
        return lambda: None
    from penstock.kafka.errors import KafkaAway
    from penstock.landing.from_kafka.partitions import KafkaPartitions

    partitions = KafkaPartitions(kafka)

    def read() -> dict[str, Any] | None:
        began_at = time.monotonic()
        try:
            ends = {name: view.end for name, view in partitions.views(patterns).items()}
        except KafkaAway:
            return None
        # Order: whatever a host had forwarded before the request is before these ends, so its age counts from there.
        return {"tier": ENDS_TIER, "ends": ends, "age_ms": math.ceil((time.monotonic() - began_at) * 1000) + 1}

    return read
