"""Producers of Kafka's protocol, and a run with them. Start at ``simulate_producers``.

A producer has one request in flight, and sends it again until it is answered. Requests of idempotent producers also
arrive again later.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
from kio.schema.errors import ErrorCode

from penstock.log import TopicReader
from penstock.records import SCHEMA, body
from penstock.server.kafka.records.encode import encode
from penstock.server.kafka.schema.messages import Api
from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.groups.members import Client, Network
from penstock.testing.simulation.groups.run import GroupsRun, run_seed
from penstock.testing.simulation.outcome import Outcome
from penstock.testing.simulation.promises import Broken, Sent, rows_of
from penstock.testing.simulation.run import MESSAGES, STEPS
from penstock.testing.simulation.senders import Messages

PRODUCERS = {
    "exact": ("orders", -1, True),
    "exact too": ("bills", 1, True),
    "repeating": ("orders", 1, False),
    "unanswered": ("bills", 0, False),
}
"""Topic, ``acks`` and idempotence of each producer."""
MAX_MESSAGES_AT_ONCE = 3
STEPS_OF_PRODUCERS = 2
"""Steps of producers in each step of the run."""
CREATED_US = 1_700_000_000_000_000
_CHECKED_FROM, _CHECKSUM, _PRODUCER = 21, 17, 43
"""Positions in the header of a batch."""
_RETRIABLE = (
    ErrorCode.kafka_storage_error,
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
)
"""Errors that a client answers with a retry."""


def record_batch(payloads: list[bytes], producer: int, epoch: int, sequence: int) -> bytes:
    """Return a batch as a client sends it; ``producer`` -1: not idempotent."""
    count = len(payloads)
    times = pa.array(np.full(count, CREATED_US)).view(SCHEMA.field("timestamp").type)
    columns = [pa.array(np.arange(count)), times, *body(payloads).columns]
    batch = bytearray(encode(pa.RecordBatch.from_arrays(columns, schema=SCHEMA)))
    struct.pack_into(">h", batch, _CHECKED_FROM, 0)
    struct.pack_into(">qhi", batch, _PRODUCER, producer, epoch, sequence)
    struct.pack_into(">I", batch, _CHECKSUM, crc32c.crc32c(bytes(batch[_CHECKED_FROM:])))
    return bytes(batch)


class Producer(Client):
    """A producer of one topic."""

    def __init__(
        self, name: str, network: Network, dice: random.Random, topic: str, acks: int, is_idempotent: bool, count: int
    ) -> None:
        super().__init__(name, network, dice)
        self._versions |= {Api.PRODUCE: dice.choice([3, 7, 9]), Api.INIT_PRODUCER_ID: dice.choice([0, 4])}
        self.topic, self._acks, self.is_idempotent = topic, acks, is_idempotent
        self._messages = Messages(name, network.world, dice, count)
        self._producer, self._epoch, self._sequence = -1, -1, 0
        self._sent: Sent | None = None
        self.may_repeat = False
        """Whether it has begun again with a new id, because the log has lost its last number."""

    @property
    def is_idle(self) -> bool:
        return not self._messages.remaining and self._sent is None

    def step(self) -> None:
        """Take the answer that has arrived, and send the next request, or the same one again."""
        if self.take_answer() or not self.network.world.daemon.is_running or self.is_idle:
            return
        if self.is_idempotent and self._producer < 0:
            request = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
            self.send(Api.INIT_PRODUCER_ID, self._take_id, request)
            return
        if self._sent is None:
            self._sent = Sent(self.topic, self._messages.make(MAX_MESSAGES_AT_ONCE), self.is_idempotent)
            self.network.world.promises.sent.append(self._sent)
        sent = self._sent
        producer = (self._producer, self._epoch, self._sequence) if self.is_idempotent else (-1, -1, -1)
        partition = {"index": 0, "records": record_batch(sent.payloads, *producer)}
        topics = [{"name": self.topic, "partition_data": [partition]}]
        sent.uncertain += 1
        self.send(Api.PRODUCE, self._take_offset, {"transactional_id": None, "acks": self._acks, "topic_data": topics})
        if self._acks == 0 and self._attempt is not None:
            self._attempt = self._sent = None

    def _take_id(self, answer: Any) -> None:
        if answer.error_code is ErrorCode.none:
            self._producer, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def _take_offset(self, answer: Any) -> None:
        partition, sent, promises = answer.responses[0].partition_responses[0], self._sent, self.network.world.promises
        assert sent is not None
        code = partition.error_code
        if code is ErrorCode.none:
            sent.uncertain -= 1
            promises.acknowledge(sent, partition.base_offset)
            self._sequence += len(sent.payloads)
            self._sent = None
            return
        self.record(f"refused: {code.name}: {getattr(partition, 'error_message', None)}")
        if code is ErrorCode.out_of_order_sequence_number and promises.damages:
            # The number before is lost with its rows, so no retry is ever accepted: the client begins again.
            self._producer, sent.once, self.may_repeat = -1, False, True
        elif code not in _RETRIABLE:
            raise Broken(f"{self.name}: number {self._sequence} is refused: {code.name}")


def simulate_producers(
    seed: int, *, steps: int = STEPS, messages: int = MESSAGES, faults: Iterable[int] | None = None
) -> Outcome:
    """Run a seed and return its outcome; ``faults`` selects faults by number. Files are in memory if possible."""
    return run_seed(ProducersRun, seed, steps, messages, faults)


class ProducersRun(GroupsRun):
    """A run of the pipe with groups of consumers, and producers."""

    def __init__(self, seed: int, folder: Path, steps: int, messages: int, faults: list[Fault]) -> None:
        super().__init__(seed, folder, steps, messages, faults)
        self._producer_dice = random.Random(f"{seed} producers")
        # What is not idempotent is stored again by a request that arrives again, so that none does.
        exact = Network(self._world, self._current_server, random.Random(f"{seed} exact network"))
        plain = Network(self._world, self._current_server, random.Random(f"{seed} plain network"))
        plain.has_faults = False
        self._networks = [exact, plain]
        self._producers = [
            Producer(name, exact if exactly else plain, random.Random(f"{seed} {name}"), topic, acks, exactly, messages)
            for name, (topic, acks, exactly) in PRODUCERS.items()
        ]

    def _stop_faults(self) -> None:
        super()._stop_faults()
        self._networks[0].has_faults = False

    def _come_to_rest(self, is_last: bool = False) -> None:
        super()._come_to_rest(is_last)
        self._networks[0].has_faults = True

    def _take_step(self) -> None:
        for _ in range(STEPS_OF_PRODUCERS):
            self._producer_dice.choice(self._producers).step()
            self._networks[0].step()
        super()._take_step()

    def _take_round(self) -> None:
        super()._take_round()
        for producer in self._producers:
            producer.step()

    def _take_answers(self) -> None:
        super()._take_answers()
        for producer in self._producers:
            producer.take_answer()

    def _is_at_rest(self) -> bool:
        return super()._is_at_rest() and all(producer.is_idle for producer in self._producers)

    def _check(self) -> None:
        super()._check()
        for producer in self._producers:
            if producer.is_idempotent and not producer.may_repeat:
                self._check_order(producer)

    def _check_order(self, producer: Producer) -> None:
        """Check that the messages of a producer are in their order. Raises Broken."""
        if producer.topic not in self._daemon.log.names():
            return
        rows = sorted(rows_of(batch.batch for batch in TopicReader(self.machine.topics / producer.topic).read(0)))
        name = producer.name.encode()
        payloads = [payload for _, (_, payload) in rows if payload.rsplit(b" ", 2)[0] == name]
        numbers = [int(payload.split(b" ")[-2]) for payload in payloads]
        if numbers != sorted(numbers):
            raise Broken(f"{producer.name}: its messages are stored in the order {numbers}")
