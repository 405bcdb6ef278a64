"""Where the proof reads Kafka's records again; Kafka's client, an extra, is imported only where it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.proof.reread import RereadSource


def kafka_records(kafka: Mapping[str, str] | None, gap: int, event_types: Sequence[str] = ()) -> RereadSource | None:
    """The records of Kafka; None where ``kafka``, the properties of its client, are none."""
    if kafka is None:
        return None
    from penstock.proof.reread_kafka import KafkaRecords

    return KafkaRecords(kafka, gap, event_types)
