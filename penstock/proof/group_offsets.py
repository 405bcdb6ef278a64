"""Report how far the pipeline is to a Kafka consumer group, so that lag tools see it.

The pipeline never reads these offsets: its position is in its checkpoint. Therefore a report may fail, or be late,
without any effect on the landing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.qualified_names import is_partition, split_partition

COMMIT_INTERVAL_S = 5.0
"""Interval between reports: that of Kafka's own clients (auto.commit.interval.ms)."""
REQUEST_TIMEOUT_S = 10.0
POLL_S = 0.1
_LOGGER = logging.getLogger(__name__)


class GroupOffsets:
    """Commits proved offsets to ``group``. ``kafka``: properties of confluent-kafka's client. One thread.

    Requests are answered in the background; an error is logged once and the newest offsets are sent again.

    Workaround: a consumer that reads nothing, not the administrative client, whose requests to the coordinator of a
    group abort this process if a broker restarts (librdkafka 2.16, its pull request 5397).
    """

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka, self._group = dict(kafka), group
        self._client: Consumer | None = None
        self._committed: dict[str, int] = {}
        self._sent: dict[str, int] | None = None
        """The offsets of the request that is in flight."""
        self._next_s = 0.0
        self.problem = ""

    def report(self, ends: Mapping[str, int]) -> None:
        """Send changed offsets of partitions (``events/0``), unless a request is under way or was just sent."""
        if time.monotonic() >= self._next_s and self._take_answer(0):
            self._send(ends)

    def flush(self, ends: Mapping[str, int]) -> None:
        """Send what changed and wait for the answer, at most REQUEST_TIMEOUT_S."""
        if self._take_answer(REQUEST_TIMEOUT_S):
            self._send(ends)
            self._take_answer(REQUEST_TIMEOUT_S)

    def _send(self, ends: Mapping[str, int]) -> None:
        partitions = {name: end for name, end in ends.items() if is_partition(name)}
        changed = {name: end for name, end in partitions.items() if self._committed.get(name) != end}
        if not changed:
            return
        self._next_s = time.monotonic() + COMMIT_INTERVAL_S
        try:
            own = {
                "group.id": self._group,
                "enable.auto.commit": "false",
                "log_level": "0",
                "on_commit": self._answered,
            }
            self._client = self._client or Consumer({**self._kafka, **own})
            offsets = [TopicPartition(*split_partition(name), end) for name, end in changed.items()]
            self._client.commit(offsets=offsets, asynchronous=True)
            self._sent = changed
        except (KafkaException, ValueError, TypeError) as error:
            self._failed(error)

    def _take_answer(self, timeout_s: float) -> bool:
        """Handle the answer to the last request; return False while the request is in flight."""
        deadline = time.monotonic() + timeout_s
        while self._sent is not None:
            assert self._client
            # It calls ``_answered``; there are no messages, as nothing is subscribed.
            self._client.poll(min(timeout_s, POLL_S))
            if time.monotonic() >= deadline:
                break
        return self._sent is None

    def _answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        sent, self._sent = self._sent or {}, None
        refused = next((reason for reason in (error, *(partition.error for partition in partitions)) if reason), None)
        if refused:
            self._failed(KafkaException(refused))
            return
        self._committed.update(sent)
        self.problem = ""

    def _failed(self, error: Exception) -> None:
        problem = str(error)
        if problem != self.problem:
            _LOGGER.warning("offsets cannot be committed to group %s; the landing continues: %s", self._group, problem)
        self.problem = problem
