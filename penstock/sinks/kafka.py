"""The handler that sends messages to Kafka, encrypted where told so (plog's Kafka handler).

A batch is done when the broker, or the producer for want of one, has said of each message what became of it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import KafkaHandler
from penstock.config.keys.handlers import KAFKA_TOPIC
from penstock.counts import Origin
from penstock.handover.topic_requests import TOPIC_REQUEST, requested_topics
from penstock.kafka.client.encryption import Encryption
from penstock.kafka.client.flink_partitioner import partitions_of
from penstock.sinks.handler import BadSettings, Delivered
from penstock.wire.meters import Meter
from penstock.wire.plog.statistics import METERS

DEFAULTS: Mapping[str, Any] = {
    "header.timestamp.enabled": "false",  # plog sends no headers
    "message.timeout.ms": 30_000,
    "statistics.interval.ms": 5_000,
    "log_level": 0,  # what is wrong is told by its callback
}
"""Settings of the producer where the user gives none."""
TIMEOUTS = ("message.timeout.ms", "delivery.timeout.ms")
NO_TOPIC = ("", "null")
"""Topics that mean none, as with plog."""
SLACK = 10.0
"""Seconds that a batch may take beyond the time in which each of its messages has to be sent."""
WAIT = 0.05
METADATA_TIME = 5.0
REMEMBERED = 60.0
"""Seconds for which the number of a topic's partitions is remembered."""
_LOGGER = logging.getLogger(__name__)
Headers = list[tuple[str, str | bytes | None]]


class Kafka:
    """Sends the messages of ``listener``. Raises BadSettings for what the producer does not take."""

    def __init__(self, listener: str, handler: KafkaHandler) -> None:
        self._handler = handler
        given = handler.encryption
        self._encryption = Encryption(given.key_bytes(), given.mode, given.padded) if given else None
        self._meters = {name: Meter() for name in METERS}
        self._failed = self._refused = self._retries = 0
        self._partitions: dict[str, tuple[int, float]] = {}
        settings = {"client.id": f"penstock-{listener}", **handler.producer}
        self._producer = _producer({**settings, "stats_cb": self._statistics, "error_cb": self._error})
        timeout = next((settings[name] for name in TIMEOUTS if name in settings), DEFAULTS[TIMEOUTS[0]])
        self.patience = float(timeout) / 1000 + SLACK
        """Seconds that a delivery may take."""

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Send ``batch``."""
        outcome = _Outcome()
        until = time.monotonic() + self.patience
        for topic, rows, requested in self._routed(batch):
            self._send(topic, rows, requested, outcome, until)
        while outcome.waiting and time.monotonic() < until:
            self._producer.poll(WAIT)
        if outcome.waiting:
            self._producer.purge()
            self._producer.poll(WAIT)
        failed = outcome.failed + outcome.waiting
        dropped = batch.num_rows - outcome.delivered - failed
        self._mark(outcome, failed, dropped)
        return Delivered(outcome.delivered, failed, dropped)

    def stat(self) -> dict[str, Any]:
        """plog's ``failed_to_send`` and meters; requests that were no topic of Kafka."""
        meters = {name: meter.document() for name, meter in self._meters.items()}
        return {"failed_to_send": self._failed, "refused_topics": self._refused, "kafka": meters}

    def close(self) -> None:
        """End the producer; nothing waits in it."""
        self._producer.flush(WAIT)

    # Where a message goes

    def _routed(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch, pa.Array[Any] | None]]:
        """The messages by topic, without those that have none; with the requests that were no topics."""
        default, requested = self._handler.default_topic, requested_topics(batch)
        if requested is None:
            if default not in NO_TOPIC:
                yield default, batch, None
            return
        allowed = pa.array([name for name in pc.unique(requested).to_pylist() if name and _is_topic(name)], pa.string())
        refused = pc.and_(requested.is_valid(), pc.invert(pc.is_in(requested, allowed)))
        self._refused += refused.true_count
        topics = pc.if_else(pc.is_in(requested, allowed), requested, default)
        unanswered = pc.if_else(refused, requested, pa.scalar(None, pa.string()))
        for topic in pc.unique(topics).to_pylist():
            if topic not in NO_TOPIC:
                mine = pc.equal(topics, topic)
                yield topic, batch.filter(mine), unanswered.filter(mine)

    def _partition(self, topic: str, keys: Sequence[bytes | None]) -> list[int | None]:
        """Flink's partition of each message with a key; None where the producer chooses."""
        chosen: list[int | None] = [None] * len(keys)
        keyed = [row for row, key in enumerate(keys) if key is not None]
        if self._handler.max_parallelism and keyed:
            found = partitions_of(
                [keys[row] or b"" for row in keyed], self._count(topic), self._handler.max_parallelism
            )
            for row, partition in zip(keyed, found.tolist(), strict=True):
                chosen[row] = partition
        return chosen

    def _count(self, topic: str) -> int:
        """How many partitions a topic has."""
        count, known_until = self._partitions.get(topic, (0, 0.0))
        if time.monotonic() > known_until:
            count = len(self._producer.list_topics(topic, METADATA_TIME).topics[topic].partitions) or 1
            self._partitions[topic] = count, time.monotonic() + REMEMBERED
        return count

    # Sending

    def _send(
        self, topic: str, rows: pa.RecordBatch, requested: pa.Array[Any] | None, outcome: _Outcome, until: float
    ) -> None:
        keys = rows.column("key").to_pylist()
        headers = [None] * len(keys) if requested is None else [_headers(request) for request in requested.to_pylist()]
        payloads, partitions = rows.column("payload").to_pylist(), self._partition(topic, keys)
        for payload, key, partition, header in zip(payloads, keys, partitions, headers, strict=True):
            value = self._value(payload or b"")
            if value is None or not self._sent(topic, value, key, partition, header, outcome, until):
                outcome.failed += 1

    def _value(self, payload: bytes) -> bytes | None:
        """What is sent for a payload; None where it cannot be encrypted."""
        if self._encryption is None:
            return payload
        try:
            return self._encryption.encrypt(payload)
        except ValueError:
            self._meters["serializationErrorRate"].mark(1)
            return None

    def _sent(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int | None,
        headers: Headers | None,
        outcome: _Outcome,
        until: float,
    ) -> bool:
        """Hand one message to the producer; False where it is not taken."""
        more: dict[str, Any] = {
            name: v for name, v in (("partition", partition), ("headers", headers)) if v is not None
        }
        while time.monotonic() < until:
            try:
                self._producer.produce(topic, value, key, on_delivery=outcome.told, **more)
                outcome.waiting += 1
                return True
            except BufferError:  # its queue is full
                self._producer.poll(WAIT)
            except Exception:  # noqa: BLE001 - confluent_kafka.KafkaException: too large, no such partition
                return False
        return False

    def _mark(self, outcome: _Outcome, failed: int, dropped: int) -> None:
        self._failed += failed
        marks = {
            "messageRate": outcome.delivered,
            "byteRate": outcome.size,
            "failedSendRate": failed,
            "droppedMessageRate": failed + dropped,
        }
        for name, count in marks.items():
            self._meters[name].mark(count)

    def _error(self, error: Any) -> None:
        _LOGGER.warning("%s", error.str())

    def _statistics(self, text: str) -> None:
        """What the producer says of itself: how often it sent a request again."""
        retries = sum(broker.get("txretries", 0) for broker in json.loads(text).get("brokers", {}).values())
        self._meters["resendRate"].mark(max(retries - self._retries, 0))
        self._retries = retries


class _Outcome:
    """What the producer has said of the messages of a batch."""

    def __init__(self) -> None:
        self.waiting = self.delivered = self.failed = self.size = 0

    def told(self, error: Any, message: Any) -> None:
        """One message has come to its end."""
        self.waiting -= 1
        self.failed += error is not None
        self.delivered += error is None
        self.size += 0 if error is not None else len(message)


def _is_topic(name: str) -> bool:
    return KAFKA_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _headers(request: str | None) -> Headers | None:
    return [(TOPIC_REQUEST, request)] if request is not None else None


def _producer(settings: Mapping[str, Any]) -> Any:
    try:
        from penstock.kafka.client.producer import Producer
    except ImportError:
        raise BadSettings("type: kafka needs Penstock's extra 'kafka' to be installed") from None
    defaults = {name: value for name, value in DEFAULTS.items() if name not in TIMEOUTS or not _times_out(settings)}
    try:
        return Producer({name: _text(value) for name, value in {**defaults, **settings}.items()})
    except Exception as error:  # noqa: BLE001 - of librdkafka's or of a plug-in's own
        raise BadSettings(f"producer: {_why(error)}") from None


def _why(error: Exception) -> str:
    told = getattr(error.args[0], "str", None) if error.args else None
    return told() if told else str(error)


def _times_out(settings: Mapping[str, Any]) -> bool:
    return any(name in settings for name in TIMEOUTS)


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value if callable(value) else str(value)
