"""Produce and InitProducerId: record batches into topics, each once."""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import Appended, OutOfSequence, ProducerSequence, Topic
from penstock.log.store.producers import EPOCH_BITS
from penstock.server.entries_api import INLINE_SIZE, EntriesApi
from penstock.server.kafka.calls import Call, Later, code_of
from penstock.server.kafka.errors import BadRecords
from penstock.server.kafka.messages import Values, by_topic, partitions_of
from penstock.server.kafka.records.decode import NO_PRODUCER, ProducedBatch, decode, is_quick
from penstock.server.thread_results import LoopFutures

SOURCE = "kafka"
SEQUENCES = 1 << 31
"""A producer's numbers begin again behind so many."""
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


class Producing:
    """Answers producers."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api
        self._arrivals = LoopFutures(asyncio.get_running_loop())

    async def produce(self, call: Call) -> Later:
        """Queues all batches in order; what became of them is told once they are as durable as their topics say."""
        asked = partitions_of(call.message.topic_data, partitions="partition_data")
        begun = [(name, part.index, await self._begun(call, name, part)) for name, part in asked]
        return Later(self._done(begun, call.message.acks))

    async def _done(self, begun: list[tuple[str, int, Values | Queued]], acks: int) -> Values | None:
        done = [(name, {"index": index, **await self._told(one)}) for name, index, one in begun]
        return {"responses": by_topic(done, "name", "partition_responses")} if acks else None

    async def _begun(self, call: Call, name: str, part: Any) -> Values | Queued:
        if part.index != 0:
            return _UNKNOWN_PARTITION
        if call.message.transactional_id is not None:
            return _NO_TRANSACTION
        try:
            topic = await self._topic(call, name)
            batch = await self._decoded(part.records or b"")
            if batch.transactional:
                return _NO_TRANSACTION
            producer = _producer(topic, batch)
        except (PenstockError, ValueError) as error:
            return _refused(error)
        return Queued(topic, batch, self._api.topics.append(topic, batch.rows, SOURCE, producer))

    async def _topic(self, call: Call, name: str) -> Topic:
        if self._api.topics.known(name):
            return self._api.topics.writable(name, call.caller)
        return await self._api.run(lambda: self._api.topics.writable(name, call.caller))

    async def _decoded(self, records: bytes | memoryview) -> ProducedBatch:
        if len(records) <= INLINE_SIZE and is_quick(records):
            return decode(records)
        return await self._api.run(lambda: decode(records))

    async def _told(self, begun: Values | Queued) -> Values:
        """What became of a batch."""
        if not isinstance(begun, Queued):
            return begun
        try:
            done = await self._arrivals.of(begun.stored)
        except PenstockError as error:
            return _refused(error, _is_over(error, begun))
        return {"base_offset": done.first, "log_append_time": int(done.timestamps[0]) // 1000, "log_start_offset": 0}

    async def init_producer_id(self, call: Call) -> Values:
        """A new producer's number, or the next epoch of one that asks for it."""
        if call.message.transactional_id is not None:
            return {"error_code": ErrorCode.transactional_id_authorization_failed, "producer_id": -1}
        known, epoch = getattr(call.message, "producer_id", -1), getattr(call.message, "producer_epoch", -1)
        if known >= 0 and 0 <= epoch < LAST_EPOCH:
            return {"producer_id": known, "producer_epoch": epoch + 1}
        return {"producer_id": secrets.randbits(62), "producer_epoch": 0}


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
