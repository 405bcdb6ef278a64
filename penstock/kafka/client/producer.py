"""A producer of messages of any size, with the interface of ``confluent_kafka.Producer``.

Messages over the limit are split into chunks that share a key, and so a partition; partitions are chosen as by Kafka's
Java clients. Properties: ``penstock.kafka.client.config``; behaviour: "LiKafkaProducer" in the README of li-apache-
kafka-clients.
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
from penstock.kafka.client.claim_check_advice import ClaimCheckAdvice
from penstock.kafka.client.config import CURRENT_PRODUCER, create_client, producer_config, producer_names
from penstock.kafka.client.delivery_reports import ChunkReports
from penstock.kafka.client.message_batch import check_batch, produce_arguments
from penstock.kafka.client.plugins.instances import create_packer, declared_properties
from penstock.kafka.client.plugins.java_partitioner import choose_partition, load_partitioner
from penstock.kafka.client.plugins.loading import load_auditor, load_serializer
from penstock.kafka.client.properties import split_names
from penstock.kafka.errors import SendFailed
from penstock.kafka.large.headers import TIMESTAMP, Header, encode_long
from penstock.kafka.large.splitter import OutgoingRecord

OnDelivery = Callable[[KafkaError | None, Message], None]
Headers = list[Header] | dict[str, Any] | tuple[Header, ...] | None
ANY_PARTITION = -1
QUEUE_POLL_S = 0.1
"""Interval of attempts to queue a further chunk while the queue is full."""
PARTITION_COUNT_TTL_S = 30.0
"""Time for which a topic's number of partitions is cached; needed only if a partition is chosen here."""
METADATA_TIMEOUT_S = 30.0
PASSED_ON = split_names(
    "init_transactions begin_transaction commit_transaction abort_transaction send_offsets_to_transaction purge "
    "list_topics cluster_id set_sasl_credentials"
)


class Producer:
    """A producer with the methods and arguments of ``confluent_kafka.Producer``, each for whole messages.

    ``produce`` raises BufferError if the queue is full before the first chunk of a message; further chunks wait for
    room, and delivery reports are served during the wait. Limit: the queue holds 64 MiB unless
    ``queue.buffering.max.kbytes`` is set. Raises BadProperty and CannotLoad.
    """

    def __init__(self, config: Mapping[str, Any], **client_arguments: Any) -> None:
        self._config = parsed = producer_config(config, declared_properties(config))
        self._raw = create_client(lambda: confluent_kafka.Producer(parsed.raw, **client_arguments), producer_names())
        plugin_config = {**config, CURRENT_PRODUCER: self._raw}
        self._packer = create_packer(parsed, plugin_config)
        self._partitioner = load_partitioner(parsed.partitioner, plugin_config) if parsed.partitioner else None
        self._key_serializer = load_serializer("key.serializer", parsed.key_serializer, plugin_config)
        self._value_serializer = load_serializer("value.serializer", parsed.value_serializer, plugin_config)
        self._auditor = load_auditor(parsed.auditor, plugin_config)
        self._on_delivery: OnDelivery | None = parsed.raw.get("on_delivery")
        self._advice = ClaimCheckAdvice(parsed.raw)
        self._partitions: dict[str, tuple[float, int]] = {}
        # Queued chunks beyond the first of each message: `len` counts messages.
        self._further_chunks = 0
        self._stamped, self._threshold = parsed.timestamps, self._packer.threshold
        audited = not isinstance(self._auditor, NoOpAuditor)
        self._serializes = bool(self._key_serializer or self._value_serializer)
        self._takes_fast_path = not (audited or self._serializes or self._partitioner)
        self._send = self._raw.produce
        self.messages = 0
        """Messages passed to ``produce``."""
        # Order: last, so that an error of the configuration leaves no thread behind.
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
        """Send a message; its delivery report comes once, after the last chunk's.

        ``_t`` is appended to a list of headers in place. Raises BufferError, KafkaException, ValueError (empty topic,
        missing partition), and exceptions of serializers.
        """
        self.messages += 1
        # Fast path: a small message without plug-ins needs no iterator of records and no report object.
        if self._takes_fast_path:
            if type(value) is str:
                value = value.encode()
            if value is None or len(value) <= self._threshold:
                if headers is None and self._stamped:
                    headers = [(TIMESTAMP, encode_long(timestamp or int(time.time() * 1000)))]
                elif self._stamped:
                    headers = self._packer.stamp(_as_list(headers), timestamp or None)
                self._send(topic, value, key, partition, callback or on_delivery, None, timestamp, headers)
                return
        self._produce_slowly(topic, value, key, partition, callback or on_delivery, timestamp, _as_list(headers))

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = ANY_PARTITION,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Send each mapping of value, key, partition, callback, timestamp and headers; return the number queued.

        A message that cannot be queued gets the reason as ``_error``, and the others are still sent. Raises TypeError
        before sending anything if one is not such a mapping, and exceptions of serializers.
        """
        check_batch(messages, self._serializes)
        queued = 0
        for message in messages:
            try:
                self.produce(topic, **produce_arguments(message, partition, on_delivery))
                queued += 1
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
        return queued

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and return their number."""
        served: int = self._raw.poll(timeout)
        return served

    def flush(self, timeout: float = -1) -> int:
        """Wait until every message is sent or failed; return the number remaining after ``timeout`` seconds."""
        self._raw.flush(timeout)
        return len(self)

    def close(self, timeout: float = -1) -> int:
        """Flush, close the auditor, and return the number of remaining messages."""
        remaining = self.flush(timeout)
        self._auditor.close(None if timeout < 0 else timeout)
        return remaining

    def __len__(self) -> int:
        return max(0, len(self._raw) - self._further_chunks)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _produce_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        on_delivery: OnDelivery | None,
        timestamp: int,
        headers: list[Header] | None,
    ) -> None:
        user_message = (key, value)
        headers = self._packer.stamp(headers, timestamp or None) if self._stamped else headers
        try:
            key = self._serialize(self._key_serializer, topic, key, MessageField.KEY, headers)
            value = self._serialize(self._value_serializer, topic, value, MessageField.VALUE, headers)
            # The auditor gets the user's key and value for its token, and the sizes after serialization.
            report = self._delivery_report(topic, user_message, key, value, timestamp, on_delivery or self._on_delivery)
        except Exception:
            self._audit(topic, user_message, None, None, timestamp, AuditType.ATTEMPT)
            self._audit(topic, user_message, None, None, timestamp, AuditType.FAILURE)
            raise
        try:
            self._send_records(topic, value, key, partition, report, timestamp, headers)
        except Exception:
            self._audit(topic, user_message, key, value, timestamp, AuditType.FAILURE)
            raise

    @staticmethod
    def _serialize(serializer: Any, topic: str, content: Any, field: MessageField, headers: list[Header] | None) -> Any:
        serialized = content if serializer is None else serializer(content, SerializationContext(topic, field, headers))
        return serialized.encode() if isinstance(serialized, str) else serialized

    def _delivery_report(
        self,
        topic: str,
        user_message: tuple[Any, Any],
        key: Any,
        value: Any,
        timestamp: int,
        on_delivery: OnDelivery | None,
    ) -> OnDelivery:
        """Return the callback for the fate of the message, called once."""
        self._audit(topic, user_message, key, value, timestamp, AuditType.ATTEMPT)

        def report(error: KafkaError | None, message: Message) -> None:
            kind = AuditType.SUCCESS if error is None else AuditType.FAILURE
            self._audit(topic, user_message, key, value, timestamp, kind)
            if on_delivery is not None:
                on_delivery(error, message)

        return report

    def _audit(
        self, topic: str, user_message: tuple[Any, Any], key: Any, value: Any, timestamp: int, fate: AuditType
    ) -> None:
        token = self._auditor.audit_token(*user_message)
        created_ms = timestamp or int(time.time() * 1000)
        self._auditor.record(token, topic, created_ms, 1, len(key or b"") + len(value or b""), fate)

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
        partition = self._choose_partition(topic, first, value) if partition == ANY_PARTITION else partition
        if first.chunks == 1:
            self._send(topic, _to_bytes(first.value), first.key, partition, report, None, timestamp, first.headers)
            return
        self._advice.count_large(topic, self.messages)
        reports = _WholeMessageReports(self, first.chunks, value, key, headers, report)
        self._send(topic, _to_bytes(first.value), first.key, partition, reports, None, timestamp, first.headers)
        # Order: after the first chunk is queued; if that raises BufferError nothing of the message was sent.
        self._further_chunks += first.chunks - 1
        self._send_further(topic, records, partition, reports, timestamp)

    def _send_further(
        self,
        topic: str,
        records: Iterable[OutgoingRecord],
        partition: int,
        reports: _WholeMessageReports,
        timestamp: int,
    ) -> None:
        """Queue the chunks after the first; a failure here becomes the message's delivery report."""
        sent = 1
        try:
            for record in records:
                value, headers = _to_bytes(record.value), record.headers
                self._send_when_queue_has_room(topic, value, record.key, partition, reports, None, timestamp, headers)
                sent += 1
        except BaseException as error:
            reports.give_up(reports.count - sent, error)
            if not isinstance(error, KafkaException):
                raise

    def _send_when_queue_has_room(self, *record: Any) -> None:
        while True:
            try:
                self._send(*record)
                return
            except BufferError:
                # Serves delivery reports during the wait: they make room in the queue.
                self._raw.poll(QUEUE_POLL_S)

    def _choose_partition(self, topic: str, record: OutgoingRecord, value: bytes | None) -> int:
        """Return a partition if it must be chosen here, else let librdkafka choose by the key."""
        if self._partitioner is not None:
            key = record.key.encode() if isinstance(record.key, str) else record.key
            return choose_partition(self._partitioner, topic, key, value, self._partition_count(topic))
        # All chunks of a message must be in one partition, or no consumer could assemble it.
        if record.chunks > 1 and self._may_scatter_chunks(record.key):
            return randrange(self._partition_count(topic))
        return ANY_PARTITION

    def _may_scatter_chunks(self, key: Any) -> bool:
        """Report whether librdkafka's partitioner would send the chunks of a message to different partitions."""
        strategy = self._config.raw["partitioner"]
        return strategy == "random" or (strategy == "consistent_random" and not key)

    def _partition_count(self, topic: str) -> int:
        """Return the topic's number of partitions. Raises KafkaException."""
        fetched_at, count = self._partitions.get(topic, (0.0, 0))
        deadline = time.monotonic() + METADATA_TIMEOUT_S
        while not count or time.monotonic() - fetched_at > PARTITION_COUNT_TTL_S:
            metadata = self._raw.list_topics(topic, METADATA_TIMEOUT_S).topics[topic]
            fetched_at, count = time.monotonic(), len(metadata.partitions)
            if not count and fetched_at > deadline:
                raise KafkaException(metadata.error or KafkaError(KafkaError._UNKNOWN_PARTITION))
            # A broker creates a topic on its first request, and answers without partitions until then.
            if not count:
                time.sleep(QUEUE_POLL_S)
        self._partitions[topic] = (fetched_at, count)
        return count


class _WholeMessageReports(ChunkReports):
    """The delivery report of a chunked message: its error as librdkafka's, its message with the user's own value."""

    def __init__(self, producer: Producer, count: int, value: Any, key: Any, headers: Any, report: OnDelivery) -> None:
        super().__init__(count, self._report_message)
        self.count, self._producer, self._user_message, self._on_delivery = (
            count,
            producer,
            (value, key, headers),
            report,
        )
        self._open_chunks = count

    def _add(self, chunks: int, error: Any, message: Any) -> None:
        # The last open chunk counts as the message itself, until its report is made.
        self._producer._further_chunks -= min(chunks, self._open_chunks - 1)
        self._open_chunks -= chunks
        super()._add(chunks, error, message)

    def _report_message(self, failed: SendFailed | None, message: Any) -> None:
        value, key, headers = self._user_message
        message.set_value(value)
        message.set_key(key)
        message.set_headers(headers)
        self._on_delivery(None if failed is None else _as_kafka_error(failed), message)


def _as_kafka_error(failed: SendFailed) -> KafkaError:
    first_error = failed.error.args[0] if isinstance(failed.error, KafkaException) else failed.error
    code = first_error.code() if isinstance(first_error, KafkaError) else KafkaError._FAIL
    return KafkaError(code, str(failed))


def _as_list(headers: Headers) -> list[Header] | None:
    # A list is returned itself, so that the caller sees the added `_t`, as in the Java library.
    if headers is None or isinstance(headers, list):
        return headers
    return list(headers.items() if isinstance(headers, dict) else headers)


def _to_bytes(content: Any) -> Any:
    return bytes(content) if isinstance(content, memoryview | bytearray) else content
