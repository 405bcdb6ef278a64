"""Produce and InitProducerId: record batches into topics, each once."""

from __future__ import annotations

import secrets
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.kafka.errors import BadRecords
from penstock.log import Appended, OutOfSequence, ProducerSequence, Topic
from penstock.log.store.producers import EPOCH_BITS
from penstock.server.api.entries import EntriesApi
from penstock.server.kafka.calls import AnswerOnceStored, Call, code_of
from penstock.server.kafka.errors import TakesLong
from penstock.server.kafka.limits import MAX_REQUEST_BYTES
from penstock.server.kafka.records.decode import NO_PRODUCER, ProducedBatch, are_quick, decode
from penstock.server.kafka.schema.messages import Parts, Request, Values, by_topic, encode_answer, partitions_of
from penstock.server.kafka.schema.stored_answers import stored_answer

SOURCE = "kafka"
SEQUENCES = 1 << 31
"""A producer's numbers begin again behind so many."""
MAX_UNPACKED_BYTES = MAX_REQUEST_BYTES
"""Limit: bytes of all record batches of one request, unpacked: as many as a request may have that is not packed."""
LAST_EPOCH = (1 << 15) - 2
NO_TRANSACTIONS = "Penstock has no transactions of Kafka; idempotent producers need none"
_UNKNOWN_PARTITION = {"error_code": ErrorCode.unknown_topic_or_partition, "base_offset": -1}
_NO_TRANSACTION = {
    "error_code": ErrorCode.transactional_id_authorization_failed,
    "error_message": NO_TRANSACTIONS,
    "base_offset": -1,
}


@dataclass(frozen=True, slots=True)
class Queued:
    """A batch on its way into ``topic``."""

    topic: Topic
    batch: ProducedBatch
    stored: Future[Appended]


Begun = list[tuple[str, int, Values | Queued]]
"""The batches of a request by topic and partition: on their way, or why they are not taken."""


class Producing:
    """Answers producers."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    async def produce(self, call: Call) -> AnswerOnceStored:
        """Queues all batches in order; what became of them is told once they are as durable as their topics say."""
        return await self._api.run(lambda: self._soon(call, _asked(call)))

    def at_once(self, call: Call) -> AnswerOnceStored | None:
        """As ``produce``, where the topics are open and the batches quickly decoded: on the event loop.

        To hand one to a thread, and to take turns with it, costs as much as to decode it: batches of 512 KiB come in
        1.35 times as fast without.
        """
        asked = _asked(call)
        known = all(self._api.topics.known(name) for name, _ in asked)
        if not known or not are_quick([part.records or b"" for _, part in asked]):
            return None
        try:
            return self._soon(call, asked, quickly=True)
        except TakesLong:
            return None

    def _soon(self, call: Call, asked: list[tuple[str, Any]], *, quickly: bool = False) -> AnswerOnceStored:
        """Raises TakesLong where it is to go ``quickly`` and does not, and then nothing is begun."""
        read: list[tuple[str, int, Values | tuple[Topic, ProducedBatch]]] = []
        # Limit: all batches of a request are in memory until they are queued, so they share one limit unpacked.
        room = MAX_UNPACKED_BYTES
        for name, part in asked:
            batch = self._read(call, name, part, room, quickly)
            room -= batch[1].memory_bytes if isinstance(batch, tuple) else 0
            read.append((name, part.index, batch))
        begun = [(name, index, self._queued(*one) if isinstance(one, tuple) else one) for name, index, one in read]
        stored = [one.stored for _, _, one in begun if isinstance(one, Queued)]
        return AnswerOnceStored(stored, partial(_frame, begun, call.message.acks))

    def _read(self, call: Call, name: str, part: Any, room: int, quickly: bool) -> Values | tuple[Topic, ProducedBatch]:
        if part.index != 0:
            return _UNKNOWN_PARTITION
        if call.message.transactional_id is not None:
            return _NO_TRANSACTION
        try:
            topic = self._api.topics.writable(name, call.caller)
            batch = decode(part.records or b"", quickly=quickly, most=room)
        except TakesLong:
            raise
        except (PenstockError, ValueError) as error:
            return _refused(error)
        return _NO_TRANSACTION if batch.transactional else (topic, batch)

    def _queued(self, topic: Topic, batch: ProducedBatch) -> Values | Queued:
        try:
            producer = _producer(topic, batch)
        except (PenstockError, ValueError) as error:
            return _refused(error)
        return Queued(topic, batch, self._api.topics.append(topic, batch.rows, SOURCE, producer))

    async def init_producer_id(self, call: Call) -> Values:
        """A new producer's number, or the next epoch of one that asks for it."""
        if call.message.transactional_id is not None:
            return {"error_code": ErrorCode.transactional_id_authorization_failed, "producer_id": -1}
        known, epoch = getattr(call.message, "producer_id", -1), getattr(call.message, "producer_epoch", -1)
        if known >= 0 and 0 <= epoch < LAST_EPOCH:
            return {"producer_id": known, "producer_epoch": epoch + 1}
        return {"producer_id": secrets.randbits(62), "producer_epoch": 0}


def _asked(call: Call) -> list[tuple[str, Any]]:
    return partitions_of(call.message.topic_data, partitions="partition_data")


def _frame(begun: Begun, acks: int, request: Request) -> Parts:
    """What became of all batches, once it is known."""
    if not acks:
        return []
    told = [(name, index, _told(one)) for name, index, one in begun]
    if len(told) == 1 and isinstance(stored := told[0][2], Appended):
        return stored_answer(request, told[0][0], stored.first, _millis(stored))
    done = [(name, {"index": index, **_values(one)}) for name, index, one in told]
    return encode_answer(request, {"responses": by_topic(done, "name", "partition_responses")})


def _told(begun: Values | Queued) -> Values | Appended:
    """What became of a batch."""
    if not isinstance(begun, Queued):
        return begun
    try:
        return begun.stored.result()
    except PenstockError as error:
        return _refused(error, _is_over(error, begun))


def _values(told: Values | Appended) -> Values:
    if not isinstance(told, Appended):
        return told
    return {"base_offset": told.first, "log_append_time": _millis(told), "log_start_offset": 0}


def _millis(stored: Appended) -> int:
    return int(stored.timestamps[0]) // 1000


def _refused(error: Exception, code: ErrorCode | None = None) -> Values:
    if code is None:
        code = code_of(error) if isinstance(error, PenstockError) else ErrorCode.invalid_record
    return {"error_code": code, "error_message": str(error), "base_offset": -1}


def _name(batch: ProducedBatch) -> str:
    return f"kafka-{batch.producer}"


def _producer(topic: Topic, batch: ProducedBatch) -> ProducerSequence | None:
    """Which of a producer's batches this is, in numbers that do not begin again. Raises BadRecords."""
    if batch.producer == NO_PRODUCER:
        return None
    if batch.producer < 0 or batch.epoch < 0 or batch.sequence < 0:
        raise BadRecords("a producer has a number, an epoch and a sequence")
    last = topic.writer.producers.last(_name(batch)) or 0
    known, reached = divmod(last, 1 << EPOCH_BITS)
    turns = max(0, (reached - batch.sequence + SEQUENCES // 2) // SEQUENCES) if known == batch.epoch else 0
    number = batch.sequence + turns * SEQUENCES
    return ProducerSequence(_name(batch), (batch.epoch << EPOCH_BITS) + number, by_rows=True)


def _is_over(error: PenstockError, queued: Queued) -> ErrorCode | None:
    """The code for a producer that has a later epoch already."""
    last = queued.topic.writer.producers.last(_name(queued.batch))
    over = isinstance(error, OutOfSequence) and last is not None and last >> EPOCH_BITS > queued.batch.epoch
    return ErrorCode.invalid_producer_epoch if over else None
