"""Create the plug-ins that a client's configuration names, and the parts that use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.kafka.auditing.auditor import Auditor, NoOpAuditor
from penstock.kafka.client.config import ConsumerConfig, ProducerConfig
from penstock.kafka.client.consumer_state import ConsumerState
from penstock.kafka.client.plugins.java_partitioner import PARTITIONERS
from penstock.kafka.client.plugins.loading import (
    AUDITORS,
    BUILTIN_AUDITORS,
    CHUNK_DESERIALIZERS,
    CHUNK_SERIALIZERS,
    ID_FACTORIES,
    load_chunk_deserializer,
    load_chunk_serializer,
    load_id_factory,
    load_serializer,
    properties_of,
)
from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.chunks import deserialize_chunk, serialize_chunk
from penstock.kafka.large.record_processor import CommittedLookup, Deserializer, Processor
from penstock.kafka.large.safe_offsets import DeliveredOffsets
from penstock.kafka.large.splitter import MessageSplitter, Packer, random_id

PLUGINS_BY_PROPERTY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "auditor.class": (AUDITORS, BUILTIN_AUDITORS),
    "segment.serializer": (CHUNK_SERIALIZERS, {"DefaultSegmentSerializer": None, "default": None}),
    "segment.deserializer.class": (CHUNK_DESERIALIZERS, {"DefaultSegmentDeserializer": None, "default": None}),
    "uuid.factory.class": (ID_FACTORIES, {"DefaultUUIDFactory": None, "default": None}),
    "partitioner.class": (PARTITIONERS, {"default": None, "round_robin": None}),
}
"""Maps a property that names a plug-in to its group of entry points and our own plug-ins by name."""

SERIALIZERS = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


def declared_properties(config: Mapping[str, Any]) -> set[str]:
    """Return the properties that plug-ins declare to read. Raises CannotLoad."""
    settings = [(key, config[key]) for key in PLUGINS_BY_PROPERTY if config.get(key) is not None]
    declared = {name for key, setting in settings for name in properties_of(key, setting, *PLUGINS_BY_PROPERTY[key])}
    return declared.union(*(getattr(config.get(key), "properties", ()) for key in SERIALIZERS))


def create_packer(config: ProducerConfig, plugin_config: Mapping[str, Any]) -> Packer:
    """Create the packer, which turns messages into records. Raises CannotLoad."""
    plugin, factory = config.serializer, config.uuid_factory
    serializer = serialize_chunk if plugin is None else load_chunk_serializer(plugin, plugin_config)
    splitter = MessageSplitter(config.chunk_bytes, in_header=config.in_record_header, serializer=serializer)
    return Packer(
        splitter,
        enabled=config.large,
        wrap_small=config.wrap_all,
        stamped=config.timestamps,
        request_bytes=config.request_bytes,
        new_id=random_id if factory is None else load_id_factory(factory, plugin_config),
    )


def create_consumer_state(
    config: ConsumerConfig, plugin_config: Mapping[str, Any], auditor: Auditor, committed: CommittedLookup
) -> ConsumerState:
    """Create the consumer state, which turns records into messages. Raises CannotLoad."""
    plugin = config.deserializer
    assembler = Assembler(
        config.capacity,
        config.expiration_gap,
        exception_on_dropped=config.exception_on_dropped,
        deserializer=deserialize_chunk if plugin is None else load_chunk_deserializer(plugin, plugin_config),
        bad_chunks_as_payload=config.bad_chunks_as_payload,
    )
    processor = Processor(
        assembler,
        DeliveredOffsets(config.max_tracked),
        committed,
        auditor=None if isinstance(auditor, NoOpAuditor) else auditor,
        key_deserializer=_with_context(
            load_serializer("key.deserializer", config.key_deserializer, plugin_config), MessageField.KEY
        ),
        value_deserializer=_with_context(
            load_serializer("value.deserializer", config.value_deserializer, plugin_config), MessageField.VALUE
        ),
    )
    return ConsumerState(processor)


def _with_context(
    deserializer: Callable[[Any, SerializationContext], Any] | None, field: MessageField
) -> Deserializer | None:
    """Adapt a deserializer of confluent_kafka, which takes a context instead of topic and headers."""
    if deserializer is None:
        return None
    return lambda topic, data, headers: deserializer(data, SerializationContext(topic, field, headers))
