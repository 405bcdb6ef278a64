"""Requests and answers as kio has them: generated from Kafka's own definitions, a class for each version.

Answers are told as mappings; what a version does not have is left out, what is not told is zero, empty or none.
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
from penstock.server.kafka.schema.reading import Octets, reader

LARGE_PART = 16 << 10
"""Bytes from which on a copy costs more than a part of its own."""
Values = Mapping[str, Any]
"""An answer: its fields by name."""
Parts = list[bytes | memoryview]
"""A frame, with its length; record batches are not copied into it."""
_request_schema, _response_schema = cache(load_request_schema), cache(load_response_schema)


class Api(IntEnum):
    """The requests of Kafka that are answered."""

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
    Api.FETCH: (4, 12),  # later ones name topics by their ids
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
"""The versions that are taken, first and last."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request: ``message`` is kio's, with record batches as views into the frame, which begin at ``places``.

    ``unknown`` is one of ApiVersions in a version not taken.
    """

    api: Api
    version: int
    correlation: int
    client: str
    message: Any
    places: tuple[int, ...] = ()
    unknown: bool = False


def parse(frame: bytes | memoryview) -> Request:
    """The request in a frame, without its length. Raises BadFrame."""
    try:
        api, version, correlation = struct.unpack_from(">hhi", frame)
        kind = Api(api)
        first, last = VERSIONS[kind]
        if not first <= version <= last:
            if kind is Api.API_VERSIONS:
                return Request(kind, 0, correlation, "", None, unknown=True)
            raise BadFrame(f"version {version} of {kind.name} is not spoken")
        schema = _request_schema(kind, version)
        octets = Octets(frame)
        header, message = reader(schema.__header_schema__)(octets), reader(schema)(octets)
        # What stands behind it is passed over, as a broker does: librdkafka sends a byte too many.
    except (struct.error, ValueError, OverflowError) as error:
        raise error if isinstance(error, BadFrame) else BadFrame(f"no request: {error}") from None
    return Request(kind, version, correlation, header.client_id or "", message, tuple(octets.stays))


class _Sink:
    """Takes an answer. Large parts of record batches stay where they are."""

    def __init__(self) -> None:
        self._whole: list[bytes | memoryview] = []
        self._small = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        if len(data) < LARGE_PART:
            self._small += data
        else:
            self._whole += (bytes(self._small), data)
            self._small = bytearray()

    def frame(self) -> Parts:
        """What was written, behind its length."""
        parts = [*self._whole, bytes(self._small)]
        return [struct.pack(">i", sum(map(len, parts))) + parts[0], *parts[1:]]


def encode_answer(request: Request, values: Values) -> Parts:
    """The frame that answers a request."""
    schema = _response_schema(request.api, request.version)
    header, sink = schema.__header_schema__, typing.cast("Any", _Sink())
    entity_writer(header)(sink, header(correlation_id=i32(request.correlation)))
    entity_writer(schema)(sink, entity(schema, values))
    found: Parts = sink.frame()
    return found


def entity(schema: type[Any], values: Values) -> Any:
    """``values`` in the class of a version."""
    return schema(**{name: make(values[name]) if name in values else zero for name, make, zero in _fields(schema)})  # type: ignore[arg-type]


Make = Callable[[Any], Any]


@cache
def _fields(schema: type[Any]) -> list[tuple[str, Make, Any]]:
    """For each field its name, what makes its value, and what stands there where it is not told."""
    hints = typing.get_type_hints(schema)
    found = []
    for field in fields(schema):
        make, zero = _made(hints[field.name], field.metadata.get("kafka_type", ""))
        found.append((field.name, make, zero if field.default is MISSING else field.default))
    return found


def _made(hint: Any, kind: str) -> tuple[Make, Any]:
    inner = [one for one in typing.get_args(hint) if one not in (type(None), ...)]
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        make, zero = _made(inner[0], kind)
        return (lambda value: None if value is None else make(value)), (None if optional else zero)
    if typing.get_origin(hint) is tuple:
        make, _ = _made(inner[0], kind)
        return (lambda value: tuple(make(one) for one in value)), ()
    if is_dataclass(hint):
        return (lambda value: entity(typing.cast("type[Any]", hint), value)), None
    return _PRIMITIVES.get(kind, (_same, 0))


def _same(value: Any) -> Any:
    return value


def _span(millis: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=millis)


def _moment(millis: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC)


_PRIMITIVES: dict[str, tuple[Make, Any]] = {
    "string": (_same, ""),
    "bytes": (_same, b""),
    "bool": (_same, False),
    "error_code": (ErrorCode, ErrorCode.none),
    "timedelta_i32": (_span, _span(0)),
    "timedelta_i64": (_span, _span(0)),
    "datetime_i64": (_moment, None),
}


def partitions_of(topics: Iterable[Any], name: str = "name", partitions: str = "partitions") -> list[tuple[str, Any]]:
    """What is asked of partitions, each with the name of its topic: the reverse of ``by_topic``."""
    return [(getattr(topic, name), part) for topic in topics for part in getattr(topic, partitions)]


def by_topic(found: Iterable[tuple[str, Values]], name: str, partitions: str) -> list[Values]:
    """Answers for partitions, put together by topic."""
    topics: dict[str, list[Values]] = {}
    for topic, values in found:
        topics.setdefault(topic, []).append(values)
    return [{name: topic, partitions: many} for topic, many in topics.items()]
