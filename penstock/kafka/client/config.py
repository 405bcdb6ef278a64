"""The properties of ``Producer`` and ``Consumer``: the Java library's, by name and default, and those of librdkafka.

A property of neither is an error that names the nearest one. What a plug-in reads itself it declares in its attribute
``properties``, a collection of names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from penstock.errors import PenstockError
from penstock.kafka.client import properties
from penstock.kafka.large.assembler import DEFAULT_CAPACITY_BYTES, DEFAULT_EXPIRATION_GAP
from penstock.kafka.large.safe_offsets import DEFAULT_TRACKED
from penstock.kafka.large.splitter import DEFAULT_CHUNK_BYTES, DEFAULT_REQUEST_BYTES

PRODUCER_QUEUE_KBYTES = 65_536
"""librdkafka would take a gigabyte, which large messages fill."""
AUTO_COMMIT_MILLISECONDS = 30_000
JAVA_PARTITIONER = "murmur2_random"
"""Partitions keys as Java's clients do; librdkafka's default does not."""
MOST_CHUNK_BYTES = (1 << 31) - 1
OF_PRODUCER = properties.names(
    """
    large.message.enabled max.message.segment.bytes max.request.size segment.serializer
    li.large.message.segment.wrapping.required li.record.header.enable header.timestamp.enabled auditor.class
    uuid.factory.class partitioner.class key.serializer value.serializer
    """
)
OF_CONSUMER = properties.names(
    """
    message.assembler.buffer.capacity message.assembler.expiration.offset.gap max.tracked.messages.per.partition
    exception.on.message.dropped exception.on.invalid.offset.reset treat.bad.segments.as.payload
    segment.deserializer.class auditor.class key.deserializer value.deserializer
    """
)
CURRENT_PRODUCER = "current.producer"
RESETS = {
    "none": "none",
    "error": "none",
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
    "liclosest": "liclosest",
    "li_closest": "liclosest",
}
"""What ``auto.offset.reset`` may be, and what it means."""
Plain = Callable[[Any], Any]


class BadProperty(PenstockError, ValueError):
    """A property that is not known, or a value it cannot have; the text names it."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """``raw`` is for ``confluent_kafka.Producer``."""

    large: bool
    chunk_bytes: int
    request_bytes: int
    wrap_all: bool
    in_record_header: bool
    timestamps: bool
    partitioner: Any
    serializer: Any
    auditor: Any
    uuid_factory: Any
    key_serializer: Plain | None
    value_serializer: Plain | None
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """``raw`` is for ``confluent_kafka.Consumer``, which neither commits nor resets by itself."""

    capacity: int
    expiration_gap: int
    most_tracked: int
    exception_on_dropped: bool
    exception_on_reset: bool
    bad_chunks_as_payload: bool
    deserializer: Any
    auditor: Any
    key_deserializer: Any
    value_deserializer: Any
    reset: str
    auto_commit: bool
    auto_commit_seconds: float
    stores_offsets: bool
    on_commit: Callable[..., Any] | None
    cooperative: bool
    raw: dict[str, Any]


def producer_config(given: Mapping[str, Any], declared: Collection[str] = ()) -> ProducerConfig:
    """What a producer was asked to be; ``declared`` are the plug-ins' own properties. Raises BadProperty."""
    if CURRENT_PRODUCER in given:
        raise BadProperty(f"{CURRENT_PRODUCER} is not to be set: serializers and auditors find the producer there")
    read = _Reader(given)
    chunk = read.number("max.message.segment.bytes", DEFAULT_CHUNK_BYTES, 1, MOST_CHUNK_BYTES)
    request = read.number("max.request.size", given.get("message.max.bytes", DEFAULT_REQUEST_BYTES), 1000, 1 << 30)
    raw = _raw(given, OF_PRODUCER, declared)
    raw["message.max.bytes"] = request
    raw.setdefault("partitioner", JAVA_PARTITIONER)
    raw.setdefault("queue.buffering.max.kbytes", PRODUCER_QUEUE_KBYTES)
    return ProducerConfig(
        large=read.flag("large.message.enabled", False),
        chunk_bytes=chunk,
        request_bytes=request,
        wrap_all=read.flag("li.large.message.segment.wrapping.required", False),
        in_record_header=read.flag("li.record.header.enable", False),
        timestamps=read.flag("header.timestamp.enabled", True),
        partitioner=given.get("partitioner.class"),
        serializer=given.get("segment.serializer"),
        auditor=given.get("auditor.class"),
        uuid_factory=given.get("uuid.factory.class"),
        key_serializer=read.function("key.serializer"),
        value_serializer=read.function("value.serializer"),
        raw=raw,
    )


def consumer_config(given: Mapping[str, Any], declared: Collection[str] = ()) -> ConsumerConfig:
    """What a consumer was asked to be; ``declared`` are the plug-ins' own properties. Raises BadProperty."""
    read = _Reader(given)
    raw = _raw(given, OF_CONSUMER, declared)
    for taken in ("enable.auto.commit", "auto.commit.interval.ms", "auto.offset.reset", "on_commit"):
        raw.pop(taken, None)
    raw |= {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
    strategy, protocol = str(given.get("partition.assignment.strategy", "")), given.get("group.protocol", "classic")
    return ConsumerConfig(
        capacity=read.number("message.assembler.buffer.capacity", DEFAULT_CAPACITY_BYTES, 1),
        expiration_gap=read.number("message.assembler.expiration.offset.gap", DEFAULT_EXPIRATION_GAP, 1),
        most_tracked=read.number("max.tracked.messages.per.partition", DEFAULT_TRACKED, 1),
        exception_on_dropped=read.flag("exception.on.message.dropped", False),
        exception_on_reset=read.flag("exception.on.invalid.offset.reset", False),
        bad_chunks_as_payload=read.flag("treat.bad.segments.as.payload", False),
        deserializer=given.get("segment.deserializer.class"),
        auditor=given.get("auditor.class"),
        key_deserializer=read.function("key.deserializer"),
        value_deserializer=read.function("value.deserializer"),
        reset=read.choice("auto.offset.reset", "none", RESETS),
        auto_commit=read.flag("enable.auto.commit", True),
        auto_commit_seconds=read.number("auto.commit.interval.ms", AUTO_COMMIT_MILLISECONDS, 0) / 1000,
        stores_offsets=not read.flag("enable.auto.offset.store", True),
        on_commit=read.function("on_commit"),
        cooperative="cooperative" in strategy or protocol == "consumer",
        raw=raw,
    )


def checked(make: Callable[[], Any], known: Collection[str]) -> Any:
    """A client of librdkafka's; its complaint about a property raises BadProperty with the nearest name."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        return make()
    except KafkaException as error:
        told = error.args[0]
        if not isinstance(told, KafkaError) or told.code() != KafkaError._INVALID_ARG:
            raise
        _, quoted, rest = told.str().partition('No such configuration property: "')
        if not quoted:
            raise BadProperty(told.str()) from None
        raise BadProperty(_unknown(rest.rpartition('"')[0], known)) from None


def _unknown(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1, 0.7)
    return f"there is no property {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def producer_names() -> frozenset[str]:
    """All properties a producer may have."""
    return OF_PRODUCER | properties.PRODUCER


def consumer_names() -> frozenset[str]:
    """All properties a consumer may have."""
    return OF_CONSUMER | properties.CONSUMER


def _raw(given: Mapping[str, Any], ours: Collection[str], declared: Collection[str]) -> dict[str, Any]:
    """What is left for librdkafka."""
    return {key: value for key, value in given.items() if key not in ours and key not in declared}


class _Reader:
    """Values as Java's configurations have them: texts, or what they stand for."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def flag(self, key: str, default: bool) -> bool:
        value = self._given.get(key, default)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise BadProperty(f"{key} is true or false, not {value!r}")

    def number(self, key: str, default: Any, least: int, most: int = (1 << 63) - 1) -> int:
        value = self._given.get(key, default)
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise BadProperty(f"{key} is a whole number, not {value!r}") from None
        if isinstance(value, bool) or not least <= number <= most:
            raise BadProperty(f"{key} is from {least} to {most}, not {value!r}")
        return number

    def choice(self, key: str, default: str, meanings: Mapping[str, str]) -> str:
        value = str(self._given.get(key, default)).strip().lower()
        if value not in meanings:
            raise BadProperty(f"{key} is one of {', '.join(sorted(meanings))}, not {self._given[key]!r}")
        return meanings[value]

    def function(self, key: str) -> Callable[..., Any] | None:
        value = self._given.get(key)
        if value is not None and not callable(value):
            raise BadProperty(f"{key} is to be called, which {value!r} cannot")
        return value
