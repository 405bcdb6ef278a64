"""The entry to ``reread_kafka`` for code that must not import Kafka's client, an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.proof.reread import RereadSource


def kafka_records(kafka: Mapping[str, str] | None, gap: int, event_types: Sequence[str] = ()) -> RereadSource | None:
    """Return the records of Kafka; None without ``kafka``, the properties of its client."""
    if kafka is None:
        return None
    from penstock.proof.reread_kafka import KafkaRecords

    return KafkaRecords(kafka, gap, event_types)
