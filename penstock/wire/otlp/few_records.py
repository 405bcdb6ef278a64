"""Requests of few ordinary records, read record by record from protobuf's own objects.

Fast path: columns have a fixed cost of about 1.5 ms a request, and 2.5 us a record; here a record takes 6 us. It
reads the form in which SDKs write requests: canonical protobuf without unknown fields. Any other request is left to
``records.read_logs``.

Invariant: where this decodes a request, ``read_logs`` returns the same messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.errors import PenstockError
from penstock.records import FEW_ROWS, Body, Rows, annotation_maps, body, values_of
from penstock.wire.otlp.records import ID_SIZES, RECORD_FIELDS, Logs, pairs_of_resource, pairs_of_scope
from penstock.wire.otlp.values import text_of_value
from penstock.wire.protobuf import Malformed
from penstock.wire.requests import MAX_MESSAGES, MIN_ROOM_BYTES

MAX_FEW_RECORDS = 256
"""Limit of the fast path: about 350 records cost as much here as in columns."""
MAX_FEW_BYTES = 64 << 10
"""Limit: protobuf's objects take up to 30 times the bytes of a request that is made for it."""
MAX_GROWTH, FIELD_NAMES_BYTES = 9, 300
"""A message has at most MAX_GROWTH times its request (attributes without a key), and the names of its fields."""
MAX_CACHED_BYTES, MAX_CACHED = 1024, 256
"""Limit of the cached resources and scopes: senders repeat theirs in each request."""
_MAX_CANONICAL = 1 << 28
"""Numbers of 32 bits that protobuf does not cut, and that take four bytes or less."""
_TRACE_BYTES, _SPAN_BYTES = (ID_SIZES[RECORD_FIELDS[name][0]] for name in ("trace_id", "span_id"))


class _Shared(NamedTuple):
    """Annotations that all records of a scope have, and their bytes."""

    names: list[str]
    texts: list[str]
    size: int


class _Unusual(PenstockError):
    """The request has a form that only ``read_logs`` decodes."""


def read_few(data: bytes, max_message_bytes: int, max_messages: int = MAX_MESSAGES) -> Logs | None:
    """Decode a request of up to MAX_FEW_RECORDS ordinary records; return None for any other request."""
    if not 0 < len(data) <= MAX_FEW_BYTES or MAX_GROWTH * len(data) + FIELD_NAMES_BYTES > max_message_bytes:
        return None
    messages = _Messages(MIN_ROOM_BYTES - MAX_GROWTH * len(data))
    try:
        request = ExportLogsServiceRequest.FromString(data)
        # Invariant: a field that is repeated or unknown, or a number in an unusual form, makes the size differ. The
        # result of ``read_logs`` is another in such cases.
        request.DiscardUnknownFields()
        if request.ByteSize() != len(data):
            return None
        if len(request.resource_logs) > MAX_FEW_RECORDS:
            return None
        for logs in request.resource_logs:
            messages.add_resource(logs, min(MAX_FEW_RECORDS, max_messages))
    except (_Unusual, Malformed, DecodeError, UnicodeDecodeError):
        return None
    return Logs(messages.body(), {}, messages.malformed_ids) if messages.payloads else None


@dataclass(slots=True)
class _Messages:
    """Messages as flat lists. A number with a fraction stays a number in ``texts`` and ``payloads`` until ``body``.

    ``room``: bytes that the names of fields and the repeated attributes of resources and scopes may take.
    """

    room: int
    payloads: list[str | float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    texts: list[str | float] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    malformed_ids: int = 0

    def add_resource(self, logs: ResourceLogs, max_records: int) -> None:
        """Add the records of a resource. Raises _Unusual and Malformed."""
        resource = logs.resource.SerializeToString()
        if len(logs.scope_logs) > max_records:
            raise _Unusual
        for scope_logs in logs.scope_logs:
            records = scope_logs.log_records
            scope = scope_logs.scope.SerializeToString()
            is_cached = len(resource) + len(scope) < MAX_CACHED_BYTES
            shared = (_cached_shared if is_cached else _read_shared)(resource, scope)
            # Limit: judged before the attributes are repeated. A request that is refused in part has columns.
            self.room -= len(records) * (shared.size + FIELD_NAMES_BYTES)
            if self.room < 0 or len(self.payloads) + len(records) > max_records:
                raise _Unusual
            for record in records:
                self._add_record(record)
                self.names += shared.names
                self.texts += shared.texts
                self.bounds.append(len(self.names))

    def _add_record(self, record: LogRecord) -> None:
        """Add a record without what it shares with others."""
        names, texts = self.names, self.texts
        # Invariant: the order of annotations is that of ``read_logs``: fields, attributes, scope, resource.
        if number := record.time_unix_nano:
            names.append("time")
            texts.append(str(number))
        if number := record.observed_time_unix_nano:
            names.append("observed_time")
            texts.append(str(number))
        if number := record.severity_number:
            names.append("severity_number")
            texts.append(_canonical(number))
        if text := record.severity_text:
            names.append("severity_text")
            texts.append(text)
        if text := record.event_name:
            names.append("event_name")
            texts.append(text)
        if octets := record.trace_id:
            self._add_id("trace_id", octets, _TRACE_BYTES)
        if octets := record.span_id:
            self._add_id("span_id", octets, _SPAN_BYTES)
        if number := record.flags:
            names.append("flags")
            texts.append(str(number))
        if number := record.dropped_attributes_count:
            names.append("dropped_attributes")
            texts.append(_canonical(number))
        for attribute in record.attributes:
            value = attribute.value
            names.append("attributes." + attribute.key)
            texts.append(value.string_value or _text(value))
        value = record.body
        self.payloads.append(value.string_value or _text(value))

    def _add_id(self, name: str, octets: bytes, size: int) -> None:
        if len(octets) != size:
            self.malformed_ids += 1
        elif any(octets):
            self.names.append(name)
            self.texts.append(octets.hex())

    def body(self) -> Body:
        """Return the messages: as rows if they are few enough for a frame of rows."""
        payloads = [text.encode() for text in _without_numbers(self.payloads)]
        texts, bounds = _without_numbers(self.texts), self.bounds
        if len(payloads) <= FEW_ROWS:
            pairs = list(zip(self.names, texts, strict=True))
            spans = zip(payloads, bounds, bounds[1:], strict=False)
            return Rows((None, payload, None, pairs[begin:end] or None) for payload, begin, end in spans)
        offsets = np.array(bounds)
        names, nulls = pa.array(self.names, pa.string()), offsets[1:] == offsets[:-1]
        return body(payloads, annotations=annotation_maps(offsets, names, pa.array(texts, pa.string()), nulls))


def _read_shared(resource: bytes, scope: bytes) -> _Shared:
    """Return the annotations that the records of a resource and scope share. Raises Malformed."""
    pairs = pairs_of_scope(InstrumentationScope.FromString(scope)) + pairs_of_resource(Resource.FromString(resource))
    names, texts = [name for name, _ in pairs], [text for _, text in pairs]
    return _Shared(names, texts, len("".join([*names, *texts]).encode()))


_cached_shared = lru_cache(MAX_CACHED)(_read_shared)


def _canonical(number: int) -> str:
    """Return a number of 32 bits as text. Raises _Unusual where it may have been cut from a larger one."""
    if not 0 <= number < _MAX_CANONICAL:
        raise _Unusual
    return str(number)


def _text(value: AnyValue) -> str | float:
    """Return an AnyValue that is not a string, or an empty one, as text; a number with a fraction as number."""
    kind = value.WhichOneof("value")
    if kind == "int_value":
        return str(value.int_value)
    if kind == "double_value":
        return value.double_value
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    # Other kinds than these have no text; the columns do not read them either.
    return text_of_value(value) if kind in ("array_value", "kvlist_value", "bytes_value") else ""


def _without_numbers(texts: Sequence[str | float]) -> list[str]:
    """Return texts and numbers as texts; the numbers as the columns write them."""
    if float not in set(map(type, texts)):
        return texts  # type: ignore[return-value]  # there are only texts
    numbers = [text for text in texts if isinstance(text, float)]
    number_texts = iter(values_of(pa.array(numbers, pa.float64()).cast(pa.string())))
    return [next(number_texts) if isinstance(text, float) else text for text in texts]
