"""Redelivery of missing records: produces them again to a topic that the operator names."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException, Message, Producer

from penstock.audit.outcome import Report
from penstock.audit.source import SourceUnavailable
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.landing.offset_runs import count_offsets

ORIGIN_HEADER = "penstock_audit_origin"
"""Topic, partition and offset of the missing record."""
FLUSH_TIMEOUT_S = 60.0
FLUSHED_RECORDS = 10_000
"""Limit: records that wait for their acknowledgements."""


def redeliver(source: KafkaSource, report: Report, topic: str, progress: Callable[[str], None] = lambda _: None) -> int:
    """Produce all missing records to ``topic``, with their keys, headers and timestamps; return their number.

    Raises SourceUnavailable if one is not acknowledged. A repeated call produces all of them again.
    """
    producer = Producer({**source.properties, "enable.idempotence": "true"})
    failures: list[str] = []
    delivered = 0

    def acknowledge(error: object, message: Message) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1
        else:
            failures.append(str(error))

    try:
        for part in report.partitions:
            for record in source.records(part.partition, part.missing, count_offsets(part.missing)):
                origin = f"{report.topic}-{record.partition}@{record.offset}".encode()
                headers: list[tuple[str, str | bytes | None]] = [*record.headers, (ORIGIN_HEADER, origin)]
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    timestamp=max(0, record.timestamp),
                    headers=headers,
                    on_delivery=acknowledge,
                )
                if len(producer) >= FLUSHED_RECORDS:
                    progress(f"{delivered:,} records delivered again")
                    producer.flush(FLUSH_TIMEOUT_S)
        remaining = producer.flush(FLUSH_TIMEOUT_S)
    except (KafkaException, BufferError) as error:
        raise SourceUnavailable(f"topic {topic}: {error} after {delivered:,} records were delivered again") from None
    if failures or remaining:
        reason = failures[0] if failures else "no answer"
        raise SourceUnavailable(f"topic {topic}: {reason}; {delivered:,} of {report.missing:,} records were delivered")
    return delivered
