"""Producers of Kafka's protocol, and a run with them. Start at ``simulate_producers``.

A producer has several requests in flight on its connection. It sends a request again until it is answered, also while
the daemon may still have the first one from a connection that the producer has ended.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np
import pyarrow as pa
from kio.schema.errors import ErrorCode

from penstock.log import TopicReader
from penstock.records import SCHEMA, body
from penstock.server.kafka.records.encode import encode
from penstock.server.kafka.schema.messages import Api
from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.groups.connections import ClientConnection, Connections
from penstock.testing.simulation.groups.run import GroupsRun, run_seed
from penstock.testing.simulation.outcome import Outcome
from penstock.testing.simulation.promises import Broken, Sent, rows_of
from penstock.testing.simulation.run import MESSAGES, STEPS
from penstock.testing.simulation.senders import Messages


class Kind(NamedTuple):
    """A kind of producer. ``sends_ahead``: it sends a batch again while earlier ones are in flight."""

    topic: str
    acks: int
    is_idempotent: bool
    sends_ahead: bool


PRODUCERS = {
    "waiting": Kind("orders", -1, True, False),
    "ahead": Kind("bills", 1, True, True),
    "repeating": Kind("orders", 1, False, True),
    "unanswered": Kind("bills", 0, False, True),
}
MAX_IN_FLIGHT = 5
"""Limit of batches of an idempotent producer in Kafka's clients."""
DELIVERY_TIMEOUT_S = 15.0
END_SHARE = 0.02
"""Share of steps in which a producer ends its connection, as after a timeout."""
GIVE_UP_SHARE = 0.3
"""Share of such ends after which it gives its batches up, as with a short timeout: they arrive in a later epoch."""
MAX_MESSAGES_AT_ONCE = 3
STEPS_OF_PRODUCERS = 3
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

Handle = Callable[[Any, bool], None]
"""Gets an answer, and whether it reaches the client."""


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


@dataclass(slots=True, eq=False)
class Batch:
    """Messages in a producer's window. ``is_uncertain``: an attempt had no answer, or an error that leaves it open."""

    sent: Sent
    deadline: float
    sequence: int
    attempts: int = 0
    is_in_flight: bool = False
    is_uncertain: bool = False


class Producer:
    """A producer of one topic with up to MAX_IN_FLIGHT batches in its window, which it sends in order.

    After an error an idempotent producer sends the batches in sequence again. One that ``sends_ahead``, as librdkafka,
    does not wait for the first batch of its window; Java's client does. A batch that is too old is given up: once
    nothing is in flight, the next epoch begins with the batches that are certainly not stored.
    """

    def __init__(self, name: str, network: Connections, dice: random.Random, kind: Kind, messages: int) -> None:
        self.name, self._network, self._dice, self.kind = name, network, dice, kind
        self._versions = {Api.PRODUCE: dice.choice([3, 7, 9]), Api.INIT_PRODUCER_ID: 4}
        self._messages = Messages(name, network.world, dice, messages)
        self._connection: ClientConnection | None = None
        self._producer, self._epoch, self._sequence = -1, -1, 0
        self._window: list[Batch] = []
        self._is_draining = self._needs_id = False
        self._needs_id = kind.is_idempotent
        self._last_acknowledged: Batch | None = None
        self.epochs: list[list[Batch]] = [[]]
        """The batches of each epoch, in sequence."""
        self.may_repeat = False
        """Whether it has begun again, because the log has lost its last number."""

    @property
    def is_idle(self) -> bool:
        """Report whether all messages are acknowledged or given up."""
        return not self._messages.remaining and not self._window

    def step(self) -> None:
        """Take the answers that have come, and send the next request."""
        self.take_answers()
        network = self._network
        if self.is_idle or not network.world.daemon.is_running:
            return
        self._connection = self._connection or network.connect(self.name)
        if self._connection is not None:
            self._give_up_old_batches()
            self._send_next(self._connection)
            network.deliver(self._connection)

    def take_answers(self) -> None:
        """Take the answers that have come; end a connection that is late or broken."""
        connection, network = self._connection, self._network
        if connection is None:
            return
        connection.take_answers()
        ends = network.has_faults and network.dice.random() < END_SHARE
        if ends or connection.is_late or not network.is_open(connection):
            network.end(connection)
            self._connection = None
            gives_up = ends and network.dice.random() < GIVE_UP_SHARE
            for batch in self._window:
                batch.deadline = 0.0 if gives_up else batch.deadline
                batch.is_uncertain |= batch.is_in_flight
                batch.is_in_flight = False

    def _give_up_old_batches(self) -> None:
        now = self._network.world.machine.clock.monotonic()
        while self._window and self._window[0].deadline < now:
            self._record(f"gives up {self._window.pop(0).sequence}")
            self._is_draining = self.kind.is_idempotent

    def _send_next(self, connection: ClientConnection) -> None:
        if self._is_draining and not any(batch.is_in_flight for batch in self._window):
            self._end_epoch()
        if self._needs_id:
            if not connection.is_waiting:
                identity = {"producer_id": self._producer, "producer_epoch": self._epoch}
                self._send(connection, Api.INIT_PRODUCER_ID, {"transactional_id": None, **identity}, self._take_id)
        elif not self._is_draining and (batch := self._next_batch()) is not None:
            self._send_batch(connection, batch)

    def _next_batch(self) -> Batch | None:
        batch = next((batch for batch in self._window if not batch.is_in_flight), None)
        if batch is not None:
            is_turn = not batch.attempts or batch is self._window[0] or self.kind.sends_ahead
            return batch if is_turn else None
        if not self._messages.remaining or len(self._window) >= MAX_IN_FLIGHT:
            return None
        world = self._network.world
        sent = Sent(self.kind.topic, self._messages.make(MAX_MESSAGES_AT_ONCE), self.kind.is_idempotent)
        world.promises.sent.append(sent)
        batch = Batch(sent, world.machine.clock.monotonic() + DELIVERY_TIMEOUT_S, self._sequence)
        self._sequence += len(sent.payloads)
        self._window.append(batch)
        self.epochs[-1].append(batch)
        return batch

    def _send_batch(self, connection: ClientConnection, batch: Batch) -> None:
        producer = (self._producer, self._epoch, batch.sequence) if self.kind.is_idempotent else (-1, -1, -1)
        partition = {"index": 0, "records": record_batch(batch.sent.payloads, *producer)}
        topics = [{"name": self.kind.topic, "partition_data": [partition]}]
        request = {"transactional_id": None, "acks": self.kind.acks, "topic_data": topics}
        batch.sent.uncertain += 1
        batch.attempts += 1
        batch.is_in_flight = True
        self._send(connection, Api.PRODUCE, request, lambda *answer: self._take_offset(batch, *answer))
        if not self.kind.acks:
            self._window.remove(batch)

    def _send(self, connection: ClientConnection, api: Api, request: dict[str, Any], handle: Handle) -> None:
        has_answer = api is not Api.PRODUCE or self.kind.acks != 0
        connection.send(api, self._versions[api], request, handle, has_answer=has_answer)

    def _take_id(self, answer: Any, is_heard: bool) -> None:
        if is_heard and answer.error_code is ErrorCode.none:
            self._producer, self._needs_id = answer.producer_id, False
            self._begin_epoch(answer.producer_epoch)

    def _take_offset(self, batch: Batch, answer: Any, is_heard: bool) -> None:
        partition, promises = answer.responses[0].partition_responses[0], self._network.world.promises
        code = partition.error_code
        if code is ErrorCode.none and not (is_heard and batch in self._window):
            # A retry has the same offset, also if no client gets the answer.
            promises.check_offset(batch.sent, partition.base_offset)
        if not is_heard or batch not in self._window:
            return
        batch.is_in_flight = False
        if code is ErrorCode.none:
            self._acknowledge(batch, partition.base_offset)
            return
        self._record(f"{batch.sequence} is refused: {code.name}: {getattr(partition, 'error_message', None)}")
        is_out_of_order = code is ErrorCode.out_of_order_sequence_number
        batch.is_uncertain |= not is_out_of_order
        if is_out_of_order and batch is self._window[0] and not self._is_draining and promises.damages:
            # The number before is lost with its rows, so no retry is ever accepted: the client begins again.
            self._is_draining = self.may_repeat = True
        elif is_out_of_order and (batch is not self._window[0] or self._is_draining):
            return
        elif code not in _RETRIABLE:
            raise Broken(f"{self.name}: number {batch.sequence} is refused: {code.name}")

    def _acknowledge(self, batch: Batch, offset: int) -> None:
        if self.kind.is_idempotent and batch is not self._window[0]:
            raise Broken(f"{self.name}: {batch.sequence} is stored before {self._window[0].sequence}")
        batch.sent.uncertain -= 1
        self._network.world.promises.acknowledge(batch.sent, offset)
        self._window.remove(batch)
        self._last_acknowledged = batch
        self._record(f"{len(batch.sent.payloads)} stored at {offset} of {self.kind.topic}")

    def _end_epoch(self) -> None:
        """Go on once nothing is in flight; in the next epoch, unless what followed a batch given up is stored."""
        if self.epochs[-1][-1] is self._last_acknowledged:
            self._is_draining = False
        elif self.kind.sends_ahead:
            self._needs_id = True
        else:
            self._begin_epoch(self._epoch + 1)

    def _begin_epoch(self, epoch: int) -> None:
        self._window = [batch for batch in self._window if not batch.is_uncertain]
        self.epochs[-1] = [batch for batch in self.epochs[-1] if batch not in self._window]
        self.epochs.append(list(self._window))
        self._epoch, self._sequence, self._is_draining = epoch, 0, False
        for batch in self._window:
            batch.sequence, batch.attempts = self._sequence, 0
            self._sequence += len(batch.sent.payloads)
        self._record(f"begins epoch {epoch} of {self._producer} with {len(self._window)} batches")

    def _record(self, text: str) -> None:
        self._network.world.record(self.name, text)

    def check(self, stored: list[bytes]) -> None:
        """Check the order and completeness of a topic's rows. Raises Broken."""
        name = self.name.encode()
        numbers = [int(payload.split(b" ")[-2]) for payload in stored if payload.rsplit(b" ", 2)[0] == name]
        if numbers != sorted(numbers):
            raise Broken(f"{self.name}: its messages are stored in the order {numbers}")
        if self._network.world.promises.damages:
            return  # rows of any batch may be lost
        payloads = set(stored)
        for batches in self.epochs:
            are_stored = [payload in payloads for batch in batches for payload in batch.sent.payloads]
            if are_stored != sorted(are_stored, reverse=True):
                raise Broken(f"{self.name}: a gap in its sequence is accepted: {are_stored} are stored")


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
        self._connections = Connections(self._world, self._current_server, random.Random(f"{seed} connections"))
        self._producers = [
            Producer(name, self._connections, random.Random(f"{seed} {name}"), kind, 4 * messages)
            for name, kind in PRODUCERS.items()
        ]

    def _stop_faults(self) -> None:
        super()._stop_faults()
        self._connections.has_faults = False

    def _come_to_rest(self, is_last: bool = False) -> None:
        super()._come_to_rest(is_last)
        self._connections.has_faults = True

    def _take_step(self) -> None:
        for _ in range(STEPS_OF_PRODUCERS):
            self._producer_dice.choice(self._producers).step()
            self._connections.step()
        super()._take_step()

    def _take_round(self) -> None:
        super()._take_round()
        for producer in self._producers:
            producer.step()
            self._connections.step()
        if (server := self._current_server()) is not None:
            self._of_daemon(lambda: server.settle(self._choose))

    def _take_answers(self) -> None:
        super()._take_answers()
        for producer in self._producers:
            producer.take_answers()

    def _is_at_rest(self) -> bool:
        return super()._is_at_rest() and all(producer.is_idle for producer in self._producers)

    def _check(self) -> None:
        super()._check()
        for producer in self._producers:
            topic = producer.kind.topic
            if producer.kind.is_idempotent and not producer.may_repeat and topic in self._daemon.log.names():
                rows = sorted(rows_of(batch.batch for batch in TopicReader(self.machine.topics / topic).read(0)))
                producer.check([payload for _, (_, payload) in rows])
