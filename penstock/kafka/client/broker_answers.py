"""What a broker is asked about its topics, with patience: one that is just starting, or a new topic, answers soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.kafka.large.safe_offsets import TopicAndPartition

ANSWER_SECONDS = 30.0
"""How long the broker may take to answer a question."""
AGAIN_SECONDS = 0.1
PASSING = frozenset(
    (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
    )
)
"""Answers of a broker that is just starting, or has just handed over."""
NEW = PASSING | {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
"""Besides, those about a topic that was made a moment ago."""
T = TypeVar("T")


def patiently(ask: Callable[[float], T], seconds: float = ANSWER_SECONDS, passing: frozenset[int] = PASSING) -> T:
    """What ``ask(seconds left)`` returns, asked again until then while it raises one of ``passing``.

    Raises KafkaException.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return ask(max(0.1, until - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() >= until:
                raise
            time.sleep(AGAIN_SECONDS)


def partition_numbers(client: Any, topic: str, seconds: float = ANSWER_SECONDS, *, new: bool = False) -> list[int]:
    """The partitions of a topic, in order. ``client``: any of confluent-kafka's; ``new``: it was made just now.

    Raises KafkaException, also for a topic that is not there.
    """

    def ask(left: float) -> list[int]:
        told = client.list_topics(topic, left).topics[topic]
        if told.error:
            raise KafkaException(told.error)
        return sorted(told.partitions)

    return patiently(ask, seconds, NEW if new else PASSING)


def end_offset(client: Any, place: TopicAndPartition, seconds: float = ANSWER_SECONDS) -> int:
    """The offset behind a partition's last record that ``client``, a consumer, may see. Raises KafkaException."""
    return int(patiently(lambda left: client.get_watermark_offsets(TopicPartition(*place), timeout=left), seconds)[1])
