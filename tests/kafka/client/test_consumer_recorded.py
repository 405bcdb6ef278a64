"""The recorded seeks and commits of the Java library's consumer, repeated against a real broker."""

from __future__ import annotations

import time
import uuid
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Message, TopicPartition

from penstock.kafka import Consumer
from tests.kafka.kafka_helpers import DEADLINE, Topics
from tests.kafka.kafka_vectors import KAFKA, named, outcome, plain, told_headers, unhex

EACH = 7
"""One of so many runs each time; all of them in ``make soak``."""
CASES = KAFKA["consumer"]


class Recorded:
    """One case: a consumer that polls as many records as the recorded one did."""

    def __init__(self, topics: Topics, topic: str, case: dict[str, Any], group: str) -> None:
        self.at = TopicPartition(topic, 0)
        self.raw = topics.raw_consumer(topic, group)
        if case["name"].startswith("raw committed"):
            self._commit_raw(*case["ops"][0]["state"]["rawCommitted"])
        self.consumer: Consumer = topics.consumer(group_id=group, max_tracked_messages_per_partition=case["maxTracked"])
        self._take, self._left = self.consumer._plain.poll_batch, 0
        self.consumer._plain.poll_batch = self._take_some  # type: ignore[method-assign]
        self.consumer.assign([self.at])
        if not case["name"].startswith("raw committed"):
            self.consumer.seek_to_beginning()
            self.consumer._state.clear()

    def _commit_raw(self, offset: int, metadata: str) -> None:
        place = TopicPartition(*self._key(), offset, metadata=metadata)
        self.raw.commit(offsets=[place], asynchronous=False)

    def _key(self) -> tuple[str, int]:
        return self.at.topic, self.at.partition

    def _take_some(self, most: int, timeout: float) -> list[Message]:
        taken = self._take(min(most, self._left), timeout) if self._left else []
        self._left -= len(taken)
        return taken

    def poll(self, records: int) -> list[dict[str, Any]]:
        """What comes of so many records."""
        self._left = min(records, 10 - self.position())
        found: list[Message] = []
        until = time.monotonic() + DEADLINE
        while True:
            found += self.consumer.consume(100, 0.02)
            if self._left <= 0 or time.monotonic() > until:
                break
        return [
            {"offset": m.offset(), "value": m.value().decode(), "headers": told_headers(m.headers())} for m in found
        ]

    def position(self) -> int:
        (place,) = self.consumer.position([self.at])
        return int(place.offset)

    def done(self, op: dict[str, Any]) -> Any:
        consumer, place = self.consumer, TopicPartition(*self._key(), op.get("offset", -1))
        match op["op"]:
            case "poll":
                assert self.position() == op["rawPositionBefore"]
                return self.poll(op["maxRawRecords"])
            case "seek":
                return outcome(lambda: consumer.seek(place))
            case "seekToCommitted":
                return outcome(consumer.seek_to_committed)
            case "commitSync":
                return outcome(lambda: self._commit(None))
            case "commitSyncOffset":
                given = TopicPartition(*self._key(), op["offset"], metadata=op.get("metadata", ""))
                return outcome(lambda: self._commit([given]))
            case "safeOffsetAt":
                return outcome(lambda: consumer.safe_offset(self.at, op["offset"]))
        raise AssertionError(op)

    def _commit(self, offsets: list[TopicPartition] | None) -> None:
        if offsets or self.consumer.offsets_to_commit():  # nothing to commit is no error there
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def state(self) -> dict[str, Any]:
        (stored,) = self.raw.committed([self.at], timeout=30)
        (committed,) = self.consumer.committed([self.at])
        return {
            "rawPosition": self.position(),
            "position": self.position(),
            "safeOffset": self.consumer.safe_offset(self.at),
            "rawCommitted": _as_recorded(stored),
            "committed": _as_recorded(committed),
            "committedSafeOffset": self.consumer.committed_safe_offset(self.at),
        }


def _as_recorded(place: confluent_kafka.TopicPartition) -> list[Any] | None:
    return None if place.offset < 0 else [place.offset, place.metadata]


@pytest.fixture(scope="module")
def log(kafka_broker: Any) -> str:
    """A topic with the log that all cases share."""
    topics = Topics(kafka_broker, "recorded")
    name = topics.new()
    assert all(case["log"] == CASES[0]["log"] for case in CASES)
    topics.plain(name, [unhex(record["value"]) for record in CASES[0]["log"]])
    return name


def repeat(topics: Topics, log: str, case: dict[str, Any]) -> None:
    recorded = Recorded(topics, log, case, f"recorded {uuid.uuid4()}")
    for place, op in enumerate(case["ops"]):
        assert recorded.done(op) == plain(op["result"]), (place, op)
        if "state" in op:
            assert recorded.state() == op["state"], (place, op)
    recorded.raw.close()


@pytest.mark.parametrize("case", **named(CASES[::EACH]))
def test_a_consumer_of_a_real_broker_does_as_recorded(topics: Topics, log: str, case: dict[str, Any]) -> None:
    repeat(topics, log, case)


@pytest.mark.soak
@pytest.mark.parametrize("case", **named(CASES))
def test_all_that_is_recorded(topics: Topics, log: str, case: dict[str, Any]) -> None:
    repeat(topics, log, case)
