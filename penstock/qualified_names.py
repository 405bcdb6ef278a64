"""Names of two parts: a partition of Kafka is ``TOPIC/NUMBER``, a source of another host ``HOST/SOURCE``.

Invariant: no topic of the log and no listener of this instance has ``/`` in its name, so the mark distinguishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MARK = "/"


def is_partition(name: str) -> bool:
    """Report whether a name is a partition of Kafka (``events/0``) and not a topic of the log."""
    return MARK in name


def partition_name(topic: str, partition: int | None) -> str:
    """Return the name of a partition of Kafka; of a topic of the log, which has no partition, the topic itself."""
    return topic if partition is None else f"{topic}{MARK}{partition}"


def split_partition(name: str) -> tuple[str, int]:
    """Return topic and number of a partition of Kafka. Raises ValueError for a topic of the log."""
    topic, _, number = name.rpartition(MARK)
    return topic, int(number)


def topic_and_partition(name: str) -> tuple[str, int | None]:
    """Return topic and number of a partition of Kafka; of a topic of the log the topic and None."""
    return split_partition(name) if is_partition(name) else (name, None)


def topic_of(name: str) -> str:
    """Return the topic of a partition of Kafka; a topic of the log unchanged."""
    return topic_and_partition(name)[0]


def flat_offsets(offsets: Mapping[str, Any]) -> dict[str, int]:
    """Return offsets by topic, or by topic and partition (``{"events": {"0": 5}}``), by name (``{"events/0": 5}``)."""
    flat: dict[str, int] = {}
    for topic, offset in offsets.items():
        if isinstance(offset, dict):
            flat |= {partition_name(topic, int(number)): int(end) for number, end in offset.items()}
        else:
            flat[topic] = int(offset)
    return flat


def nested_offsets(offsets: Mapping[str, int]) -> dict[str, Any]:
    """Return offsets by name as offsets by topic, and by the number of the partition if it has one; sorted."""
    nested: dict[str, Any] = {}
    for name, offset in sorted(offsets.items()):
        topic, partition = topic_and_partition(name)
        if partition is None:
            nested[topic] = offset
        else:
            nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def is_relayed(source: str) -> bool:
    """Report whether a source is one of another host."""
    return MARK in source


def relayed_name(host: str, source: str) -> str:
    """Return the name of another host's source."""
    return f"{host}{MARK}{source}"


def split_relayed(name: str) -> tuple[str, str]:
    """Return the host and the name there of another host's source; an empty source without the mark."""
    host, _, source = name.partition(MARK)
    return host, source
