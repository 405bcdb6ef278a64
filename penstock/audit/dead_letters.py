"""Headers by which a record of a dead letter topic names the record that it is a copy of."""

from __future__ import annotations

from collections.abc import Sequence

TEXT_ORIGINS = ("__connect.errors", "__streams.errors")
"""Prefixes of the headers of dead letters whose values are texts: of Kafka Connect and Kafka Streams."""
SPRING_TOPIC, SPRING_NUMBERS = "kafka_dlt-original-topic", ("kafka_dlt-original-partition", "kafka_dlt-original-offset")


def dead_letter_origin(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of the record that a dead letter is a copy of; None if no header tells."""
    named = {name: content or b"" for name, content in headers}
    try:
        for prefix in TEXT_ORIGINS:
            if f"{prefix}.topic" in named:
                topic, partition, offset = (named[f"{prefix}.{name}"] for name in ("topic", "partition", "offset"))
                return topic.decode(), int(partition), int(offset)
        if SPRING_TOPIC in named:
            numbers = (int.from_bytes(named[name], "big") for name in SPRING_NUMBERS)
            return (named[SPRING_TOPIC].decode(), *numbers)  # type: ignore[return-value]  # two numbers
    except (KeyError, ValueError):
        return None
    return None
