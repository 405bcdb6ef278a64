"""A producer of messages of any size, with the interface of ``confluent_kafka.Producer``.

Beyond a size messages are split into segments that share a key, and so a partition; partitions are those that Java's
clients choose. Properties: ``penstock.kafka.client.config``. Seed: "Configurations for LiKafkaProducerImpl".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from random import randrange
from types import TracebackType
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.kafka.auditing import AuditType, NoOpAuditor
from penstock.kafka.client.claim_check_advice import Advice
from penstock.kafka.client.config import CURRENT_PRODUCER, checked, producer_config, producer_names
from penstock.kafka.client.delivery_reports import ChunkReports
from penstock.kafka.client.java_partitioner import chosen, load_partitioner
from penstock.kafka.client.message_batch import arguments, check_batch
from penstock.kafka.client.plugin_instances import declared_properties, packer
from penstock.kafka.client.plugins import load_auditor
from penstock.kafka.client.properties import names
from penstock.kafka.errors import SendFailed
from penstock.kafka.large.headers import TIMESTAMP, Header, encode_long
from penstock.kafka.large.splitter import OutgoingRecord

OnDelivery = Callable[[KafkaError | None, Message], None]
Headers = list[Header] | dict[str, Any] | tuple[Header, ...] | None
ANY_PARTITION = -1
ROOM_SECONDS = 0.1
"""How long a full queue is waited for at a time, between the segments of one message."""
COUNT_SECONDS = 30.0
"""How long the number of a topic's partitions is kept that is needed to choose one here."""
METADATA_SECONDS = 30.0
PASSED_ON = names(
    "init_transactions begin_transaction commit_transaction abort_transaction send_offsets_to_transaction purge "
    "list_topics cluster_id set_sasl_credentials"
)


class Producer:
    """See ``confluent_kafka.Producer``; the same methods with the same arguments, each for whole messages.

    ``produce`` raises BufferError where the queue is full before a message has begun; the further segments of one that
    has begun wait for room, with delivery reports served meanwhile. The queue holds 64 MiB unless
    ``queue.buffering.max.kbytes`` says otherwise. Raises BadProperty and CannotLoad.
    """

    def __init__(self, config: Mapping[str, Any], **more: Any) -> None:
        self._config = config_of = producer_config(config, declared_properties(config))
        self._raw = checked(lambda: confluent_kafka.Producer(config_of.raw, **more), producer_names())
        plugged = {**config, CURRENT_PRODUCER: self._raw}
        self._packer = packer(config_of, plugged)
        self._partitioner = load_partitioner(config_of.partitioner, plugged) if config_of.partitioner else None
        self._auditor = load_auditor(config_of.auditor, plugged)
        self._on_delivery: OnDelivery | None = config_of.raw.get("on_delivery")
        self._advice = Advice(config_of.raw)
        self._partitions: dict[str, tuple[float, int]] = {}
        self._further = 0  # segments in the queue beyond one of each message
        self._stamped, self._threshold = config_of.timestamps, self._packer.threshold
        audited = not isinstance(self._auditor, NoOpAuditor)
        self._serializes = bool(config_of.key_serializer or config_of.value_serializer)
        self._plain = not (audited or self._serializes or self._partitioner)
        self._send = self._raw.produce
        self.messages = 0
        """Messages given to ``produce``."""
        self._auditor.start()

    def __getattr__(self, name: str) -> Any:
        if name in PASSED_ON:
            return getattr(self._raw, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = ANY_PARTITION,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Send a message. A list of headers gets ``_t``; the report comes once, after the last segment's.

        Raises BufferError, KafkaException, ValueError (no topic, no such partition), and what serializers raise.
        """
        self.messages += 1
        if self._plain:
            if type(value) is str:
                value = value.encode()
            if value is None or len(value) <= self._threshold:
                if headers is None and self._stamped:
                    headers = [(TIMESTAMP, encode_long(timestamp or int(time.time() * 1000)))]
                elif self._stamped:
                    headers = self._packer.stamp(_listed(headers), timestamp or None)
                self._send(topic, value, key, partition, callback or on_delivery, None, timestamp, headers)
                return
        self._produce(topic, value, key, partition, callback or on_delivery, timestamp, _listed(headers))

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = ANY_PARTITION,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Send each of ``messages``: mappings of value, key, partition, callback; timestamp and headers besides.

        How many were queued. One that cannot be gets the reason as ``_error``, and the others go on. Raises TypeError,
        with nothing sent, for what is no such mapping, and what serializers raise.
        """
        check_batch(messages, self._serializes)
        queued = 0
        for message in messages:
            try:
                self.produce(topic, **arguments(message, partition, on_delivery))
                queued += 1
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
        return queued

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; how many were served."""
        served: int = self._raw.poll(timeout)
        return served

    def flush(self, timeout: float = -1) -> int:
        """Wait until everything is sent or failed; how many messages are left after ``timeout`` seconds."""
        self._raw.flush(timeout)
        return len(self)

    def close(self, timeout: float = -1) -> int:
        """Flush, and report what the auditor has not; how many messages are left."""
        left = self.flush(timeout)
        self._auditor.close(None if timeout < 0 else timeout)
        return left

    def __len__(self) -> int:
        return max(0, len(self._raw) - self._further)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Messages that need more than to be passed on

    def _produce(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        on_delivery: OnDelivery | None,
        timestamp: int,
        headers: list[Header] | None,
    ) -> None:
        given = (key, value)
        headers = self._packer.stamp(headers, timestamp or None) if self._stamped else headers
        try:
            key = self._serialized(self._config.key_serializer, topic, key, MessageField.KEY, headers)
            value = self._serialized(self._config.value_serializer, topic, value, MessageField.VALUE, headers)
            report = self._reported(topic, given, key, value, timestamp, on_delivery or self._on_delivery)
        except Exception:
            self._audit(topic, given, None, None, timestamp, AuditType.ATTEMPT)
            self._audit(topic, given, None, None, timestamp, AuditType.FAILURE)
            raise
        try:
            self._send_records(topic, value, key, partition, report, timestamp, headers)
        except Exception:
            self._audit(topic, given, key, value, timestamp, AuditType.FAILURE)
            raise

    @staticmethod
    def _serialized(how: Any, topic: str, given: Any, field: MessageField, headers: list[Header] | None) -> Any:
        data = given if how is None else how(given, SerializationContext(topic, field, headers))
        return data.encode() if isinstance(data, str) else data

    def _reported(
        self, topic: str, given: tuple[Any, Any], key: Any, value: Any, timestamp: int, on_delivery: OnDelivery | None
    ) -> OnDelivery:
        """What is called once with the fate of the message."""
        self._audit(topic, given, key, value, timestamp, AuditType.ATTEMPT)

        def report(error: KafkaError | None, message: Message) -> None:
            kind = AuditType.SUCCESS if error is None else AuditType.FAILURE
            self._audit(topic, given, key, value, timestamp, kind)
            if on_delivery is not None:
                on_delivery(error, message)

        return report

    def _audit(self, topic: str, given: tuple[Any, Any], key: Any, value: Any, timestamp: int, kind: AuditType) -> None:
        token = self._auditor.audit_token(*given)
        when = timestamp or int(time.time() * 1000)
        self._auditor.record(token, topic, when, 1, len(key or b"") + len(value or b""), kind)

    def _send_records(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        report: OnDelivery,
        timestamp: int,
        headers: list[Header] | None,
    ) -> None:
        records = iter(self._packer.pack(topic, value, key, headers, timestamp or None))
        first = next(records)
        partition = self._partition(topic, first, value) if partition == ANY_PARTITION else partition
        if first.chunks == 1:
            self._send(topic, _bytes(first.value), first.key, partition, report, None, timestamp, first.headers)
            return
        self._advice.saw_large(topic, self.messages)
        whole = _Whole(self, first.chunks, value, key, headers, report)
        self._send(topic, _bytes(first.value), first.key, partition, whole, None, timestamp, first.headers)
        self._further += first.chunks - 1
        self._send_further(topic, records, partition, whole, timestamp)

    def _send_further(
        self, topic: str, records: Iterable[OutgoingRecord], partition: int, whole: _Whole, timestamp: int
    ) -> None:
        """The segments behind the first. What fails here is told as the message's fate."""
        sent = 1
        try:
            for record in records:
                value, headers = _bytes(record.value), record.headers
                self._send_patiently(topic, value, record.key, partition, whole, None, timestamp, headers)
                sent += 1
        except BaseException as error:
            whole.give_up(whole.count - sent, error)
            if not isinstance(error, KafkaException):
                raise

    def _send_patiently(self, *record: Any) -> None:
        while True:
            try:
                self._send(*record)
                return
            except BufferError:
                self._raw.poll(ROOM_SECONDS)

    # Partitions

    def _partition(self, topic: str, record: OutgoingRecord, value: bytes | None) -> int:
        """The partition that has to be chosen here; else librdkafka chooses by the key."""
        if self._partitioner is not None:
            key = record.key.encode() if isinstance(record.key, str) else record.key
            return chosen(self._partitioner, topic, key, value, self._count(topic))
        if record.chunks > 1 and self._scatters(record.key):
            return randrange(self._count(topic))
        return ANY_PARTITION

    def _scatters(self, key: Any) -> bool:
        """Whether librdkafka's partitioner would send the segments to different partitions."""
        how = self._config.raw["partitioner"]
        return how == "random" or (how == "consistent_random" and not key)

    def _count(self, topic: str) -> int:
        """How many partitions the topic has. Raises KafkaException where that cannot be learned."""
        learned, count = self._partitions.get(topic, (0.0, 0))
        until = time.monotonic() + METADATA_SECONDS
        while not count or time.monotonic() - learned > COUNT_SECONDS:
            told = self._raw.list_topics(topic, METADATA_SECONDS).topics[topic]
            learned, count = time.monotonic(), len(told.partitions)
            if not count and learned > until:
                raise KafkaException(told.error or KafkaError(KafkaError._UNKNOWN_PARTITION))
            if not count:  # it may just be created
                time.sleep(ROOM_SECONDS)
        self._partitions[topic] = (learned, count)
        return count


class _Whole(ChunkReports):
    """The report of a message in segments: its error in librdkafka's terms, its message with the user's own value."""

    def __init__(self, producer: Producer, count: int, value: Any, key: Any, headers: Any, report: OnDelivery) -> None:
        super().__init__(count, self._told_all)
        self.count, self._producer, self._given, self._report = count, producer, (value, key, headers), report
        self._open = count

    def _add(self, chunks: int, error: Any, message: Any) -> None:
        self._producer._further -= min(chunks, self._open - 1)
        self._open -= chunks
        super()._add(chunks, error, message)

    def _told_all(self, failed: SendFailed | None, message: Any) -> None:
        value, key, headers = self._given
        message.set_value(value)
        message.set_key(key)
        message.set_headers(headers)
        self._report(None if failed is None else _as_kafka_error(failed), message)


def _as_kafka_error(failed: SendFailed) -> KafkaError:
    told = failed.error.args[0] if isinstance(failed.error, KafkaException) else failed.error
    code = told.code() if isinstance(told, KafkaError) else KafkaError._FAIL
    return KafkaError(code, str(failed))


def _listed(headers: Headers) -> list[Header] | None:
    """The list itself, so that it gets ``_t``."""
    if headers is None or isinstance(headers, list):
        return headers
    return list(headers.items() if isinstance(headers, dict) else headers)


def _bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value
