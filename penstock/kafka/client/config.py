"""Properties of ``Producer`` and ``Consumer``: li-apache-kafka-clients' own, with its defaults, and of
librdkafka.

An unknown property is an error that suggests the nearest one. A plug-in declares the properties that it reads itself
in its attribute ``properties``, a collection of names.
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
"""Limit: librdkafka's default is 1 GiB, and large messages fill it."""
AUTO_COMMIT_INTERVAL_MS = 30_000
JAVA_PARTITIONER = "murmur2_random"
"""Partitions keys as Kafka's Java clients do; librdkafka's default hashes with CRC32."""
MAX_CHUNK_BYTES = (1 << 31) - 1
PRODUCER_PROPERTIES = properties.split_names(
    """
    large.message.enabled max.message.segment.bytes max.request.size segment.serializer
    li.large.message.segment.wrapping.required li.record.header.enable header.timestamp.enabled auditor.class
    uuid.factory.class partitioner.class key.serializer value.serializer
    """
)
CONSUMER_PROPERTIES = properties.split_names(
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
"""Allowed values of ``auto.offset.reset``, with their meaning."""
Serializer = Callable[[Any], Any]


class BadProperty(PenstockError, ValueError):
    """A property is unknown or has an invalid value; the text names it."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Parsed properties of a producer; ``raw`` is for ``confluent_kafka.Producer``."""

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
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Parsed properties of a consumer; ``raw`` is for ``confluent_kafka.Consumer``, which neither commits nor
    resets.
    """

    capacity: int
    expiration_gap: int
    max_tracked: int
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


def producer_config(config: Mapping[str, Any], declared: Collection[str] = ()) -> ProducerConfig:
    """Parse the properties of a producer; ``declared`` are the plug-ins' own. Raises BadProperty."""
    if CURRENT_PRODUCER in config:
        raise BadProperty(
            f"{CURRENT_PRODUCER} must not be set: the producer itself sets it, for serializers and auditors"
        )
    reader = _PropertyReader(config)
    chunk = reader.number("max.message.segment.bytes", DEFAULT_CHUNK_BYTES, 1, MAX_CHUNK_BYTES)
    request = reader.number("max.request.size", config.get("message.max.bytes", DEFAULT_REQUEST_BYTES), 1000, 1 << 30)
    raw = _librdkafka_properties(config, PRODUCER_PROPERTIES, declared)
    raw["message.max.bytes"] = request
    raw.setdefault("partitioner", JAVA_PARTITIONER)
    raw.setdefault("queue.buffering.max.kbytes", PRODUCER_QUEUE_KBYTES)
    return ProducerConfig(
        large=reader.flag("large.message.enabled", False),
        chunk_bytes=chunk,
        request_bytes=request,
        wrap_all=reader.flag("li.large.message.segment.wrapping.required", False),
        in_record_header=reader.flag("li.record.header.enable", False),
        timestamps=reader.flag("header.timestamp.enabled", True),
        partitioner=config.get("partitioner.class"),
        serializer=config.get("segment.serializer"),
        auditor=config.get("auditor.class"),
        uuid_factory=config.get("uuid.factory.class"),
        key_serializer=reader.function("key.serializer"),
        value_serializer=reader.function("value.serializer"),
        raw=raw,
    )


def consumer_config(config: Mapping[str, Any], declared: Collection[str] = ()) -> ConsumerConfig:
    """Parse the properties of a consumer; ``declared`` are the plug-ins' own. Raises BadProperty."""
    reader = _PropertyReader(config)
    raw = _librdkafka_properties(config, CONSUMER_PROPERTIES, declared)
    for own_key in ("enable.auto.commit", "auto.commit.interval.ms", "auto.offset.reset", "on_commit"):
        raw.pop(own_key, None)
    # Order: commits and resets are computed here from whole messages; librdkafka would use offsets of chunks.
    raw |= {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
    strategy, protocol = str(config.get("partition.assignment.strategy", "")), config.get("group.protocol", "classic")
    return ConsumerConfig(
        capacity=reader.number("message.assembler.buffer.capacity", DEFAULT_CAPACITY_BYTES, 1),
        expiration_gap=reader.number("message.assembler.expiration.offset.gap", DEFAULT_EXPIRATION_GAP, 1),
        max_tracked=reader.number("max.tracked.messages.per.partition", DEFAULT_TRACKED, 1),
        exception_on_dropped=reader.flag("exception.on.message.dropped", False),
        exception_on_reset=reader.flag("exception.on.invalid.offset.reset", False),
        bad_chunks_as_payload=reader.flag("treat.bad.segments.as.payload", False),
        deserializer=config.get("segment.deserializer.class"),
        auditor=config.get("auditor.class"),
        key_deserializer=reader.function("key.deserializer"),
        value_deserializer=reader.function("value.deserializer"),
        reset=reader.choice("auto.offset.reset", "none", RESETS),
        auto_commit=reader.flag("enable.auto.commit", True),
        auto_commit_seconds=reader.number("auto.commit.interval.ms", AUTO_COMMIT_INTERVAL_MS, 0) / 1000,
        stores_offsets=not reader.flag("enable.auto.offset.store", True),
        on_commit=reader.function("on_commit"),
        cooperative="cooperative" in strategy or protocol == "consumer",
        raw=raw,
    )


def create_client(create: Callable[[], Any], property_names: Collection[str]) -> Any:
    """Create a client of librdkafka; an unknown property raises BadProperty with the nearest name."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        return create()
    except KafkaException as error:
        error_details = error.args[0]
        if not isinstance(error_details, KafkaError) or error_details.code() != KafkaError._INVALID_ARG:
            raise
        # Workaround: librdkafka reports the unknown name only within its text.
        _, quoted, rest = error_details.str().partition('No such configuration property: "')
        if not quoted:
            raise BadProperty(error_details.str()) from None
        raise BadProperty(_unknown_property(rest.rpartition('"')[0], property_names)) from None


def _unknown_property(name: str, property_names: Collection[str]) -> str:
    suggestions = get_close_matches(name, property_names, 1, 0.7)
    return f"unknown property {name!r}" + (f"; did you mean {suggestions[0]!r}?" if suggestions else "")


def producer_names() -> frozenset[str]:
    """Return all properties of a producer."""
    return PRODUCER_PROPERTIES | properties.PRODUCER


def consumer_names() -> frozenset[str]:
    """Return all properties of a consumer."""
    return CONSUMER_PROPERTIES | properties.CONSUMER


def _librdkafka_properties(
    config: Mapping[str, Any], own_properties: Collection[str], declared: Collection[str]
) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in own_properties and key not in declared}


class _PropertyReader:
    """Reads values as Java's configurations hold them: as texts, or as the typed value itself."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def flag(self, key: str, default: bool) -> bool:
        setting = self._config.get(key, default)
        if isinstance(setting, bool):
            return setting
        if isinstance(setting, str) and setting.strip().lower() in ("true", "false"):
            return setting.strip().lower() == "true"
        raise BadProperty(f"{key}: {setting!r} must be true or false")

    def number(self, key: str, default: Any, minimum: int, maximum: int = (1 << 63) - 1) -> int:
        setting = self._config.get(key, default)
        try:
            number = int(setting)
        except (TypeError, ValueError):
            raise BadProperty(f"{key}: {setting!r} must be a whole number") from None
        if isinstance(setting, bool) or not minimum <= number <= maximum:
            raise BadProperty(f"{key}: {setting!r} must be from {minimum} to {maximum}")
        return number

    def choice(self, key: str, default: str, meanings: Mapping[str, str]) -> str:
        setting = str(self._config.get(key, default)).strip().lower()
        if setting not in meanings:
            raise BadProperty(f"{key}: {self._config[key]!r} must be one of {', '.join(sorted(meanings))}")
        return meanings[setting]

    def function(self, key: str) -> Callable[..., Any] | None:
        setting = self._config.get(key)
        if setting is not None and not callable(setting):
            raise BadProperty(f"{key}: {setting!r} must be callable")
        return setting
