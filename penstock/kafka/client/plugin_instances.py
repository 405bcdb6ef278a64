"""What a client's configuration plugs in, made for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.kafka.auditing.auditor import Auditor, NoOpAuditor
from penstock.kafka.client.config import ConsumerConfig, ProducerConfig
from penstock.kafka.client.consumer_state import ConsumerState
from penstock.kafka.client.java_partitioner import PARTITIONERS
from penstock.kafka.client.plugins import (
    AUDITORS,
    CHUNK_DESERIALIZERS,
    CHUNK_SERIALIZERS,
    ID_FACTORIES,
    OWN_AUDITORS,
    load_chunk_deserializer,
    load_chunk_serializer,
    load_id_factory,
    properties_of,
)
from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.chunks import deserialize_chunk, serialize_chunk
from penstock.kafka.large.record_processor import CommittedLookup, Deserializer, Processor
from penstock.kafka.large.safe_offsets import DeliveredOffsets
from penstock.kafka.large.splitter import MessageSplitter, Packer, random_id

GROUPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "auditor.class": (AUDITORS, OWN_AUDITORS),
    "segment.serializer": (CHUNK_SERIALIZERS, {"DefaultSegmentSerializer": None, "default": None}),
    "segment.deserializer.class": (CHUNK_DESERIALIZERS, {"DefaultSegmentDeserializer": None, "default": None}),
    "uuid.factory.class": (ID_FACTORIES, {"DefaultUUIDFactory": None, "default": None}),
    "partitioner.class": (PARTITIONERS, {"default": None, "round_robin": None}),
}
"""Of each property that names a plug-in the group of entry points, and our own by name."""


def declared_properties(config: Mapping[str, Any]) -> set[str]:
    """The properties that plug-ins say they read themselves. Raises CannotLoad."""
    named = [(key, config[key]) for key in GROUPS if config.get(key) is not None]
    return {name for key, given in named for name in properties_of(key, given, *GROUPS[key])}


def packer(config: ProducerConfig, plugged: Mapping[str, Any]) -> Packer:
    """What makes records of messages. Raises CannotLoad."""
    given, factory = config.serializer, config.uuid_factory
    serializer = serialize_chunk if given is None else load_chunk_serializer(given, plugged)
    splitter = MessageSplitter(config.chunk_bytes, in_header=config.in_record_header, serializer=serializer)
    return Packer(
        splitter,
        enabled=config.large,
        wrap_small=config.wrap_all,
        stamped=config.timestamps,
        request_bytes=config.request_bytes,
        new_id=random_id if factory is None else load_id_factory(factory, plugged),
    )


def consumer_state(
    config: ConsumerConfig, plugged: Mapping[str, Any], auditor: Auditor, committed: CommittedLookup
) -> ConsumerState:
    """What makes messages of records. Raises CannotLoad."""
    given = config.deserializer
    assembler = Assembler(
        config.capacity,
        config.expiration_gap,
        exception_on_dropped=config.exception_on_dropped,
        deserializer=deserialize_chunk if given is None else load_chunk_deserializer(given, plugged),
        bad_chunks_as_payload=config.bad_chunks_as_payload,
    )
    processor = Processor(
        assembler,
        DeliveredOffsets(config.most_tracked),
        committed,
        auditor=None if isinstance(auditor, NoOpAuditor) else auditor,
        key_deserializer=_deserializer(config.key_deserializer, MessageField.KEY),
        value_deserializer=_deserializer(config.value_deserializer, MessageField.VALUE),
    )
    return ConsumerState(processor)


def _deserializer(given: Callable[[Any, SerializationContext], Any] | None, field: MessageField) -> Deserializer | None:
    """confluent_kafka's deserializers take the data and where it comes from."""
    if given is None:
        return None
    return lambda topic, data, headers: given(data, SerializationContext(topic, field, headers))
