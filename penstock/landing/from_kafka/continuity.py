"""Checks that offsets of Kafka's partitions still name the messages that landed at them.

A topic that is deleted and created again has another id, and its offsets begin at 0. Spark continues at the former
offset, or at the lower end: it skips the messages before, and lands others at the offsets of former rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.kafka.client.administration import Administration
from penstock.kafka.client.broker_answers import NO_SUCH_TOPIC
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.landing.topics.continuity import OffsetsRestarted
from penstock.log.topic_patterns import is_selected
from penstock.qualified_names import topic_of

ANSWER_TIMEOUT_S = 10.0
MAX_WAIT_S = 60.0
"""Limit: a batch waits as long for the ids of its topics, while brokers restart; then it is repeated."""
ANNOUNCED_AFTER_S = 5.0
"""Time after which the log says what a batch waits for."""
UNKNOWN_WAIT_S = 5.0
"""Limit: a broker may not know a new topic for a moment; then a missing topic counts as deleted."""
CUT_CONFIRMED_S = 10.0
"""Time for which Kafka must show a lower end: a new leader may know less than it has stored. A cut stays stored."""
RETRY_INTERVAL_S = 0.5
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers before Kafka 2.8 give: of them only a lower end shows that a topic was created again."""
REMEDY = (
    "Nothing lands until its messages go to a topic of another name and pipeline.topics names the others without it, "
    "or pipeline.tables another folder"
)

_LOGGER = logging.getLogger(__name__)


class KafkaContinuity:
    """The checks of a cluster's topics: by their ids, and by ends that are lower than landed offsets.

    ``marks`` is the file with the id of each topic that landed, and with partitions whose end was cut.
    """

    def __init__(self, kafka: Mapping[str, str], patterns: Sequence[str], marks: Path) -> None:
        self._kafka, self._patterns, self._path = dict(kafka), patterns, marks
        self._administration = Administration(self._kafka)
        self._ids, self._cut = _load_marks(marks)

    def check(self) -> None:
        """Check the selected topics; without an answer of Kafka, batches are still checked. Raises OffsetsRestarted."""
        self._ids, self._cut = _load_marks(self._path)
        for topic in self._selected(self._cut):
            raise OffsetsRestarted(self._cut[topic])
        if names := self._selected(self._ids):
            try:
                self._compare(self._read_ids(names, max_wait_s=0))
            except KafkaAway:
                return

    def check_answers(self) -> None:
        """Check that Kafka gives ids of the selected topics, and of topics that landed. Raises KafkaAway."""
        views = KafkaPartitions(self._kafka, skips_leaderless=True).views(self._patterns)
        self._read_ids({*map(topic_of, views), *self._selected(self._ids)}, max_wait_s=0)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of existing topics; NO_ID for brokers that give none. Raises KafkaAway."""
        return self._wait_for_ids(sorted(topics), MAX_WAIT_S)

    def before_reading(self, ends: Mapping[str, int]) -> None:
        """Note the ids of new topics. Raises OffsetsRestarted, KafkaAway."""
        ids = self._read_ids({topic_of(name) for name in ends})
        self._compare(ids)
        # Order: in memory now, in the file with the check after reading: rows of this id were read in between.
        self._ids = {**ids, **self._ids}

    def after_reading(self, ends: Mapping[str, int]) -> None:
        """Check the ids again, and store new ones. Raises OffsetsRestarted, KafkaAway, OSError."""
        self._compare(self._read_ids({topic_of(name) for name in ends}))
        self.store_ids()

    def store_ids(self) -> None:
        """Store the ids that were noted since the last call. Raises OSError."""
        if self._ids != _load_marks(self._path)[0]:
            self._write()

    def check_ends(self, landed: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Check that a batch continues behind the landed offsets of partitions. Raises OffsetsRestarted, KafkaAway."""
        lower = {name: end for name, end in ends.items() if end < landed.get(name, 0)}
        if not lower:
            return
        names = {topic_of(name) for name in lower}
        self._compare(self._read_ids(names))
        if (name := self._confirmed_cut({name: landed[name] for name in lower})) is None:
            raise KafkaAway(f"Kafka showed an earlier end of {min(lower)} for a moment: the batch is planned again")
        topic = topic_of(name)
        self._cut[topic] = (
            f"partition {name} of Kafka ends at {lower[name]}, and its offsets before {landed[name]} have landed: "
            f"topic {topic} was created again, or its end was cut. {REMEDY}"
        )
        # Order: stored first. Later offsets may pass the landed ones, and then nothing else shows it.
        self._write()
        raise OffsetsRestarted(self._cut[topic])

    def _confirmed_cut(self, landed: Mapping[str, int]) -> str | None:
        """Return a partition that ends before its landed offset for ``CUT_CONFIRMED_S``. Raises KafkaAway.

        Not one that Kafka does not show: its broker does not know it yet, or its topic is being deleted.
        """
        suspects, confirmed_at = sorted(landed), time.monotonic() + CUT_CONFIRMED_S
        partitions = KafkaPartitions(self._kafka)
        while suspects:
            views = partitions.views(sorted({topic_of(name) for name in suspects}))
            suspects = [name for name in suspects if name in views and views[name].end < landed[name]]
            if suspects and time.monotonic() >= confirmed_at:
                return suspects[0]
            time.sleep(RETRY_INTERVAL_S if suspects else 0)
        return None

    def _selected(self, topics: Iterable[str]) -> list[str]:
        return sorted(topic for topic in topics if is_selected(topic, self._patterns))

    def _compare(self, ids: Mapping[str, str]) -> None:
        for topic, topic_id in ids.items():
            if self._ids.get(topic, topic_id) != topic_id:
                raise OffsetsRestarted(
                    f"topic {topic} of Kafka was deleted and created again: its offsets begin again, and name other "
                    f"messages than those that landed. {REMEDY}"
                )

    def _read_ids(self, topics: Iterable[str], max_wait_s: float | None = None) -> dict[str, str]:
        """Return the ids of existing topics; None waits ``MAX_WAIT_S``. Raises KafkaAway."""
        ids = self._wait_for_ids(sorted(topics), MAX_WAIT_S if max_wait_s is None else max_wait_s)
        return {name: topic_id for name, topic_id in ids.items() if topic_id != NO_ID}

    def _wait_for_ids(self, names: Sequence[str], max_wait_s: float) -> dict[str, str]:
        began_at, is_announced = time.monotonic(), max_wait_s <= ANNOUNCED_AFTER_S
        while names:
            try:
                ids = self._describe(names, ANSWER_TIMEOUT_S if is_announced else ANNOUNCED_AFTER_S)
                waited_s = time.monotonic() - began_at
                if len(ids) == len(names) or waited_s > min(max_wait_s, UNKNOWN_WAIT_S):
                    return ids
                time.sleep(RETRY_INTERVAL_S)
            except KafkaAway as error:
                waited_s = time.monotonic() - began_at
                if waited_s > max_wait_s:
                    raise
                if not is_announced and waited_s >= ANNOUNCED_AFTER_S:
                    _LOGGER.warning("a batch waits up to %g s for Kafka: %s", max_wait_s, error)
                    is_announced = True
                time.sleep(RETRY_INTERVAL_S)
        return {}

    def _describe(self, names: Sequence[str], timeout_s: float) -> dict[str, str]:
        ids = {}
        with self._administration.requests("does not give the ids of topics") as admin:
            futures: Mapping[str, Any] = admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
            for name, future in futures.items():
                try:
                    ids[name] = str(future.result(timeout_s).topic_id)
                except KafkaException as error:
                    if error.args[0].code() not in NO_SUCH_TOPIC:
                        raise
        return ids

    def _write(self) -> None:
        write_document(self._path, {"ids": self._ids, "cut": self._cut})


def _load_marks(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    try:
        if "rows" in (document := read_document(path)):
            # Of the log, before the pipeline moved to Kafka.
            return {}, {}
        ids, cut = ({str(topic): str(text) for topic, text in document[key].items()} for key in ("ids", "cut"))
    except FileNotFoundError:
        return {}, {}
    except (DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        _LOGGER.warning("%s is damaged: a topic that was created again until now is not recognized", path)
        return {}, {}
    return ids, cut
