"""The handler that sends messages to Kafka, encrypted if configured (plog's Kafka handler).

A batch is done when the broker, or the producer if there is no broker, has reported the outcome of each message.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import KafkaHandler
from penstock.config.keys.handlers import KAFKA_TOPIC
from penstock.counts import Origin
from penstock.handover.drain.topic_requests import TOPIC_REQUEST, requested_topics
from penstock.kafka.client.plugins.encryption import Encryption
from penstock.kafka.client.plugins.flink_partitioner import partitions_of
from penstock.kafka.origin_header import ORIGIN_HEADER, encode_origin
from penstock.sinks.handler import BadSettings, Delivered
from penstock.wire.meters import Meter
from penstock.wire.plog.statistics import METERS

DEFAULTS: Mapping[str, Any] = {
    "header.timestamp.enabled": "false",  # plog sends no headers
    "message.timeout.ms": 30_000,
    "statistics.interval.ms": 5_000,
    "log_level": 0,  # errors are logged by the error callback
}
"""Producer settings that the configuration can override."""
TIMEOUTS = ("message.timeout.ms", "delivery.timeout.ms")
NO_TOPIC = ("", "null")
"""Topic names that plog treats as no topic."""
BATCH_SLACK_S = 10.0
"""Time that a batch may take in addition to the timeout of its messages."""
POLL_S = 0.05
METADATA_TIMEOUT_S = 5.0
PARTITION_CACHE_S = 60.0
"""Time for which the number of a topic's partitions is cached, and a missing topic is not waited for."""
_LOGGER = logging.getLogger(__name__)
# A mapping, because the messages of a batch share it: the producer appends ``_t`` to a list in place.
Headers = dict[str, str | bytes | None]


class Kafka:
    """The producer of ``listener``. Raises BadSettings for settings that the producer refuses."""

    def __init__(self, listener: str, handler: KafkaHandler) -> None:
        self._handler, self._host = handler, handler.host_name
        encryption = handler.encryption
        self._encryption = (
            Encryption(encryption.key_bytes(), encryption.mode, encryption.padded) if encryption else None
        )
        self._meters = {name: Meter() for name in METERS}
        self._failed = self._refused = self._retries = 0
        self._partitions: dict[str, tuple[int, float]] = {}
        settings = {"client.id": f"penstock-{listener}", **handler.producer}
        self._producer = _producer({**settings, "stats_cb": self._mark_resends, "error_cb": self._log_error})
        timeout = next((settings[name] for name in TIMEOUTS if name in settings), DEFAULTS[TIMEOUTS[0]])
        self.patience = float(timeout) / 1000 + BATCH_SLACK_S
        """Time limit for a delivery in seconds."""
        self.on_wait: Callable[[], None] = lambda: None
        """Called at least every ``POLL_S`` while a delivery waits for the broker."""

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Send ``batch`` and wait for the outcome of each message."""
        outcome = _Outcome()
        deadline = time.monotonic() + self.patience
        common: Headers = (
            {ORIGIN_HEADER: encode_origin(self._host, origin.source, origin.bucket)}
            if self._handler.origin_header
            else {}
        )
        for topic, rows, requested in self._route(batch):
            self._send(topic, rows, _headers(rows.num_rows, common, requested), outcome, deadline)
        while outcome.waiting and time.monotonic() < deadline:
            self._wait()
        if outcome.waiting:
            # Order: purge, then poll: the callbacks of purged messages report them as failed.
            self._producer.purge()
            self._producer.poll(POLL_S)
        failed = outcome.failed + outcome.waiting
        dropped = batch.num_rows - outcome.delivered - failed
        self._mark_meters(outcome, failed, dropped)
        return Delivered(outcome.delivered, failed, dropped)

    def stat(self) -> dict[str, Any]:
        """Return plog's ``failed_to_send`` and meters, and the number of requested topics that were refused."""
        meters = {name: meter.document() for name, meter in self._meters.items()}
        return {"failed_to_send": self._failed, "refused_topics": self._refused, "kafka": meters}

    def close(self) -> None:
        """End the producer, which has no messages in flight."""
        self._producer.flush(POLL_S)

    def _route(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch, pa.Array[Any] | None]]:
        """Yield the messages by topic, with their refused topic requests; messages without a topic are left out."""
        default, requested = self._handler.default_topic, requested_topics(batch)
        if requested is None:
            if default not in NO_TOPIC:
                yield default, batch, None
            return
        allowed = pa.array(
            [name for name in pc.unique(requested).to_pylist() if name and _is_kafka_topic(name)], pa.string()
        )
        refused = pc.and_(requested.is_valid(), pc.invert(pc.is_in(requested, allowed)))
        self._refused += refused.true_count
        topics = pc.if_else(pc.is_in(requested, allowed), requested, default)
        refused_requests = pc.if_else(refused, requested, pa.scalar(None, pa.string()))
        for topic in pc.unique(topics).to_pylist():
            if topic not in NO_TOPIC:
                rows_of_topic = pc.equal(topics, topic)
                yield topic, batch.filter(rows_of_topic), refused_requests.filter(rows_of_topic)

    def _partitions_of(self, topic: str, keys: Sequence[bytes | None], deadline: float) -> list[int | None] | None:
        """Return Flink's partition of each message with a key, None if the producer chooses; nothing if
        the topic is missing, or the broker is away until the deadline.
        """
        chosen: list[int | None] = [None] * len(keys)
        keyed = [row for row, key in enumerate(keys) if key is not None]
        if self._handler.max_parallelism and keyed:
            if not (count := self._partition_count(topic, deadline)):
                return None
            partitions = partitions_of([keys[row] or b"" for row in keyed], count, self._handler.max_parallelism)
            for row, partition in zip(keyed, partitions.tolist(), strict=True):
                chosen[row] = partition
        return chosen

    def _partition_count(self, topic: str, deadline: float) -> int:
        """Return the number of partitions of a topic; 0 if it is missing, or the broker is away until the deadline."""
        count, expiry = self._partitions.get(topic, (0, 0.0))
        is_cached = time.monotonic() <= expiry
        if count and is_cached:
            return count
        # Limit: a missing topic, which senders name, may not take the time of the batch's other topics, or of each
        # batch; ``deadline`` is longer than the timeout of messages by the slack.
        missing_end = 0.0 if is_cached else deadline - self.patience + BATCH_SLACK_S
        while True:
            timeout_s = min(METADATA_TIMEOUT_S, max(deadline - time.monotonic(), POLL_S))
            try:
                partitions = self._producer.list_topics(topic, timeout_s).topics[topic].partitions
            except Exception as error:  # noqa: BLE001 - confluent_kafka.KafkaException: no broker answers
                _LOGGER.warning("Kafka: %s", _reason(error))
            else:
                # A topic that is being created has no partitions yet: this is not its number of them.
                if partitions or (not count and time.monotonic() > missing_end):
                    self._partitions[topic] = len(partitions), time.monotonic() + PARTITION_CACHE_S
                    return len(partitions)
            # An old number is better than none: partitions are rarely added.
            if count or time.monotonic() > deadline:
                return count
            self._wait()

    def _send(
        self, topic: str, rows: pa.RecordBatch, headers: list[Headers | None], outcome: _Outcome, deadline: float
    ) -> None:
        keys = rows.column("key").to_pylist()
        payloads, partitions = rows.column("payload").to_pylist(), self._partitions_of(topic, keys, deadline)
        if partitions is None:
            # Not raised: the forwarder would deliver the batch again, with the messages of other topics.
            outcome.failed += rows.num_rows
            return
        for payload, key, partition, header in zip(payloads, keys, partitions, headers, strict=True):
            record_value = self._encrypt(payload or b"")
            if record_value is None or not self._produce(
                topic, record_value, key, partition, header, outcome, deadline
            ):
                outcome.failed += 1

    def _encrypt(self, payload: bytes) -> bytes | None:
        """Return the payload, encrypted if configured; None if encryption fails."""
        if self._encryption is None:
            return payload
        try:
            return self._encryption.encrypt(payload)
        except ValueError:
            self._meters["serializationErrorRate"].mark(1)
            return None

    def _produce(
        self,
        topic: str,
        record_value: bytes,
        key: bytes | None,
        partition: int | None,
        headers: Headers | None,
        outcome: _Outcome,
        deadline: float,
    ) -> bool:
        """Hand a message to the producer; False if the producer does not accept it."""
        options: dict[str, Any] = {
            name: option for name, option in (("partition", partition), ("headers", headers)) if option is not None
        }
        while time.monotonic() < deadline:
            try:
                self._producer.produce(topic, record_value, key, on_delivery=outcome.record_outcome, **options)
                outcome.waiting += 1
                return True
            except BufferError:  # the producer's queue is full: polling makes room
                self._wait()
            except Exception:  # noqa: BLE001 - confluent_kafka.KafkaException: too large, no such partition
                return False
        return False

    def _wait(self) -> None:
        self._producer.poll(POLL_S)
        self.on_wait()

    def _mark_meters(self, outcome: _Outcome, failed: int, dropped: int) -> None:
        self._failed += failed
        marks = {
            "messageRate": outcome.delivered,
            "byteRate": outcome.size,
            "failedSendRate": failed,
            "droppedMessageRate": failed + dropped,
        }
        for name, count in marks.items():
            self._meters[name].mark(count)

    def _log_error(self, error: Any) -> None:
        _LOGGER.warning("Kafka: %s", error.str())

    def _mark_resends(self, text: str) -> None:
        """Update the rate of resent requests from the producer's statistics."""
        retries = sum(broker.get("txretries", 0) for broker in json.loads(text).get("brokers", {}).values())
        self._meters["resendRate"].mark(max(retries - self._retries, 0))
        self._retries = retries


class _Outcome:
    """Outcomes that the producer has reported for the messages of a batch."""

    def __init__(self) -> None:
        self.waiting = self.delivered = self.failed = self.size = 0

    def record_outcome(self, error: Any, message: Any) -> None:
        """Count the outcome of a message."""
        self.waiting -= 1
        self.failed += error is not None
        self.delivered += error is None
        self.size += 0 if error is not None else len(message)


def _is_kafka_topic(name: str) -> bool:
    return KAFKA_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _headers(count: int, common: Headers, requested: pa.Array[Any] | None) -> list[Headers | None]:
    """Return the headers of each message: the common ones, and the topic request that was refused."""
    if requested is None:
        return [common or None] * count
    return [
        common or None if request is None else {**common, TOPIC_REQUEST: request} for request in requested.to_pylist()
    ]


def _producer(settings: Mapping[str, Any]) -> Any:
    try:
        from penstock.kafka.client.producer import Producer
    except ImportError:
        raise BadSettings("type: kafka needs Penstock's extra 'kafka': pip install 'penstock-pipe[kafka]'") from None
    defaults = {name: value for name, value in DEFAULTS.items() if name not in TIMEOUTS or not _has_timeout(settings)}
    try:
        return Producer({name: _text(value) for name, value in {**defaults, **settings}.items()})
    except Exception as error:  # noqa: BLE001 - librdkafka or a plug-in may raise any type
        raise BadSettings(f"producer: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    message_of = getattr(error.args[0], "str", None) if error.args else None
    return message_of() if message_of else str(error)


def _has_timeout(settings: Mapping[str, Any]) -> bool:
    return any(name in settings for name in TIMEOUTS)


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value if callable(value) else str(value)
