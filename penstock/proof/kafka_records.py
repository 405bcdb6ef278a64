"""The entry to all that needs Kafka's client, for code that must not import Kafka's client, an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.from_kafka.partitions import KafkaPartitions
    from penstock.landing.table_paths import Layout
    from penstock.proof.group_offsets import GroupOffsets
    from penstock.proof.posts.ends import EndsPosts
    from penstock.proof.reread.kafka import KafkaRecords


def kafka_records(kafka: Mapping[str, str] | None, gap: int, event_types: Sequence[str] = ()) -> KafkaRecords | None:
    """Return the records of Kafka; None without ``kafka``, the properties of its client."""
    if kafka is None:
        return None
    from penstock.proof.reread.kafka import KafkaRecords

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

    return KafkaPartitions(settings.pipeline.kafka, skips_leaderless=True)


def ends_posts(kafka: Mapping[str, str] | None, patterns: Sequence[str], layout: Layout) -> EndsPosts | None:
    """Return the posts of the ends of all partitions of selected topics; None without Kafka."""
    if kafka is None:
        return None
    from penstock.proof.posts.ends import EndsPosts

    return EndsPosts(kafka, patterns, layout.pipeline)
