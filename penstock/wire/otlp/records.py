"""Conversion of ExportLogsServiceRequest to messages: a record's body is the payload, all else are annotations.

Names: ``time``, ``observed_time``, ``severity_number``, ``severity_text``, ``event_name``, ``trace_id``, ``span_id``
(in hex), ``flags``, ``dropped_attributes``; ``attributes.NAME`` for the record's own attributes, ``scope.name``,
``scope.version``, ``scope.attributes.NAME`` and ``resource.NAME``. A field without a value has no annotation.

Limit: a request states the attributes of a resource or scope once, and each message repeats them. Records that would
make the request grow beyond MAX_GROWTH_FACTOR are refused (``oversize``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.records import EMPTY_BODY, Body, annotation_maps, body, buffer_of, from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.otlp.values import (
    Attributes,
    decode_attributes,
    merged_texts,
    parsed_as,
    text_of_value,
    texts_of_numbers,
)
from penstock.wire.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    MAX_FIELDS,
    VARINT,
    Fields,
    Malformed,
    Message,
    TooManyFields,
    Values,
)
from penstock.wire.requests import (
    MAX_GROWTH_FACTOR,
    MAX_MESSAGES,
    MIN_ROOM_BYTES,
    OVERSIZE,
    SYNTAX,
    check_message_count,
    oversize_text,
)
from penstock.wire.sender_text import strings

_RESOURCE, _SCOPES, _SCOPE, _RECORDS = 1, 2, 1, 2
_OLD_SCOPES = 1000
OLD_SCOPES = "its records are in instrumentationLibraryLogs, which OTLP before 0.15 had; scopeLogs are expected"
_TIME, _SEVERITY, _SEVERITY_TEXT, _BODY, _ATTRIBUTES, _DROPPED = 1, 2, 3, 5, 6, 7
_FLAGS, _TRACE, _SPAN, _OBSERVED, _EVENT = 8, 9, 10, 11, 12
ID_SIZES = {_TRACE: 16, _SPAN: 8}
PARTS_PER_SPLIT = 16
"""Parts into which undecodable records are split to isolate bad ones: 250,000 records need five levels."""
MAX_ENCODED_GROWTH = 4
"""Limit: bytes of a record in protobuf in units of ``max_message_bytes``: the text of its values takes a third of them
or more. A larger record is not decoded, which would hold the interpreter lock.
"""
MAX_ATTEMPTS = 1024
"""Limit: attempts to isolate bad records, enough for each of 512 records; then a part with a bad record is refused."""
_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two hexadecimal digits of each octet."""
RECORD_FIELDS: Mapping[str, tuple[int, int]] = {
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
    """Messages of a request (schema BODY), and the number of refused records by reason.

    ``malformed_ids``: ids of traces and spans with a wrong size; the annotation is left out. ``first_error``: error of
    the first record that could not be decoded. ``oversize_text``: why the first one that is too large was refused.
    """

    body: Body
    refused: Mapping[str, int]
    malformed_ids: int = 0
    first_error: str = ""
    oversize_text: str = ""


class Decoded(NamedTuple):
    """Columns of several records; the attributes are owned by the index of their record."""

    payloads: pa.Array[Any]
    annotations: Attributes
    malformed_ids: int


def read_logs(data: bytes, max_message_bytes: int, max_messages: int = MAX_MESSAGES) -> Logs:
    """Decode the records of a request; ``max_message_bytes`` limits one record with its annotations.

    A record that cannot be decoded is refused alone. Raises Malformed if the records cannot be separated or none can
    be decoded, and Refused above ``max_messages``.
    """
    message = Message(data)
    resource_logs = message.top_level().with_tag(1, BYTES)
    # Limit: each level is counted before the next one is read.
    check_message_count(len(resource_logs.owner), max_messages, "resources")
    resources = message.fields(resource_logs.begin, resource_logs.end)
    if resources.has_high(_OLD_SCOPES):
        raise Malformed(OLD_SCOPES)
    scope_logs = resources.with_tag(_SCOPES, BYTES)
    check_message_count(len(scope_logs.owner), max_messages, "scopes")
    scopes = message.fields(scope_logs.begin, scope_logs.end)
    records = scopes.with_tag(_RECORDS, BYTES).in_order()
    if not len(records.owner):
        return Logs(EMPTY_BODY, {})
    check_message_count(len(records.owner), max_messages)
    # Limit: measured in protobuf before anything is decoded, with what the record shares.
    sizes = records.end - records.begin
    of_scopes = _sizes_by_owner(scopes.with_tag(_SCOPE, BYTES), len(scope_logs.owner))
    of_scopes += _sizes_by_owner(resources.with_tag(_RESOURCE, BYTES), len(resource_logs.owner))[scope_logs.owner]
    sizes += of_scopes[records.owner]
    is_small = sizes <= MAX_ENCODED_GROWTH * max_message_bytes
    logs = Logs(EMPTY_BODY, {})
    if is_small.any():
        shared, errors = _decode_shared(message, resources, scopes, scope_logs.owner, max_message_bytes)
        logs = _read_records(message, records.select(is_small), shared, errors, max_message_bytes)
    if oversize := len(is_small) - int(np.count_nonzero(is_small)):
        text = logs.oversize_text or oversize_text(int(sizes[~is_small][0]), max_message_bytes)
        refused = {**logs.refused, OVERSIZE: logs.refused.get(OVERSIZE, 0) + oversize}
        logs = replace(logs, refused=refused, oversize_text=text)
    return logs


def _sizes_by_owner(values: Values, count: int) -> Ints:
    sizes: Ints = np.bincount(values.owner, values.end - values.begin, count).astype(np.int64)
    return sizes


def _read_records(
    message: Message, records: Values, shared: Attributes, errors: Mapping[int, str], max_message_bytes: int
) -> Logs:
    """Decode records; ``shared`` and ``errors`` belong to their scopes. Raises Malformed if none can be decoded."""
    is_good, first_error = ~np.isin(records.owner, list(errors)), next(iter(errors.values()), "")
    try:
        decoded = _decode(message, records.select(is_good))
    except TooManyFields:
        raise
    except Malformed:
        # Fast path: only a request with a bad record pays for the search.
        is_good, record_error = _find_good_records(message, records, is_good)
        first_error = first_error or record_error
        decoded = _decode(message, records.select(is_good))
    if not is_good.any():
        raise Malformed(f"no record can be decoded: {first_error}")
    room = max(MAX_GROWTH_FACTOR * len(message), MIN_ROOM_BYTES)
    logs = messages_of(decoded, records.owner[is_good], shared, max_message_bytes, room)
    if rejected := len(is_good) - int(np.count_nonzero(is_good)):
        logs = replace(logs, refused={**logs.refused, SYNTAX: rejected}, first_error=first_error)
    return logs


def _find_good_records(message: Message, records: Values, candidates: np.ndarray) -> tuple[np.ndarray, str]:
    """Return which of the ``candidates`` can be decoded, and the error of the first one that cannot."""
    rows = np.flatnonzero(candidates)
    is_good, first_error, attempts = np.zeros(len(candidates), np.bool_), "", MAX_ATTEMPTS
    pending = [rows]
    while pending:
        part, attempts = pending.pop(), attempts - 1
        try:
            _decode(message, records.select(part))
            is_good[part] = True
        except TooManyFields:
            raise
        except Malformed as error:
            if len(part) > 1 and attempts > 0:
                # Order: the first part is on top of the stack, so that the first error is that of the first record.
                pending += reversed(np.array_split(part, min(PARTS_PER_SPLIT, len(part))))
            else:
                first_error = first_error or f"record {part[0] + 1}: {error}"
    return is_good, first_error


def _decode_shared(
    message: Message, resources: Fields, scopes: Fields, resource_of: Ints, max_message_bytes: int
) -> tuple[Attributes, dict[int, str]]:
    """Decode the scopes and their resources; return attributes by scope, and errors by scope.

    Those whose records are too large are left out.
    """
    of_scope, of_resource = scopes.with_tag(_SCOPE, BYTES), resources.with_tag(_RESOURCE, BYTES)
    max_bytes = MAX_ENCODED_GROWTH * max_message_bytes
    of_scopes, errors = _decode_each(message, of_scope, _scope_pairs, max_bytes)
    of_resources, resource_errors = _decode_each(message, of_resource, _resource_pairs, max_bytes)
    for scope in np.flatnonzero(np.isin(resource_of, list(resource_errors))).tolist():
        errors[scope] = resource_errors[int(resource_of[scope])]
    return joined([of_scopes, repeated_for(of_resources, resource_of)]), errors


def _scope_pairs(data: bytes) -> list[tuple[str, str]]:
    return pairs_of_scope(parsed_as(InstrumentationScope, data))


def _resource_pairs(data: bytes) -> list[tuple[str, str]]:
    return pairs_of_resource(parsed_as(Resource, data))


def pairs_of_scope(scope: InstrumentationScope) -> list[tuple[str, str]]:
    """Return the annotations that the records of a scope share. Raises Malformed."""
    pairs = [(name, text) for name, text in (("scope.name", scope.name), ("scope.version", scope.version)) if text]
    return [*pairs, *((f"scope.attributes.{each.key}", text_of_value(each.value)) for each in scope.attributes)]


def pairs_of_resource(resource: Resource) -> list[tuple[str, str]]:
    """Return the annotations that the records of a resource share. Raises Malformed."""
    return [(f"resource.{each.key}", text_of_value(each.value)) for each in resource.attributes]


def _decode_each(
    message: Message, values: Values, read: Callable[[bytes], list[tuple[str, str]]], max_bytes: int
) -> tuple[Attributes, dict[int, str]]:
    """Decode resources or scopes of up to ``max_bytes`` one by one, which are few; return their attributes and the
    errors, by owner. Raises TooManyFields.
    """
    values = values.select(values.end - values.begin <= max_bytes)
    # Limit: the attributes of all are counted before any becomes an object; one takes a byte at least.
    if int((values.end - values.begin).sum()) > MAX_FIELDS:
        try:
            message.fields(values.begin, values.end)
        except TooManyFields:
            raise
        except Malformed:
            pass  # the loop below names the malformed one
    owner, pairs, errors = list[int](), list[tuple[str, str]](), dict[int, str]()
    encoded: dict[int, bytes] = {}
    for number, begin, end in zip(values.owner.tolist(), values.begin.tolist(), values.end.tolist(), strict=True):
        # A repeated occurrence is merged, as protobuf demands: concatenated bytes are a merged message.
        encoded[number] = encoded.get(number, b"") + message.data[begin:end]
    for number, content in encoded.items():
        try:
            own_pairs = read(content)
        except Malformed as error:
            errors[number] = f"its resource or scope cannot be decoded: {error}"
            continue
        owner += [number] * len(own_pairs)
        pairs += own_pairs
    names, texts = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    return Attributes(np.array(owner, np.int64), names, texts), errors


def _decode(message: Message, records: Values) -> Decoded:
    """Decode records without what they share. Raises Malformed if one of them cannot be decoded."""
    count = len(records.owner)
    fields = message.fields(records.begin, records.end)
    payloads = merged_texts(message, fields.with_tag(_BODY, BYTES), count, pa.binary()).fill_null(b"")
    attributes = decode_attributes(message, fields.with_tag(_ATTRIBUTES, BYTES))
    attributes = Attributes(attributes.owner, prefixed("attributes.", attributes.names), attributes.texts)
    of_fields, malformed_ids = _field_annotations(message, fields, count)
    return Decoded(payloads, joined([*of_fields, attributes]), malformed_ids)


def messages_of(decoded: Decoded, scope_of: Ints, shared: Attributes, max_message_bytes: int, room: int) -> Logs:
    """Return the records as messages with the attributes of their scopes.

    Records of more than ``max_message_bytes`` are refused, and those beyond ``room`` bytes of all messages.
    """
    count, annotations = len(scope_of), decoded.annotations
    sizes = _lengths(decoded.payloads) + attribute_sizes(annotations, count)
    sizes += attribute_sizes(shared, int(scope_of.max()) + 1)[scope_of]
    # Limit: sizes are judged before the shared attributes are repeated, so that nothing grows in memory first.
    fits = (sizes <= max_message_bytes) & (np.cumsum(sizes) <= room)
    refused = count - int(fits.sum())
    of_shared = repeated_for(shared, np.where(fits, scope_of, -1))
    if refused:
        annotations = _without(annotations, ~fits)
    maps = _maps(joined([annotations, of_shared]), count)
    batch = body(decoded.payloads, annotations=maps)
    batch = batch.filter(from_numpy(fits)) if refused else batch
    if not refused:
        return Logs(batch, {}, decoded.malformed_ids)
    text = oversize_text(int(sizes[~fits][0]), max_message_bytes)
    return Logs(batch, {OVERSIZE: refused}, decoded.malformed_ids, oversize_text=text)


def _field_annotations(message: Message, fields: Fields, count: int) -> tuple[list[Attributes], int]:
    """Return the annotations of fields other than body and attributes, and the number of malformed ids.

    Zero and empty fields have no annotation: protobuf cannot distinguish them from absent ones.
    """
    parts, malformed_ids = [], 0
    for name, (number, kind) in RECORD_FIELDS.items():
        values = fields.with_tag(number, kind).latest(count)
        if not len(values.owner):
            continue
        if number in ID_SIZES:
            sizes = values.end - values.begin
            malformed_ids += int(np.count_nonzero((sizes != ID_SIZES[number]) & (sizes > 0)))
        texts, is_set = _texts(message, values, number, kind)
        owner = values.owner
        if not is_set.all():
            owner, texts = owner[is_set], texts.filter(from_numpy(is_set))
        parts.append(Attributes(owner, repeated_name(name, len(owner)), texts))
    return parts, malformed_ids


def _texts(message: Message, fields: Values, number: int, kind: int) -> tuple[pa.Array[Any], np.ndarray]:
    """Return field values as texts, and which of them are not empty or zero."""
    if kind == BYTES:
        sizes = fields.end - fields.begin
        if number in ID_SIZES:
            return _ids(message, fields, ID_SIZES[number])
        return strings(message.texts(fields.begin, fields.end)), sizes > 0
    numbers = fields.value if kind == VARINT else message.numbers(fields.begin, "<u8" if kind == FIXED64 else "<u4")
    if number == _SEVERITY:
        numbers = numbers.view(np.int64)
    return texts_of_numbers(numbers), numbers != 0


def _ids(message: Message, fields: Values, size: int) -> tuple[pa.Array[Any], np.ndarray]:
    """Return ids in hex, and which of them are valid: of the right size and not all zero."""
    has_size = fields.end - fields.begin == size
    octets = message.octets(np.where(has_size, fields.begin, 0), size)
    return hex_texts(octets), has_size & octets.any(axis=1)


def hex_texts(octets: np.ndarray) -> pa.Array[Any]:
    """Return the rows of ``octets`` (shape (n, size), uint8) in hex."""
    offsets = np.arange(len(octets) + 1, dtype=np.int32) * np.int32(2 * octets.shape[1])
    # Fast path: digits are ASCII, so Arrow need not validate them as UTF-8.
    buffers = [None, buffer_of(offsets), buffer_of(_HEX_PAIRS[octets])]
    return pa.Array.from_buffers(pa.string(), len(octets), buffers)


def repeated_for(entries: Attributes, owner_of_row: Ints) -> Attributes:
    """Return for each row the entries of its owner, which may be several; owner -1 has none."""
    owner = entries.owner
    order = np.argsort(owner, kind="stable")
    owners = int(max(owner.max(initial=-1), owner_of_row.max(initial=-1))) + 1
    counts = np.bincount(owner, minlength=max(owners, 1))
    # Fast path: index arithmetic on whole columns, without a loop over rows.
    begins = np.cumsum(counts) - counts
    of_row = np.where(owner_of_row >= 0, counts[owner_of_row], 0)
    shifts = np.repeat(begins[owner_of_row] - (np.cumsum(of_row) - of_row), of_row)
    indices = from_numpy(order[shifts + np.arange(len(shifts))])
    rows = np.repeat(np.arange(len(owner_of_row)), of_row)
    return Attributes(rows, *(side.take(indices) for side in _columns(entries)))


def _maps(entries: Attributes, count: int) -> pa.Array[Any]:
    """Return the entries of each of ``count`` rows as a map, in their order; null without entries."""
    order = from_numpy(np.argsort(entries.owner, kind="stable"))
    counts = np.bincount(entries.owner, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return annotation_maps(offsets, entries.names.take(order), entries.texts.take(order), counts == 0)


def joined(parts: list[Attributes]) -> Attributes:
    """Return the entries of all parts, in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    owner = np.concatenate([part.owner for part in parts])
    names, texts = (pa.concat_arrays(sides) for sides in zip(*(_columns(part) for part in parts), strict=True))
    return Attributes(owner, names, texts)


def _columns(entries: Attributes) -> tuple[pa.Array[Any], pa.Array[Any]]:
    return entries.names, entries.texts


def _without(entries: Attributes, is_dropped: np.ndarray) -> Attributes:
    retained = ~is_dropped[entries.owner]
    return Attributes(entries.owner[retained], *(side.filter(from_numpy(retained)) for side in _columns(entries)))


def attribute_sizes(entries: Attributes, count: int) -> Ints:
    """Return the bytes of the entries of each owner."""
    sizes = _lengths(entries.names) + _lengths(entries.texts)
    return np.bincount(entries.owner, weights=sizes, minlength=count).astype(np.int64)


def _lengths(column: pa.Array[Any]) -> Ints:
    lengths: Ints = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[call-overload]
    return lengths


def prefixed(prefix: str, names: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``names`` with ``prefix`` in front of each."""
    prefixed_names: pa.Array[Any] = pc.binary_join_element_wise(pa.scalar(prefix), names, "")  # type: ignore[call-overload]
    return prefixed_names


def repeated_name(name: str, count: int) -> pa.Array[Any]:
    """Return ``name`` for each of ``count`` annotations."""
    return pa.repeat(pa.scalar(name), count)
