"""Requests and answers as classes of kio, which are generated from Kafka's own definitions, one per version.

Handlers return answers as mappings. Fields that a version does not have are dropped; missing ones are zero, empty or
null.
"""

from __future__ import annotations

import datetime
import struct
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32

from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.schema.reading import FrameReader, entity_reader

LARGE_PART = 16 << 10
"""Size from which copying costs more than sending a separate part."""
Values = Mapping[str, Any]
"""An answer: its fields by name."""
Parts = list[bytes | memoryview]
"""A frame, with its length; record batches are not copied into it."""
_request_schema, _response_schema = cache(load_request_schema), cache(load_response_schema)


class Api(IntEnum):
    """Requests that are answered, by Kafka's API key."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DELETE_GROUPS = 42
    DESCRIBE_CLUSTER = 60
    DESCRIBE_TOPIC_PARTITIONS = 75


VERSIONS: dict[Api, tuple[int, int]] = {
    Api.PRODUCE: (3, 12),
    Api.FETCH: (4, 12),  # later versions name topics by id
    Api.LIST_OFFSETS: (1, 7),
    Api.METADATA: (0, 12),
    Api.OFFSET_COMMIT: (2, 8),
    Api.OFFSET_FETCH: (1, 8),
    Api.FIND_COORDINATOR: (0, 4),
    Api.JOIN_GROUP: (0, 9),
    Api.HEARTBEAT: (0, 4),
    Api.LEAVE_GROUP: (0, 5),
    Api.SYNC_GROUP: (0, 5),
    Api.DESCRIBE_GROUPS: (0, 5),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: (1, 1),
    Api.API_VERSIONS: (0, 4),
    Api.CREATE_TOPICS: (2, 7),
    Api.DELETE_TOPICS: (1, 5),
    Api.INIT_PRODUCER_ID: (0, 4),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.DELETE_GROUPS: (0, 2),
    Api.DESCRIBE_CLUSTER: (0, 1),
    Api.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}
"""Supported versions, first and last."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``message`` is kio's; its record batches are views into the frame, at ``record_positions``.

    ``is_unsupported`` marks ApiVersions in an unsupported version.
    """

    api: Api
    version: int
    correlation: int
    client: str
    message: Any
    record_positions: tuple[int, ...] = ()
    is_unsupported: bool = False


def parse(frame: bytes | memoryview) -> Request:
    """Parse a frame without its length. Raises BadFrame."""
    try:
        api, version, correlation = struct.unpack_from(">hhi", frame)
        kind = Api(api)
        first, last = VERSIONS[kind]
        if not first <= version <= last:
            if kind is Api.API_VERSIONS:
                # KIP-511: an unsupported ApiVersions is answered in version 0, from which the client learns the
                # supported ones.
                return Request(kind, 0, correlation, "", None, is_unsupported=True)
            raise BadFrame(f"version {version} of {kind.name} is not supported")
        schema = _request_schema(kind, version)
        frame_reader = FrameReader(frame)
        header, message = entity_reader(schema.__header_schema__)(frame_reader), entity_reader(schema)(frame_reader)
        # Workaround: trailing bytes are ignored, as brokers do, because librdkafka sends one byte too many.
    except (struct.error, ValueError, OverflowError) as error:
        raise error if isinstance(error, BadFrame) else BadFrame(f"invalid request: {error}") from None
    return Request(kind, version, correlation, header.client_id or "", message, tuple(frame_reader.record_positions))


class _AnswerSink:
    """File-like target of kio's writer. Large record batches are kept as parts, not copied."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._tail = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        if len(data) < LARGE_PART:
            self._tail += data
        else:
            self._parts += (bytes(self._tail), data)
            self._tail = bytearray()

    def frame(self) -> Parts:
        """Return all written parts behind their length."""
        parts = [*self._parts, bytes(self._tail)]
        return [struct.pack(">i", sum(map(len, parts))) + parts[0], *parts[1:]]


def encode_answer(request: Request, values: Values) -> Parts:
    """Return the frame that answers a request."""
    schema = _response_schema(request.api, request.version)
    header, sink = schema.__header_schema__, typing.cast("Any", _AnswerSink())
    entity_writer(header)(sink, header(correlation_id=i32(request.correlation)))
    entity_writer(schema)(sink, entity(schema, values))
    parts: Parts = sink.frame()
    return parts


def entity(schema: type[Any], values: Values) -> Any:
    """Return ``values`` as an instance of a version's class."""
    makers = _field_makers(schema)  # type: ignore[arg-type]
    return schema(**{name: make(values[name]) if name in values else default for name, make, default in makers})


Maker = Callable[[Any], Any]


@cache
def _field_makers(schema: type[Any]) -> list[tuple[str, Maker, Any]]:
    """Return name, maker and default of each field."""
    hints = typing.get_type_hints(schema)
    makers = []
    for field in fields(schema):
        make, zero = _maker(hints[field.name], field.metadata.get("kafka_type", ""))
        makers.append((field.name, make, zero if field.default is MISSING else field.default))
    return makers


def _maker(hint: Any, kind: str) -> tuple[Maker, Any]:
    inner = [element for element in typing.get_args(hint) if element not in (type(None), ...)]
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        make, zero = _maker(inner[0], kind)
        return (lambda value: None if value is None else make(value)), (None if optional else zero)
    if typing.get_origin(hint) is tuple:
        make, _ = _maker(inner[0], kind)
        return (lambda value: tuple(make(element) for element in value)), ()
    if is_dataclass(hint):
        return (lambda value: entity(typing.cast("type[Any]", hint), value)), None
    # All other kinds are numbers, which kio accepts unchanged and which are 0 by default.
    return _PRIMITIVES.get(kind, (_unchanged, 0))


def _unchanged(value: Any) -> Any:
    return value


def _duration(millis: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=millis)


def _timestamp(millis: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC)


_PRIMITIVES: dict[str, tuple[Maker, Any]] = {
    "string": (_unchanged, ""),
    "bytes": (_unchanged, b""),
    "bool": (_unchanged, False),
    "error_code": (ErrorCode, ErrorCode.none),
    "timedelta_i32": (_duration, _duration(0)),
    "timedelta_i64": (_duration, _duration(0)),
    "datetime_i64": (_timestamp, None),
}


def partitions_of(topics: Iterable[Any], name: str = "name", partitions: str = "partitions") -> list[tuple[str, Any]]:
    """Return each requested partition with its topic's name, the reverse of ``by_topic``."""
    return [(getattr(topic, name), partition) for topic in topics for partition in getattr(topic, partitions)]


def by_topic(answers: Iterable[tuple[str, Values]], name: str, partitions: str) -> list[Values]:
    """Group answers of partitions by topic."""
    topics: dict[str, list[Values]] = {}
    for topic, values in answers:
        topics.setdefault(topic, []).append(values)
    return [{name: topic, partitions: group} for topic, group in topics.items()]
