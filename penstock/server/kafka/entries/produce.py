"""Produce and InitProducerId: append record batches to topics, each exactly once.

Idempotence: a producer's epoch and sequence become the log's producer number, so a repeated batch is stored once.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.kafka.errors import BadRecords
from penstock.log import Appended, OutOfSequence, ProducerSequence, Topic
from penstock.log.commit.deduplication import MAX_FAILED_FIRSTS, first_refused
from penstock.log.store.producers import EPOCH_BITS
from penstock.server.api.entries import EntriesApi
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import AnswerOnceStored, Call, code_of
from penstock.server.kafka.entries.unanswered_refusals import UnansweredRefusals
from penstock.server.kafka.errors import NO_TRANSACTIONS, TakesLong, UnansweredRefusal
from penstock.server.kafka.limits import MAX_REQUEST_BYTES
from penstock.server.kafka.records.creation_times import MAX_AHEAD_MS, NO_TIME
from penstock.server.kafka.records.decode import NO_PRODUCER, ProducedBatch, are_quick, decode, read_producer
from penstock.server.kafka.schema.messages import Parts, Request, Values, by_topic, encode_answer, partitions_of
from penstock.server.kafka.schema.stored_answers import stored_answer

SOURCE = "kafka"
SEQUENCE_MODULUS = 1 << 31
"""Sequence numbers of Kafka wrap around after this many."""
MAX_UNPACKED_BYTES = MAX_REQUEST_BYTES
"""Limit: bytes of all record batches of one request after decompression, the same as for an uncompressed request."""
LAST_EPOCH = (1 << 15) - 2
_UNKNOWN_PARTITION = {"error_code": ErrorCode.unknown_topic_or_partition, "base_offset": -1}
_NO_TRANSACTION = {
    "error_code": ErrorCode.transactional_id_authorization_failed,
    "error_message": NO_TRANSACTIONS,
    "base_offset": -1,
}


@dataclass(frozen=True, slots=True)
class QueuedBatch:
    """A batch that is queued for ``topic``."""

    topic: Topic
    batch: ProducedBatch
    stored: Future[Appended]


class StoredBatch(NamedTuple):
    """The first offset of a stored batch, and the log's time of it; NO_TIME if the producer's times are kept."""

    first: int
    append_time_ms: int


MAX_IN_FLIGHT = 5
"""Batches that an idempotent producer has in flight at most, as Kafka requires."""


class RefusedFirsts:
    """The first batches of producers that were refused, which clients send again: later ones must wait. Thread-safe.

    Any first number of a producer is accepted. If a later batch in flight became the first, the retry of the refused
    one would be older than what is remembered, which librdkafka reports as delivered. The log remembers the batches
    that failed while they were written; here are also batches that it never got.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """The number of the batch by topic and producer, and how many later batches were refused because of it."""

    def add(self, topic: str, producer: ProducerSequence) -> None:
        """Remember a refused batch."""
        with self._lock:
            key = (topic, producer.id)
            known, later = self._numbers.get(key, (producer.sequence, 0))
            first = first_refused(producer.sequence, known)
            self._numbers[key] = first, 0 if first == producer.sequence else later
            while len(self._numbers) > MAX_FAILED_FIRSTS:
                self._numbers.popitem(last=False)

    def check(self, topic: Topic, producer: ProducerSequence) -> None:
        """Raise OutOfSequence for a batch behind a refused one; the retry of the refused one is admitted.

        So is a batch that cannot have been in flight with it: its client has given the refused one up, as aiokafka does
        with a damaged one, and would never be served again.
        """
        key = (topic.name, producer.id)
        with self._lock:
            if key not in self._numbers:
                return
            refused, later = self._numbers[key]
            is_later = producer.sequence > refused and producer.sequence >> EPOCH_BITS == refused >> EPOCH_BITS
            if is_later and later < MAX_IN_FLIGHT and topic.writer.producers.last(producer.id) is None:
                self._numbers[key] = refused, later + 1
                raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} is after {refused}, refused before")
            del self._numbers[key]

    def watch(self, topic: str, producer: ProducerSequence, stored: Future[Appended]) -> None:
        """Remember the batch if it is not stored, for example because its topic is deleted during the wait."""

        def add_if_refused(done: Future[Appended]) -> None:
            error = None if done.cancelled() else done.exception()
            if isinstance(error, PenstockError) and code_of(error).retriable:
                self.add(topic, producer)

        stored.add_done_callback(add_if_refused)


Outcomes = list[tuple[str, int, Values | QueuedBatch]]
"""The batches of a request by topic and partition: queued, or the fields of an error."""


class Producing:
    """Handlers of producers' requests."""

    def __init__(self, api: EntriesApi, calls: LoopCalls) -> None:
        self._api = api
        self._refused_firsts = RefusedFirsts()
        self.unanswered_refusals = UnansweredRefusals(api.refused_batches, calls)

    async def produce(self, call: Call) -> AnswerOnceStored:
        """Queue all batches in order; the answer exists once they are as durable as their topics require."""
        return await self._api.run(lambda: self._queue(call, _requested_partitions(call)))

    def produce_at_once(self, call: Call) -> AnswerOnceStored | None:
        """Queue batches on the event loop; return None if a topic is not open or decoding takes long.

        Handing a batch to a thread and back costs as much as decoding it: batches of 512 KiB are stored 1.35 times as
        fast without.
        """
        partitions = _requested_partitions(call)
        are_open = all(self._api.topics.is_open(name) for name, _ in partitions)
        if not are_open or not are_quick([partition.records or b"" for _, partition in partitions]):
            return None
        try:
            return self._queue(call, partitions, quickly=True)
        except TakesLong:
            return None

    def _queue(self, call: Call, partitions: list[tuple[str, Any]], *, quickly: bool = False) -> AnswerOnceStored:
        """Decode all batches, then append them. With ``quickly`` raises TakesLong before anything is appended."""
        decoded: list[tuple[str, int, Values | tuple[Topic, ProducedBatch]]] = []
        # Limit: all batches of a request are in memory until they are queued, so they share one limit unpacked.
        room = MAX_UNPACKED_BYTES
        for name, partition in partitions:
            batch = self._decode_batch(call, name, partition, room, quickly)
            # Refused batches hold no memory, so they leave the limit to the others.
            room -= batch[1].memory_bytes if isinstance(batch, tuple) else 0
            # Limit: no batches of other partitions, which have sequences of their own, and any names of topics.
            if not isinstance(batch, tuple) and batch["error_code"].retriable and partition.index == 0:
                self._note_refusal(name, partition.records or b"")
            decoded.append((name, partition.index, batch))
        # Order: decode all before the first append, so that TakesLong leaves nothing behind and a thread can start
        # over.
        outcomes = [
            (name, index, self._append(*outcome) if isinstance(outcome, tuple) else outcome)
            for name, index, outcome in decoded
        ]
        if call.message.acks == 0:
            self._count_refusals(outcomes, call)
        stored = [outcome.stored for _, _, outcome in outcomes if isinstance(outcome, QueuedBatch)]
        return AnswerOnceStored(stored, partial(self._build_answer, outcomes, call))

    def _decode_batch(
        self, call: Call, name: str, partition: Any, room: int, quickly: bool
    ) -> Values | tuple[Topic, ProducedBatch]:
        if partition.index != 0:
            return _UNKNOWN_PARTITION
        if call.message.transactional_id is not None:
            return _NO_TRANSACTION
        try:
            topic = self._api.topics.writable(name, call.caller)
            latest_time = int(time.time() * 1000) + MAX_AHEAD_MS if _keeps_times(topic) else None
            batch = decode(partition.records or b"", quickly=quickly, max_bytes=room, latest_time=latest_time)
        except TakesLong:
            raise
        except (PenstockError, ValueError) as error:
            return _refused(error)
        return _NO_TRANSACTION if batch.transactional else (topic, batch)

    def _append(self, topic: Topic, batch: ProducedBatch) -> Values | QueuedBatch:
        try:
            producer = _producer_sequence(topic.writer.producers.last, batch.producer, batch.epoch, batch.sequence)
            if producer is not None:
                self._refused_firsts.check(topic, producer)
        except (PenstockError, ValueError) as error:
            return _refused(error)
        queued = QueuedBatch(topic, batch, self._api.topics.append(topic, batch.rows, SOURCE, producer))
        if producer is not None:
            self._refused_firsts.watch(topic.name, producer, queued.stored)
        return queued

    def _note_refusal(self, topic: str, records: bytes | memoryview) -> None:
        with contextlib.suppress(PenstockError, ValueError):
            producer = _producer_sequence(lambda _: None, *read_producer(records))
            if producer is not None:
                self._refused_firsts.add(topic, producer)

    def _build_answer(self, outcomes: Outcomes, call: Call, request: Request) -> Parts:
        """Return the frame that answers all batches of a request; no parts if the producer wants no answer.

        Raises UnansweredRefusal if it wants none and a batch is refused.
        """
        stored_or_error = [(name, index, _outcome_of(outcome)) for name, index, outcome in outcomes]
        wants_answer = call.message.acks != 0
        # Fast path: most requests have one batch, whose answer needs no kio.
        if len(stored_or_error) == 1 and isinstance(stored := stored_or_error[0][2], StoredBatch):
            return stored_answer(request, stored_or_error[0][0], *stored) if wants_answer else []
        refused = [outcome for _, _, outcome in stored_or_error if not isinstance(outcome, StoredBatch)]
        if wants_answer:
            self._api.refused_batches.update(outcome["error_code"].name for outcome in refused)
            answers = [(name, {"index": index, **_outcome_fields(outcome)}) for name, index, outcome in stored_or_error]
            return encode_answer(request, {"responses": by_topic(answers, "name", "partition_responses")})
        if refused:
            raise UnansweredRefusal
        return []

    def _count_refusals(self, outcomes: Outcomes, call: Call) -> None:
        for topic, _, outcome in outcomes:
            if isinstance(outcome, QueuedBatch):
                self.unanswered_refusals.watch(call, topic, outcome.stored, partial(_error_of, outcome))
            else:
                self.unanswered_refusals.add(call, topic, outcome)

    async def init_producer_id(self, call: Call) -> Values:
        """Return a new producer id, or the next epoch of an existing one."""
        if call.message.transactional_id is not None:
            return {"error_code": ErrorCode.transactional_id_authorization_failed, "producer_id": -1}
        producer_id, epoch = getattr(call.message, "producer_id", -1), getattr(call.message, "producer_epoch", -1)
        if producer_id >= 0 and 0 <= epoch < LAST_EPOCH:
            return {"producer_id": producer_id, "producer_epoch": epoch + 1}
        # Random ids need no coordination and no state that survives a restart.
        return {"producer_id": secrets.randbits(62), "producer_epoch": 0}


def _requested_partitions(call: Call) -> list[tuple[str, Any]]:
    return partitions_of(call.message.topic_data, partitions="partition_data")


def _outcome_of(batch: Values | QueuedBatch) -> Values | StoredBatch:
    if not isinstance(batch, QueuedBatch):
        return batch
    try:
        appended = batch.stored.result()
        append_time = NO_TIME if _keeps_times(batch.topic) else int(appended.timestamps[0]) // 1000
        return StoredBatch(appended.first, append_time)
    except PenstockError as error:
        return _refused(error, _fenced_code(error, batch))


def _error_of(batch: QueuedBatch) -> Values | None:
    outcome = _outcome_of(batch)
    return None if isinstance(outcome, StoredBatch) else outcome


def _outcome_fields(outcome: Values | StoredBatch) -> Values:
    if not isinstance(outcome, StoredBatch):
        return outcome
    append_time = {} if outcome.append_time_ms == NO_TIME else {"log_append_time": outcome.append_time_ms}
    return {"base_offset": outcome.first, **append_time, "log_start_offset": 0}


def _keeps_times(topic: Topic) -> bool:
    return topic.settings.timestamp_type == "create"


def _refused(error: Exception, code: ErrorCode | None = None) -> Values:
    if code is None:
        code = code_of(error) if isinstance(error, PenstockError) else ErrorCode.invalid_record
    return {"error_code": code, "error_message": str(error), "base_offset": -1}


def _producer_name(producer: int) -> str:
    return f"kafka-{producer}"


def _producer_sequence(
    last_number: Callable[[str], int | None], producer: int, epoch: int, sequence: int
) -> ProducerSequence | None:
    """Return producer and number of a batch; the numbers do not wrap around. Raises BadRecords."""
    if producer == NO_PRODUCER:
        return None
    if producer < 0 or epoch < 0 or sequence < 0:
        raise BadRecords("producer id, epoch and sequence of a batch must not be negative")
    name = _producer_name(producer)
    last_epoch, last_sequence = divmod(last_number(name) or 0, 1 << EPOCH_BITS)
    # Kafka's sequences wrap at 2**31: the wrap closest to the last stored number is taken, in either direction.
    wraps = max(0, (last_sequence - sequence + SEQUENCE_MODULUS // 2) // SEQUENCE_MODULUS) if last_epoch == epoch else 0
    return ProducerSequence(name, (epoch << EPOCH_BITS) + sequence + wraps * SEQUENCE_MODULUS, by_rows=True)


def _fenced_code(error: PenstockError, queued: QueuedBatch) -> ErrorCode | None:
    """Return the code for a producer that already has a later epoch, else None."""
    last = queued.topic.writer.producers.last(_producer_name(queued.batch.producer))
    is_fenced = isinstance(error, OutOfSequence) and last is not None and last >> EPOCH_BITS > queued.batch.epoch
    return ErrorCode.invalid_producer_epoch if is_fenced else None
