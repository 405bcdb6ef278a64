"""ExportLogsServiceRequest to messages: a record's body is the payload, all else are annotations.

Names: ``time``, ``observed_time``, ``severity_number``, ``severity_text``, ``event_name``, ``trace_id``, ``span_id``
(in hex), ``flags``, ``dropped_attributes``; ``attributes.NAME`` for the record's own attributes, ``scope.name``,
``scope.version``, ``scope.attributes.NAME`` and ``resource.NAME``. What a record does not say has no annotation.

What belongs to a resource or a scope is said once in a request and stands with each message: so a request may grow, and
records are refused (``oversize``) that would make it grow beyond GROWTH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.records import EMPTY_BODY, annotation_maps, binary_array, body, from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.otlp.values import Attributes, attributes, parsed_as, text_of_value, texts_of_numbers, value_texts
from penstock.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, Fields, Message, Values, chosen
from penstock.wire.requests import MAX_GROWTH_FACTOR, MAX_MESSAGES, MIN_ROOM_BYTES, OVERSIZE, check_message_count
from penstock.wire.sender_text import strings

_RESOURCE, _SCOPES, _SCOPE, _RECORDS = 1, 2, 1, 2
_TIME, _SEVERITY, _SEVERITY_TEXT, _BODY, _OWN, _DROPPED, _FLAGS, _TRACE, _SPAN, _OBSERVED, _EVENT = (
    1,
    2,
    3,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
)
_ID_SIZES = {_TRACE: 16, _SPAN: 8}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SAID: Mapping[str, tuple[int, int]] = {
    "time": (_TIME, FIXED64),
    "observed_time": (_OBSERVED, FIXED64),
    "severity_number": (_SEVERITY, VARINT),
    "severity_text": (_SEVERITY_TEXT, BYTES),
    "event_name": (_EVENT, BYTES),
    "trace_id": (_TRACE, BYTES),
    "span_id": (_SPAN, BYTES),
    "flags": (_FLAGS, FIXED32),
    "dropped_attributes": (_DROPPED, VARINT),
}


@dataclass(frozen=True, slots=True)
class Logs:
    """The messages of a request (schema BODY), and how many were refused by reason.

    ``malformed_ids``: ids of traces and spans that have another size than theirs; the annotation is left out.
    """

    body: pa.RecordBatch
    refused: Mapping[str, int]
    malformed_ids: int = 0


def read_logs(data: bytes, most: int, max_messages: int = MAX_MESSAGES) -> Logs:
    """The records of a request; ``most``: bytes that one with its annotations may have.

    Raises Malformed, and Refused where there are more than ``max_messages``.
    """
    message = Message(data)
    resource_logs = message.whole().of(1, BYTES)
    resources = message.fields(resource_logs.begin, resource_logs.end)
    scope_logs = resources.of(_SCOPES, BYTES)
    scopes = message.fields(scope_logs.begin, scope_logs.end)
    found = scopes.of(_RECORDS, BYTES).in_order()
    if not len(found.owner):
        return Logs(EMPTY_BODY, {})
    check_message_count(len(found.owner), max_messages)
    shared = _shared(message, resources, scopes, scope_logs.owner)
    return _messages(message, found, shared, most)


def _shared(message: Message, resources: Fields, scopes: Fields, resource_of: Ints) -> Attributes:
    """What belongs to the scopes and their resources, by scope."""
    of_scopes = _one_by_one(message, scopes.of(_SCOPE, BYTES), _of_scope)
    of_resources = _one_by_one(message, resources.of(_RESOURCE, BYTES), _of_resource)
    return _joined([of_scopes, _repeated_for(of_resources, resource_of)])


def _of_scope(data: bytes) -> list[tuple[str, str]]:
    """Name, version and attributes."""
    scope = parsed_as(InstrumentationScope, data)
    said = [(name, text) for name, text in (("scope.name", scope.name), ("scope.version", scope.version)) if text]
    return [*said, *((f"scope.attributes.{one.key}", text_of_value(one.value)) for one in scope.attributes)]


def _of_resource(data: bytes) -> list[tuple[str, str]]:
    return [(f"resource.{one.key}", text_of_value(one.value)) for one in parsed_as(Resource, data).attributes]


def _one_by_one(message: Message, values: Values, read: Callable[[bytes], list[tuple[str, str]]]) -> Attributes:
    """What few messages say, each read by itself."""
    owner, pairs = list[int](), list[tuple[str, str]]()
    for number, begin, end in zip(values.owner.tolist(), values.begin.tolist(), values.end.tolist(), strict=True):
        said = read(message.data[begin:end])
        owner += [number] * len(said)
        pairs += said
    names, texts = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    return Attributes(np.array(owner, np.int64), names, texts)


def _messages(message: Message, found: Values, shared: Attributes, most: int) -> Logs:
    count = len(found.owner)
    fields = message.fields(found.begin, found.end)
    bodies = fields.of(_BODY, BYTES)
    last = bodies.last(count)
    payloads = chosen(value_texts(message, bodies.begin, bodies.end), last).fill_null("").cast(pa.binary())
    own = attributes(message, fields.of(_OWN, BYTES))
    own = Attributes(own.owner, _prefixed("attributes.", own.names), own.texts)
    of_records, malformed_ids = _said(message, fields, count)
    said = _joined([*of_records, own])
    sizes = _lengths(payloads) + _sizes(said, count) + _sizes(shared, int(found.owner.max()) + 1)[found.owner]
    kept = (sizes <= most) & (np.cumsum(sizes) <= max(MAX_GROWTH_FACTOR * len(message), MIN_ROOM_BYTES))
    refused = count - int(kept.sum())
    of_shared = _repeated_for(shared, np.where(kept, found.owner, -1))
    if refused:
        said = _without(said, ~kept)
    maps = _maps(_joined([said, of_shared]), count)
    batch = body(payloads, annotations=maps)
    batch = batch.filter(from_numpy(kept)) if refused else batch
    return Logs(batch, {OVERSIZE: refused} if refused else {}, malformed_ids)


def _said(message: Message, fields: Fields, count: int) -> tuple[list[Attributes], int]:
    """Return what records say of themselves, but for body and attributes, and how many ids are malformed.

    Fields that are zero or empty say nothing.
    """
    found, malformed_ids = [], 0
    for name, (number, kind) in _SAID.items():
        said = fields.of(number, kind).latest(count)
        if not len(said.owner):
            continue
        if number in _ID_SIZES:
            sizes = said.end - said.begin
            malformed_ids += int(np.count_nonzero((sizes != _ID_SIZES[number]) & (sizes > 0)))
        texts, given = _texts(message, said, number, kind)
        owner = said.owner
        if not given.all():
            owner, texts = owner[given], texts.filter(from_numpy(given))
        found.append(Attributes(owner, _repeated(name, len(owner)), texts))
    return found, malformed_ids


def _texts(message: Message, said: Values, number: int, kind: int) -> tuple[pa.Array[Any], np.ndarray]:
    """The values as texts, and which of them say something."""
    if kind == BYTES:
        sizes = said.end - said.begin
        if number in _ID_SIZES:
            return _ids(message, said, _ID_SIZES[number])
        return strings(message.texts(said.begin, said.end)), sizes > 0
    values = said.value if kind == VARINT else message.numbers(said.begin, "<u8" if kind == FIXED64 else "<u4")
    if number == _SEVERITY:
        values = values.view(np.int64)
    return texts_of_numbers(values), values != 0


def _ids(message: Message, said: Values, size: int) -> tuple[pa.Array[Any], np.ndarray]:
    """Ids in hex; those of another size say nothing, nor do those that are all zero."""
    whole = said.end - said.begin == size
    octets = message.octets(np.where(whole, said.begin, 0), size)
    digits = np.stack([_HEX[octets >> 4], _HEX[octets & 15]], axis=2)
    offsets = np.arange(len(whole) + 1, dtype=np.int32) * np.int32(2 * size)
    return binary_array(offsets, digits).cast(pa.string()), whole & octets.any(axis=1)


def _repeated_for(entries: Attributes, owner_of_row: Ints) -> Attributes:
    """For each row the entries of its owner, of which there may be several; rows with owner -1 have none."""
    owner = entries.owner
    order = np.argsort(owner, kind="stable")
    owners = int(max(owner.max(initial=-1), owner_of_row.max(initial=-1))) + 1
    counts = np.bincount(owner, minlength=max(owners, 1))
    begins = np.cumsum(counts) - counts
    of_row = np.where(owner_of_row >= 0, counts[owner_of_row], 0)
    shifts = np.repeat(begins[owner_of_row] - (np.cumsum(of_row) - of_row), of_row)
    at = from_numpy(order[shifts + np.arange(len(shifts))])
    rows = np.repeat(np.arange(len(owner_of_row)), of_row)
    return Attributes(rows, *(side.take(at) for side in _sides(entries)))


def _maps(entries: Attributes, count: int) -> pa.Array[Any]:
    """The entries of each of ``count`` rows as its map, in the order given; null where it has none."""
    order = from_numpy(np.argsort(entries.owner, kind="stable"))
    counts = np.bincount(entries.owner, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return annotation_maps(offsets, entries.names.take(order), entries.texts.take(order))


def _joined(parts: list[Attributes]) -> Attributes:
    if len(parts) == 1:
        return parts[0]
    owner = np.concatenate([part.owner for part in parts])
    names, texts = (pa.concat_arrays(sides) for sides in zip(*(_sides(part) for part in parts), strict=True))
    return Attributes(owner, names, texts)


def _sides(entries: Attributes) -> tuple[pa.Array[Any], pa.Array[Any]]:
    return entries.names, entries.texts


def _without(entries: Attributes, dropped: np.ndarray) -> Attributes:
    kept = ~dropped[entries.owner]
    return Attributes(entries.owner[kept], *(side.filter(from_numpy(kept)) for side in _sides(entries)))


def _sizes(entries: Attributes, count: int) -> Ints:
    """Bytes of the entries of each owner."""
    sizes = _lengths(entries.names) + _lengths(entries.texts)
    return np.bincount(entries.owner, weights=sizes, minlength=count).astype(np.int64)


def _lengths(column: pa.Array[Any]) -> Ints:
    lengths: Ints = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[call-overload]
    return lengths


def _prefixed(prefix: str, names: pa.Array[Any]) -> pa.Array[Any]:
    joined: pa.Array[Any] = pc.binary_join_element_wise(pa.scalar(prefix), names, "")  # type: ignore[call-overload]
    return joined


def _repeated(name: str, count: int) -> pa.Array[Any]:
    return pa.repeat(pa.scalar(name), count)
