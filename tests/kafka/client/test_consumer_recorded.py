"""Recorded seeks and commits of the Java library's consumer, repeated against a real broker."""

from __future__ import annotations

import time
import uuid
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Message, TopicPartition

from penstock.kafka import Consumer
from tests.kafka.kafka_helpers import DEADLINE, Topics
from tests.kafka.kafka_vectors import KAFKA, headers_as_recorded, named, outcome, plain, unhex

EACH = 7
"""Share of the recorded runs that each test run repeats; ``make soak`` repeats all."""
CASES = KAFKA["consumer"]


class Recorded:
    """A recorded case, with a consumer that polls as many records as the recorded consumer did."""

    def __init__(self, topics: Topics, topic: str, case: dict[str, Any], group: str) -> None:
        self.tested_partition = TopicPartition(topic, 0)
        self.raw = topics.raw_consumer(topic, group)
        if case["name"].startswith("raw committed"):
            self._commit_raw(*case["ops"][0]["state"]["rawCommitted"])
        self.consumer: Consumer = topics.consumer(group_id=group, max_tracked_messages_per_partition=case["maxTracked"])
        self._poll_batch, self._records_to_poll = self.consumer._plain.poll_batch, 0
        self.consumer._plain.poll_batch = self._poll_limited  # type: ignore[method-assign]
        self.consumer.assign([self.tested_partition])
        if not case["name"].startswith("raw committed"):
            self.consumer.seek_to_beginning()
            self.consumer._state.clear()

    def _commit_raw(self, offset: int, metadata: str) -> None:
        committed = TopicPartition(*self._key(), offset, metadata=metadata)
        self.raw.commit(offsets=[committed], asynchronous=False)

    def _key(self) -> tuple[str, int]:
        return self.tested_partition.topic, self.tested_partition.partition

    def _poll_limited(self, most: int, timeout: float) -> list[Message]:
        batch = self._poll_batch(min(most, self._records_to_poll), timeout) if self._records_to_poll else []
        self._records_to_poll -= len(batch)
        return batch

    def poll(self, records: int) -> list[dict[str, Any]]:
        """Return the messages of the next ``records`` records."""
        self._records_to_poll = min(records, 10 - self.position())
        messages: list[Message] = []
        deadline = time.monotonic() + DEADLINE
        while True:
            messages += self.consumer.consume(100, 0.02)
            if self._records_to_poll <= 0 or time.monotonic() > deadline:
                break
        return [
            {"offset": m.offset(), "value": m.value().decode(), "headers": headers_as_recorded(m.headers())}
            for m in messages
        ]

    def position(self) -> int:
        (partition,) = self.consumer.position([self.tested_partition])
        return int(partition.offset)

    def apply(self, op: dict[str, Any]) -> Any:
        consumer, partition = self.consumer, TopicPartition(*self._key(), op.get("offset", -1))
        match op["op"]:
            case "poll":
                assert self.position() == op["rawPositionBefore"]
                return self.poll(op["maxRawRecords"])
            case "seek":
                return outcome(lambda: consumer.seek(partition))
            case "seekToCommitted":
                return outcome(consumer.seek_to_committed)
            case "commitSync":
                return outcome(lambda: self._commit(None))
            case "commitSyncOffset":
                committed = TopicPartition(*self._key(), op["offset"], metadata=op.get("metadata", ""))
                return outcome(lambda: self._commit([committed]))
            case "safeOffsetAt":
                return outcome(lambda: consumer.safe_offset(self.tested_partition, op["offset"]))
        raise AssertionError(op)

    def _commit(self, offsets: list[TopicPartition] | None) -> None:
        if offsets or self.consumer.offsets_to_commit():  # nothing to commit is not an error there
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def state(self) -> dict[str, Any]:
        (stored,) = self.raw.committed([self.tested_partition], timeout=30)
        (committed,) = self.consumer.committed([self.tested_partition])
        return {
            "rawPosition": self.position(),
            "position": self.position(),
            "safeOffset": self.consumer.safe_offset(self.tested_partition),
            "rawCommitted": _as_recorded(stored),
            "committed": _as_recorded(committed),
            "committedSafeOffset": self.consumer.committed_safe_offset(self.tested_partition),
        }


def _as_recorded(committed: confluent_kafka.TopicPartition) -> list[Any] | None:
    return None if committed.offset < 0 else [committed.offset, committed.metadata]


@pytest.fixture(scope="module")
def log(kafka_broker: Any) -> str:
    """A topic with the log of all cases."""
    topics = Topics(kafka_broker, "recorded")
    name = topics.new()
    assert all(case["log"] == CASES[0]["log"] for case in CASES)
    topics.plain(name, [unhex(record["value"]) for record in CASES[0]["log"]])
    return name


def repeat(topics: Topics, log: str, case: dict[str, Any]) -> None:
    recorded = Recorded(topics, log, case, f"recorded {uuid.uuid4()}")
    for index, op in enumerate(case["ops"]):
        assert recorded.apply(op) == plain(op["result"]), (index, op)
        if "state" in op:
            assert recorded.state() == op["state"], (index, op)
    recorded.raw.close()


@pytest.mark.parametrize("case", **named(CASES[::EACH]))
def test_consumer_of_a_real_broker_behaves_as_recorded(topics: Topics, log: str, case: dict[str, Any]) -> None:
    repeat(topics, log, case)


@pytest.mark.soak
@pytest.mark.parametrize("case", **named(CASES))
def test_each_recorded_case(topics: Topics, log: str, case: dict[str, Any]) -> None:
    repeat(topics, log, case)
