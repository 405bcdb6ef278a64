"""Conversion of OTAP's tables to messages, as ``wire.otlp`` converts the same records from protobuf.

Tables: LOGS has a row per record; RESOURCE_ATTRS, SCOPE_ATTRS and LOG_ATTRS have a row per attribute, whose
``parent_id`` is the ``resource.id``, ``scope.id`` or ``id`` of LOGS (OTAP, sections 5 and 6). Ids are encoded as
differences unless a column's metadata say ``encoding: plain``.

Limit: a batch names a resource, a dictionary's value or an attribute once, and any number of rows may refer to it. All
texts are counted before they are repeated, and a batch that grows beyond MAX_GROWN_BODIES times its largest size is
refused. The size of the batch itself is not a measure: its dictionaries may have come before, and it may be compressed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import EMPTY_BODY, from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.otap.cbor import document_of
from penstock.wire.otap.streams import LOG_ATTRIBUTES, LOGS, RESOURCE_ATTRIBUTES, SCOPE_ATTRIBUTES, Tables
from penstock.wire.otlp.records import (
    Decoded,
    Logs,
    attribute_sizes,
    hex_texts,
    joined,
    messages_of,
    prefixed,
    repeated_for,
    repeated_name,
)
from penstock.wire.otlp.values import Attributes, texts_of_numbers
from penstock.wire.protobuf import MAX_FIELDS, Malformed, take_or_null
from penstock.wire.requests import MAX_GROWN_BODIES, OVERSIZE, Refused, check_message_count

_EMPTY, _STR, _INT, _DOUBLE, _BOOL, _MAP, _SLICE, _BYTES = range(8)
"""Types of a value (OTAP, section 5.5.1)."""
_COMPARED: Mapping[int, tuple[str, Any]] = {
    _STR: ("str", ""),
    _INT: ("int", 0),
    _DOUBLE: ("double", 0.0),
    _BOOL: ("bool", False),
    _BYTES: ("bytes", b""),
}
"""Types whose equal neighbours have a difference as parent id, their columns and the value of null; others have the id
itself. Senders write null for that value, and leave out a column that has no other one.
"""
LEAST_ROOM_BYTES = 16 << 20
"""Bytes that the texts of a batch may take in any case."""
_NO_ATTRIBUTES = Attributes(np.zeros(0, np.int64), pa.array([], pa.string()), pa.array([], pa.string()))


class _Table(dict[str, "pa.Array[Any]"]):
    """Columns by name; ``plain_ids`` names those whose ids are not differences."""

    def __init__(self, fields: Iterable[pa.Field[Any]], columns: Iterable[pa.Array[Any]]) -> None:
        fields = list(fields)
        super().__init__(zip((field.name for field in fields), columns, strict=True))
        self.plain_ids = {field.name for field in fields if (field.metadata or {}).get(b"encoding") == b"plain"}


def logs_of(tables: Tables, max_message_bytes: int, max_messages: int) -> Logs:
    """Convert a batch to messages. Raises Malformed, and Refused above a limit."""
    batch = tables.by_type.get(LOGS)
    if batch is None or not batch.num_rows:
        return Logs(EMPTY_BODY, {})
    check_message_count(batch.num_rows, max_messages)
    try:
        return _Decoder(tables, batch).logs(max_message_bytes)
    except UnicodeDecodeError:
        # Arrow validates texts, but not the names of columns.
        raise Malformed("the name of a column is not UTF-8") from None
    except pa.ArrowException as error:
        raise Malformed(f"a column has a type that it may not have: {error}") from None


class _Decoder:
    def __init__(self, tables: Tables, batch: pa.RecordBatch) -> None:
        self._tables, self._count = tables, batch.num_rows
        self._columns = _Table(batch.schema, batch.columns)
        self._max_room = self._room = max(MAX_GROWN_BODIES * tables.max_bytes, LEAST_ROOM_BYTES)
        self._nested_items = MAX_FIELDS

    def logs(self, max_message_bytes: int) -> Logs:
        resource, scope = self._struct("resource"), self._struct("scope")
        resource_of, scope_id_of = (self._ids(owner, "id") for owner in (resource, scope))
        name_of, version_of = (self._texts(scope.get(name)) for name in ("name", "version"))
        # A scope of the result is a run of records that have the same resource and scope.
        keys = [resource_of, scope_id_of, _codes(name_of), _codes(version_of)]
        begins_run = np.concatenate([[True], np.any([key[1:] != key[:-1] for key in keys], axis=0)])
        begins, scope_of = np.flatnonzero(begins_run), np.cumsum(begins_run) - 1
        shared = joined(
            [
                _text_annotations("scope.name", name_of.take(from_numpy(begins))),
                _text_annotations("scope.version", version_of.take(from_numpy(begins))),
                self._attributes(SCOPE_ATTRIBUTES, "scope.attributes.", scope_id_of[begins]),
                self._attributes(RESOURCE_ATTRIBUTES, "resource.", resource_of[begins]),
            ]
        )
        own = self._attributes(LOG_ATTRIBUTES, "attributes.", self._ids(self._columns, "id"))
        decoded = Decoded(self._payloads(), joined([*self._fields(), own]), 0)
        return messages_of(decoded, scope_of, shared, max_message_bytes, self._max_room)

    def _struct(self, name: str) -> _Table:
        """Return the fields of a struct, which are null in rows where the struct is; none without the column."""
        column = self._columns.get(name)
        if column is None:
            return _Table([], [])
        if not isinstance(column, pa.StructArray):
            raise Malformed(f"column {name} is {column.type} and not a struct")
        return _Table(column.type, column.flatten())

    def _ids(self, table: _Table, name: str) -> Ints:
        """Return the ids of the records, -1 without one."""
        column = table.get(name)
        if column is None:
            return np.full(self._count, -1, np.int64)
        encoded, is_set = _unsigned(column, name)
        if name not in table.plain_ids:
            encoded = np.cumsum(encoded, dtype=encoded.dtype)  # the sum wraps around as the sender's differences do
        return np.where(is_set, encoded.astype(np.int64), -1)

    def _payloads(self) -> pa.Array[Any]:
        fields = self._struct("body")
        if not fields:
            return pa.repeat(pa.scalar(b"", pa.binary()), self._count)
        kinds = _integers(fields.get("type"), self._count)
        return self._values(fields, kinds).cast(pa.binary())

    def _fields(self) -> list[Attributes]:
        """Return the annotations of fields; zero and empty ones have none, as in protobuf."""
        columns = self._columns
        return [
            _number_annotations("time", columns.get("time_unix_nano"), pa.int64(), np.uint64),
            _number_annotations("observed_time", columns.get("observed_time_unix_nano"), pa.int64(), np.uint64),
            _number_annotations("severity_number", columns.get("severity_number"), pa.int32(), np.int32),
            _text_annotations("severity_text", self._texts(columns.get("severity_text"))),
            _text_annotations("event_name", self._texts(columns.get("event_name"))),
            _id_annotations("trace_id", columns.get("trace_id"), 16),
            _id_annotations("span_id", columns.get("span_id"), 8),
            _number_annotations("flags", columns.get("flags"), pa.uint32(), np.uint32),
            _number_annotations("dropped_attributes", columns.get("dropped_attributes_count"), pa.uint32(), np.uint32),
        ]

    def _attributes(self, payload_type: int, prefix: str, owner_of_row: Ints) -> Attributes:
        """Return the attributes of each row's owner; owner -1 has none."""
        batch = self._tables.by_type.get(payload_type)
        if batch is None or not batch.num_rows:
            return _NO_ATTRIBUTES
        if batch.num_rows > MAX_FIELDS:
            raise Refused(413, OVERSIZE, f"a batch may have {MAX_FIELDS} attributes of one kind")
        columns = _Table(batch.schema, batch.columns)
        kinds = _integers(columns.get("type"), batch.num_rows)
        key = columns.get("key")
        if key is None or "parent_id" not in columns:
            raise Malformed("a table of attributes has no key or no parent_id")
        owner = _parent_ids(columns, kinds)
        entries = Attributes(owner, self._prefixed(prefix, key), self._values(columns, kinds))
        # Limit: ids without attributes may be of any size; the others are indices of arrays.
        owner_of_row = np.where(owner_of_row <= owner.max(), owner_of_row, -1)
        # Limit: many rows may have the same owner, so the growth is judged before the attributes are repeated.
        has_owner = owner_of_row[owner_of_row >= 0]
        if int(np.bincount(owner)[has_owner].sum()) > MAX_FIELDS:
            raise Refused(413, OVERSIZE, f"the records of a batch may have {MAX_FIELDS} attributes")
        self._use_room(int(attribute_sizes(entries, 0)[has_owner].sum()))
        return repeated_for(entries, owner_of_row)

    def _prefixed(self, prefix: str, key: pa.Array[Any]) -> pa.Array[Any]:
        if isinstance(key, pa.DictionaryArray) and key.dictionary.type == pa.string():
            key = pa.DictionaryArray.from_arrays(key.indices, prefixed(prefix, key.dictionary))
            return self._texts(key)
        return prefixed(prefix, self._texts(key))

    def _values(self, columns: _Table, kinds: np.ndarray) -> pa.Array[Any]:
        """Return AnyValues as texts, which are empty without a value."""
        if len(kinds) and kinds.max() > _BYTES:
            raise Malformed(f"a value has type {kinds.max()}")
        parts, order, row_count = list[Any](), np.full(len(kinds), -1, np.int64), 0
        for kind, (name, read) in _FORMS.items():
            rows = np.flatnonzero(kinds == kind)
            column = columns.get(name)
            if not len(rows):
                continue
            default = _DEFAULT_TEXTS.get(kind, "")
            if column is None:
                parts.append(pa.repeat(pa.scalar(default), len(rows)))
            else:
                selected = column if len(rows) == len(kinds) else column.take(from_numpy(rows))
                parts.append(read(self, selected).fill_null(default))
            order[rows] = row_count + np.arange(len(rows))
            row_count += len(rows)
        if not parts:
            return pa.repeat(pa.scalar(""), len(kinds))
        return take_or_null(pa.concat_arrays(parts), order).fill_null("")

    def _texts(self, column: pa.Array[Any] | None) -> pa.Array[Any]:
        return pa.repeat(pa.scalar(""), self._count) if column is None else self._plain(column, pa.string())

    def _plain(self, column: pa.Array[Any], plain_type: pa.DataType) -> pa.Array[Any]:
        """Return a column of texts or bytes without its dictionary, "" for null. Raises Malformed."""
        if isinstance(column, pa.DictionaryArray) and column.dictionary.type == plain_type:
            values = column.dictionary.fill_null("" if plain_type == pa.string() else b"")
            counts = np.bincount(column.indices.drop_null().to_numpy(zero_copy_only=False), minlength=len(values))
            lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)  # type: ignore[call-overload]
            self._use_room(int(counts @ lengths.astype(np.int64)))
            column = values.take(column.indices)
        elif column.type != plain_type:
            raise Malformed(f"a column is {column.type} and not {plain_type}")
        return column.fill_null("" if plain_type == pa.string() else b"")

    def _use_room(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise Refused(413, OVERSIZE, f"the texts of a batch exceed {self._max_room} bytes")

    def _ints(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return _without_dictionary(column, pa.int64()).cast(pa.string())

    def _doubles(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return _without_dictionary(column, pa.float64()).cast(pa.string())

    def _bools(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return _without_dictionary(column, pa.bool_()).cast(pa.string())

    def _bytes(self, column: pa.Array[Any]) -> pa.Array[Any]:
        octets = self._plain(column, pa.binary())
        return pa.array([base64.b64encode(each or b"").decode() for each in octets.to_pylist()], pa.string())

    def _nested(self, column: pa.Array[Any]) -> pa.Array[Any]:
        encoded = self._plain(column, pa.binary())
        return pa.array([self._json(each) if each else "" for each in encoded.to_pylist()], pa.string())

    def _json(self, encoded: bytes) -> str:
        document, items = document_of(encoded, self._nested_items)
        self._nested_items -= items
        return orjson.dumps(document).decode()


_FORMS: Mapping[int, tuple[str, Callable[[_Decoder, pa.Array[Any]], pa.Array[Any]]]] = {
    _STR: ("str", _Decoder._texts),
    _INT: ("int", _Decoder._ints),
    _DOUBLE: ("double", _Decoder._doubles),
    _BOOL: ("bool", _Decoder._bools),
    _MAP: ("ser", _Decoder._nested),
    _SLICE: ("ser", _Decoder._nested),
    _BYTES: ("bytes", _Decoder._bytes),
}


_DEFAULT_TEXTS = {_INT: "0", _DOUBLE: "0", _BOOL: "false"}
"""Texts of values that are null or whose column is absent; other types have an empty one."""


def _without_dictionary(column: pa.Array[Any], plain_type: pa.DataType) -> pa.Array[Any]:
    """Return a column of fixed width without its dictionary. Raises Malformed if it has another type."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary.take(column.indices)
    if column.type != plain_type:
        raise Malformed(f"a column is {column.type} and not {plain_type}")
    return column


def _unsigned(column: pa.Array[Any], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ids, 0 for null, and which are not null."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary.take(column.indices)
    if column.type not in (pa.uint16(), pa.uint32()):
        raise Malformed(f"column {name} is {column.type} and not uint16")
    is_set = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), is_set


def _integers(column: pa.Array[Any] | None, count: int) -> np.ndarray:
    """Return the types of values, 0 for null."""
    if column is None or column.type != pa.uint8():
        raise Malformed("a value has no type of uint8")
    types: np.ndarray = column.fill_null(0).to_numpy(zero_copy_only=False)
    assert len(types) == count
    return types


def _parent_ids(columns: _Table, kinds: np.ndarray) -> Ints:
    """Decode parent ids (OTAP, section 6.4.3): differences where key, type and value equal the row before."""
    encoded, _ = _unsigned(columns["parent_id"], "parent_id")
    if "parent_id" in columns.plain_ids:
        return _within_limit(encoded.astype(np.int64))
    is_same = (kinds[1:] == kinds[:-1]) & _equals_previous(columns["key"], "")
    is_equal = np.zeros(len(kinds) - 1, np.bool_)
    for kind, (name, default) in _COMPARED.items():
        of_kind = kinds[1:] == kind
        if of_kind.any():
            is_equal |= of_kind & (_equals_previous(columns[name], default) if name in columns else True)
    begins_run = np.concatenate([[True], ~(is_same & is_equal)])
    sums = np.cumsum(encoded.astype(np.int64))
    begins = np.flatnonzero(begins_run)
    before = np.repeat(sums[begins] - encoded[begins], np.diff(np.append(begins, len(kinds))))
    return _within_limit((sums - before) & np.iinfo(encoded.dtype).max)


def _within_limit(ids: Ints) -> Ints:
    # Limit: attributes are gathered by id in an array.
    if len(ids) and ids.max() > MAX_FIELDS:
        raise Refused(413, OVERSIZE, f"a parent_id may be at most {MAX_FIELDS}")
    return ids


def _equals_previous(column: pa.Array[Any], default: Any) -> np.ndarray:
    """Return for each row but the first whether it equals the row before; null is ``default``."""
    if isinstance(column, pa.DictionaryArray):
        # A dictionary may have a value twice, and null. The texts of the rows are not made: they may be large.
        values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
        codes: Any = values.fill_null(pa.scalar(default, values.type)).dictionary_encode().indices
        column = codes.take(column.indices.cast(pa.int64()).fill_null(len(values) - 1))
    else:
        column = column.fill_null(pa.scalar(default, column.type))
    equal: Any = pc.equal(column[1:], column[:-1])
    return np.asarray(equal)


def _codes(texts: pa.Array[Any]) -> np.ndarray:
    codes: np.ndarray = texts.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _annotations(name: str, is_set: Any, texts: pa.Array[Any]) -> Attributes:
    """Return ``texts`` as annotations of the rows of ``is_set``."""
    rows = np.flatnonzero(is_set)
    return Attributes(rows, repeated_name(name, len(rows)), texts if is_set.all() else texts.take(from_numpy(rows)))


def _text_annotations(name: str, texts: pa.Array[Any]) -> Attributes:
    return _annotations(name, pc.not_equal(texts, "").to_numpy(zero_copy_only=False), texts)  # type: ignore[call-overload]


def _number_annotations(name: str, column: pa.Array[Any] | None, plain_type: pa.DataType, kind: Any) -> Attributes:
    if column is None:
        return _NO_ATTRIBUTES
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.int64())  # a time zone, which senders may state, changes nothing
    plain = _without_dictionary(column, plain_type)
    numbers = plain.fill_null(0).to_numpy(zero_copy_only=False).view(kind)
    return _annotations(name, numbers != 0, texts_of_numbers(numbers))


def _id_annotations(name: str, column: pa.Array[Any] | None, size: int) -> Attributes:
    """Return ids in hex; ids of zeros are none."""
    if column is None:
        return _NO_ATTRIBUTES
    plain = _without_dictionary(column, pa.binary(size)).fill_null(bytes(size))
    buffer: Any = plain.cast(pa.binary()).buffers()[2]
    octets = np.frombuffer(buffer, np.uint8)[: size * len(plain)].reshape(-1, size)
    return _annotations(name, np.any(octets, axis=1), hex_texts(octets))
