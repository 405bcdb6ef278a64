"""Report how far the pipeline is to a Kafka consumer group, so that lag tools see it.

The pipeline never reads these offsets: its position is in its checkpoint. Therefore a report may fail, or be late,
without any effect on the landing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.qualified_names import is_partition, split_partition

COMMIT_INTERVAL_S = 5.0
"""Interval between reports: that of Kafka's own clients (auto.commit.interval.ms)."""
REQUEST_TIMEOUT_S = 10.0
_LOGGER = logging.getLogger(__name__)


class GroupOffsets:
    """Commits proved offsets to ``group``. ``kafka``: properties of confluent-kafka's client. One thread.

    Requests are answered in the background; an error is logged once and the newest offsets are sent again.
    """

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka, self._group = dict(kafka), group
        self._admin: Any = None
        self._committed: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._answer: Future[Any] | None = None
        self._next_s = 0.0
        self.problem = ""

    def report(self, ends: Mapping[str, int]) -> None:
        """Send changed offsets of partitions (``events/0``), unless a request is under way or was just sent."""
        if time.monotonic() >= self._next_s and self._take_answer():
            self._send(ends)

    def flush(self, ends: Mapping[str, int]) -> None:
        """Send what changed and wait for the answer, at most REQUEST_TIMEOUT_S."""
        self._wait()
        if self._take_answer():
            self._send(ends)
            self._wait()
            self._take_answer()

    def _send(self, ends: Mapping[str, int]) -> None:
        partitions = {name: end for name, end in ends.items() if is_partition(name)}
        changed = {name: end for name, end in partitions.items() if self._committed.get(name) != end}
        if not changed:
            return
        self._next_s = time.monotonic() + COMMIT_INTERVAL_S
        try:
            self._admin = self._admin or AdminClient({**self._kafka, "log_level": "0"})
            offsets = [TopicPartition(*split_partition(name), end) for name, end in changed.items()]
            request = [ConsumerGroupTopicPartitions(self._group, offsets)]
            (self._answer,) = self._admin.alter_consumer_group_offsets(
                request, request_timeout=REQUEST_TIMEOUT_S
            ).values()
            self._sent = changed
        except (KafkaException, ValueError, TypeError) as error:
            self._failed(error)

    def _take_answer(self) -> bool:
        """Handle the answer to the last request; return False while the request is in flight."""
        if self._answer is None:
            return True
        if not self._answer.done():
            return False
        answer, self._answer = self._answer, None
        try:
            refused = [partition.error for partition in answer.result().topic_partitions if partition.error]
        except KafkaException as error:
            self._failed(error)
            return True
        if refused:
            self._failed(KafkaException(refused[0]))
            return True
        self._committed.update(self._sent)
        self.problem = ""
        return True

    def _wait(self) -> None:
        if self._answer is not None:
            with contextlib.suppress(Exception):  # it is logged by ``_take_answer``
                self._answer.result(REQUEST_TIMEOUT_S)

    def _failed(self, error: Exception) -> None:
        problem = str(error)
        if problem != self.problem:
            _LOGGER.warning("offsets cannot be committed to group %s; the landing continues: %s", self._group, problem)
        self.problem = problem
