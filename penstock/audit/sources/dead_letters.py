"""Headers by which a record of a dead letter topic names the record that it is a copy of."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial

TEXT_ORIGINS = ("__connect.errors", "__streams.errors")
"""Prefixes of the headers of dead letters whose values are texts: of Kafka Connect and Kafka Streams."""
SPRING_TOPIC, SPRING_NUMBERS = "kafka_dlt-original-topic", ("kafka_dlt-original-partition", "kafka_dlt-original-offset")

PARTITIONS_END, OFFSETS_END = 1 << 31, 1 << 63
"""Kafka's partitions have 32 bits, its offsets 64, each with a sign."""


def dead_letter_origin(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of the record that a dead letter is a copy of; None if no header tells."""
    named = {name: content or b"" for name, content in headers}
    readers: list[Callable[[Mapping[str, bytes]], tuple[str, int, int]]]
    readers = [*(partial(_read_texts, prefix) for prefix in TEXT_ORIGINS), _read_spring]
    for read in readers:
        # A letter that went through several frameworks may have damaged headers of one.
        with contextlib.suppress(KeyError, ValueError, struct.error):
            topic, partition, offset = read(named)
            if 0 <= partition < PARTITIONS_END and 0 <= offset < OFFSETS_END:
                return topic, partition, offset
    return None


def _read_texts(prefix: str, named: Mapping[str, bytes]) -> tuple[str, int, int]:
    topic, partition, offset = (named[f"{prefix}.{name}"] for name in ("topic", "partition", "offset"))
    if not (partition.isdigit() and offset.isdigit()):
        raise ValueError("no numbers")
    return topic.decode(), int(partition), int(offset)


def _read_spring(named: Mapping[str, bytes]) -> tuple[str, int, int]:
    # Exact lengths: an empty header, or one of another type, is not the number 0.
    partition, offset = (named[name] for name in SPRING_NUMBERS)
    return named[SPRING_TOPIC].decode(), *struct.unpack(">i", partition), *struct.unpack(">q", offset)
