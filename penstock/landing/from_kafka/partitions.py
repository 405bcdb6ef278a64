"""The partitions of a Kafka cluster that the pipeline lands, as ``pipeline status`` and the console show them."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # documented there

from penstock.kafka.client.administration import Administration
from penstock.kafka.client.broker_answers import LEADER_CHANGES, NO_SUCH_TOPIC, retry_transient
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.read_back import consumer
from penstock.log.topic_patterns import is_selected
from penstock.qualified_names import partition_name, split_partition

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")
CREATE_OR_GRANT = "create one, correct pipeline.topics, or grant this user Describe and Read"
ANSWER_TIMEOUT_S = 10.0
"""Limit: a command that shows a status waits no longer for metadata and ends of partitions."""
RETRY_INTERVAL_S = 0.5
MAX_NAMED = 5
"""Partitions without a leader that a line names: a broker that ends may hold thousands."""
RECORD_TIMEOUT_S = 2.0
"""Limit: wait for the oldest record that has not landed, for all partitions together."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The last stable offset of a partition."""

    end: int


class KafkaPartitions:
    """Partitions by name (``events/0``). ``kafka``: properties of confluent-kafka's client. Any thread.

    ``skips_leaderless``: leave out a partition without a leader, which else is an error.
    """

    def __init__(self, kafka: Mapping[str, str], *, skips_leaderless: bool = False) -> None:
        self._kafka, self._skips_leaderless = dict(kafka), skips_leaderless
        self._deadline = 0.0
        self.problem = ""
        """The topics and partitions that the last ``views`` left out, with the next step; empty if it saw all."""
        self.leaderless: tuple[str, ...] = ()
        """The partitions without a leader that the last ``views`` left out."""

    @functools.cached_property
    def _administration(self) -> Administration:
        return Administration(self._kafka)

    def views(self, patterns: Sequence[str], timeout_s: float | None = None) -> dict[str, PartitionView]:
        """Return the partitions of selected topics, sorted by topic and number.

        Metadata and ends may take ``timeout_s`` each, ``ANSWER_TIMEOUT_S`` if None. Raises KafkaAway.
        """
        timeout_s = ANSWER_TIMEOUT_S if timeout_s is None else timeout_s
        with self._administration.requests("does not answer") as admin:
            topics = admin.list_topics(timeout=timeout_s).topics
            leaderless = self._leaderless(topics, patterns)
            # A partition has no leader for a moment while brokers restart. What leaves it out asks again anyway.
            leader_due_at = time.monotonic() + timeout_s
            while leaderless and not self._skips_leaderless and time.monotonic() < leader_due_at:
                time.sleep(RETRY_INTERVAL_S)
                topics = admin.list_topics(timeout=timeout_s).topics
                leaderless = self._leaderless(topics, patterns)
            lines = self._unseen(admin, list(topics), patterns, timeout_s)
            self.leaderless = tuple(sorted(leaderless))
            # The request for ends fails for all partitions if one of them has no leader.
            if leaderless:
                more = len(leaderless) - MAX_NAMED
                names = ", ".join(self.leaderless[:MAX_NAMED]) + (f" and {more:,} others" if more > 0 else "")
                lines.append(f"no broker leads {names}: start the brokers that hold it")
            self.problem = f"Kafka at {self._kafka.get('bootstrap.servers')}: {'; '.join(lines)}" if lines else ""
            if leaderless and not self._skips_leaderless:
                raise KafkaAway(self.problem)
            partitions = [
                TopicPartition(name, number)
                for name in sorted(topics)
                if is_selected(name, patterns)
                for number in sorted(topics[name].partitions)
                if partition_name(name, number) not in leaderless
            ]
            ends = retry_transient(lambda left_s: _ends(admin, partitions, left_s), timeout_s, LEADER_CHANGES)
        self._deadline = time.monotonic() + RECORD_TIMEOUT_S
        return {
            partition_name(partition.topic, partition.partition): PartitionView(ends[partition])
            for partition in partitions
        }

    def begins(self, names: Sequence[str]) -> dict[str, int]:
        """Return the first readable offsets of existing partitions. Raises KafkaAway."""
        earliest: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # as above
        partitions = {TopicPartition(*split_partition(name)): earliest for name in names}
        begins = {}
        with self._administration.requests("does not give the first offsets") as admin:
            futures = admin.list_offsets(partitions, request_timeout=ANSWER_TIMEOUT_S)
            for partition, future in futures.items():
                try:
                    offset = int(future.result(ANSWER_TIMEOUT_S).offset)
                    begins[partition_name(partition.topic, partition.partition)] = offset
                except KafkaException as error:
                    if error.args[0].code() not in NO_SUCH_TOPIC:
                        raise
        return begins

    @staticmethod
    def _leaderless(topics: Mapping[str, Any], patterns: Sequence[str]) -> set[str]:
        """Return the selected partitions without a leader."""
        return {
            partition_name(name, number)
            for name in topics
            if is_selected(name, patterns)
            for number, partition in topics[name].partitions.items()
            if partition.leader < 0
        }

    def _unseen(
        self, admin: AdminClient, topics: Sequence[str], patterns: Sequence[str], timeout_s: float
    ) -> list[str]:
        """Return the patterns that select none of ``topics``, and why; Kafka hides topics without the right Describe.

        Raises TimeoutError.
        """
        unseen = [pattern for pattern in patterns if not any(is_selected(name, [pattern]) for name in topics)]
        names = [pattern for pattern in unseen if TOPIC_NAME.fullmatch(pattern)]
        lines = [f"no topic matches {pattern!r}: {CREATE_OR_GRANT}" for pattern in unseen if pattern not in names]
        requests: Mapping[str, Any] = (
            admin.describe_topics(TopicCollection(names), request_timeout=timeout_s) if names else {}
        )
        for name, request in requests.items():
            try:
                request.result(timeout_s)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    lines.append(f"topic {name!r} may not be described: grant Describe and Read on it to this user")
                elif error.args[0].code() in NO_SUCH_TOPIC:
                    lines.append(f"topic {name!r} does not exist: create it, or correct pipeline.topics")
                else:  # an invalid name, or what a broker cannot answer: it concerns no other topic
                    lines.append(f"topic {name!r} cannot be described: {error.args[0].str()}")
        return lines

    def waiting_since(self, topic: str, offset: int) -> int | None:
        """Return the time of the first record from ``offset`` on, in microseconds; None if it is not known in time."""
        name, number = split_partition(topic)
        with consumer(self._kafka) as client:
            client.assign([TopicPartition(name, number, offset)])
            while (remaining_s := self._deadline - time.monotonic()) > 0:
                message = client.poll(remaining_s)
                if message is None or message.error():
                    return None
                return int(message.timestamp()[1]) * 1000
        return None


def _ends(admin: AdminClient, partitions: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """Return the ends of partitions for readers of committed records. Raises KafkaException, TimeoutError."""
    if not partitions:
        return {}
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above
    requested = dict.fromkeys(partitions, latest)
    futures = admin.list_offsets(requested, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s)
    due_at = time.monotonic() + timeout_s
    return {
        partition: int(future.result(max(due_at - time.monotonic(), 0)).offset) for partition, future in futures.items()
    }
