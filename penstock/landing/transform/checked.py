"""A function from rows to rows, and what it may do: drop rows, change them, or give them another kind.

What a row is known by stays: then each offset is in the table once, and a batch that is done again is the same. A
dropped row leaves one of kind ``dropped`` without content, for the proof to find; one that was changed says so in
``reason``. Rows that the function fails on go to quarantine: a batch is halved until it is known which they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.event_rules import (
    MAX_TIMESTAMP,
    MAX_TYPE_BYTES,
    MIN_TIMESTAMP,
    REDACTED,
    UNSAFE_IN_TYPE,
    MessageKind,
    Reason,
)
from penstock.landing.rows.engine import as_mask, pc
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.records import concatenated

KNOWN_BY = ("topic", "partition", "offset", "timestamp", "received", "source", "bucket", "landed_at", "uuid")
"""Columns that no function may change."""
EVIDENCE = KNOWN_BY[:-1]
"""What is kept of a row that was dropped."""
CONTENT = ("payload", "key", "annotations")
"""What is kept besides of a row that a function failed on."""
SCHEMA = FILE_SCHEMA.append(pa.field("kind", pa.string()))
"""What a function is given, and gives back."""
KINDS = (MessageKind.EVENT, MessageKind.SYSLOG, MessageKind.MESSAGE, MessageKind.QUARANTINE)
REASON_NAME = r"^[a-z][a-z0-9_]{0,39}$"
Function = Callable[[pa.RecordBatch], pa.RecordBatch]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Places = np.ndarray[tuple[int], np.dtype[np.int64]]
OfKind = tuple[MessageKind, pa.RecordBatch]


class BadRows(PenstockError, ValueError):
    """A function gave back rows that it may not; the text says which."""


@dataclass(slots=True)
class CheckedFunction:
    """A function under its ``name``; ``failed``: on how many rows it did, and ``error`` the first that it raised."""

    name: str
    function: Function
    failed: int = 0
    error: str = ""

    def apply(self, kind: MessageKind, rows: pa.RecordBatch) -> Iterator[OfKind]:
        """The rows (FILE_SCHEMA) that come of these, by kind."""
        given = rows.append_column("kind", pa.repeat(kind.value, rows.num_rows))
        failed: list[pa.RecordBatch] = []
        parts: dict[MessageKind, list[pa.RecordBatch]] = {}
        for made_kind, made in self._tried(given, failed):
            parts.setdefault(made_kind, []).append(made)
        if failed:
            reduced = _reduced(concatenated(failed), (*EVIDENCE, *CONTENT), Reason.TRANSFORM_FAILED)
            parts.setdefault(MessageKind.QUARANTINE, []).append(reduced)
        yield from ((made_kind, concatenated(of_kind)) for made_kind, of_kind in parts.items())

    def _tried(self, given: pa.RecordBatch, failed: list[pa.RecordBatch]) -> Iterator[OfKind]:
        try:
            made = self.function(given)
            places = check(given, made)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
            if given.num_rows > 1:
                half = given.num_rows // 2
                yield from self._tried(given.slice(0, half), failed)
                yield from self._tried(given.slice(half), failed)
                return
            self.failed += 1
            self.error = self.error or f"{type(error).__name__}: {error}".partition("\n")[0]
            failed.append(given)
        else:
            # A function, or a redaction of names, may give two annotations one name.
            yield from _by_kind(_marked(given, with_unique_annotations(made), places))
            dropped = np.ones(given.num_rows, bool)
            dropped[places] = False
            if dropped.any():
                yield MessageKind.DROPPED, _reduced(given.filter(pa.array(dropped)), EVIDENCE)


def check(given: pa.RecordBatch, made: Any) -> Places:
    """For each row that was made its place among those given. Raises BadRows."""
    if not isinstance(made, pa.RecordBatch):
        raise BadRows(f"it returned {type(made).__name__} and no RecordBatch")
    if not made.schema.equals(given.schema):
        raise BadRows(f"it returned other columns: {_difference(given.schema, made.schema)}")
    made.validate(full=True)
    places = _places(given, made)
    for name in KNOWN_BY:
        if not made[name].equals(_taken(given[name], places)):
            raise BadRows(f"it changed {name}")
    _check_values(made)
    return places


def _difference(given: pa.Schema, made: pa.Schema) -> str:
    missing = [one.name for one in given if one.name not in made.names]
    more = [name for name in made.names if name not in given.names]
    other = [one.name for one in given if one.name in made.names and made.field(one.name).type != one.type]
    told = {"missing": missing, "more": more, "of another type": other}
    return "; ".join(f"{what} {', '.join(names)}" for what, names in told.items() if names) or "in another order"


def _places(given: pa.RecordBatch, made: pa.RecordBatch) -> Places:
    """By topic, partition and offset."""
    size = given.num_rows
    if made.num_rows == size and all(made[name].equals(given[name]) for name in ("offset", "topic", "partition")):
        return np.arange(size)
    both = pa.Table.from_batches([given, made]).select(["topic", "partition", "offset"]).combine_chunks()
    topics, offsets = (
        pc.fill_null(both[name].combine_chunks(), empty) for name, empty in (("topic", ""), ("offset", -1))
    )
    keys = [topics.dictionary_encode().indices.to_numpy(), _numbers(both["partition"]), offsets.to_numpy()]
    order = np.lexsort((np.arange(len(offsets)) >= size, *reversed(keys)))
    same = np.all([key[order][1:] == key[order][:-1] for key in keys], axis=0)
    found = np.full(made.num_rows, -1)
    after = order[1:]
    mine = (after >= size) & same & (order[:-1] < size)
    found[after[mine] - size] = order[:-1][mine]
    if (found < 0).any():
        raise BadRows("it returned rows that it was not given, or one of them twice")
    return found


def _numbers(column: pa.ChunkedArray[Any]) -> Any:
    return pc.fill_null(column.combine_chunks(), pa.scalar(-1, column.type)).to_numpy()


def _taken(column: pa.Array[Any], places: Places) -> pa.Array[Any]:
    if len(places) == len(column) and (places == np.arange(len(column))).all():
        return column
    taken: pa.Array[Any] = pc.take(column, pa.array(places))
    return taken


def _check_values(made: pa.RecordBatch) -> None:
    kinds = made["kind"]
    if not set(pc.unique(kinds).to_pylist()) <= set(KINDS):
        raise BadRows(f"kind is not one of {', '.join(KINDS)}")
    events = made.filter(pc.equal(kinds, pa.scalar(MessageKind.EVENT.value)))
    if events["uuid"].null_count or not _are_types(events["type"]):
        raise BadRows(f"an event needs a uuid, and a type of 1 to {MAX_TYPE_BYTES} bytes without control characters")
    reasons = pc.unique(made["reason"].filter(pc.equal(kinds, pa.scalar(MessageKind.QUARANTINE.value))))
    if not all(as_mask(pc.match_substring_regex(reasons, REASON_NAME))):
        raise BadRows("what goes to quarantine needs a reason of small letters, digits and underscores")
    bounds: Any = pc.min_max(made["event_time"].cast(pa.int64())).as_py()
    if bounds["min"] is not None and not MIN_TIMESTAMP * 1000 <= bounds["min"] <= bounds["max"] <= MAX_TIMESTAMP * 1000:
        raise BadRows("event_time is not within the years 1 to 9999")


def _are_types(column: pa.Array[Any]) -> bool:
    names = pc.unique(column)
    sizes = pc.binary_length(names).to_numpy(zero_copy_only=False)
    unsafe = as_mask(pc.match_substring_regex(names, UNSAFE_IN_TYPE))
    return names.null_count == 0 and bool(((sizes > 0) & (sizes <= MAX_TYPE_BYTES)).all()) and not unsafe.any()


def _marked(given: pa.RecordBatch, made: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """With REDACTED as the reason of what was changed, now or before, and lands; and no other reason there."""
    changed = as_mask(pc.equal(_taken(given["reason"], places), pa.scalar(REDACTED)))
    for name in made.schema.names:
        if name != "reason":
            changed |= _differing(_taken(given[name], places), made[name])
    quarantined = pc.equal(made["kind"], pa.scalar(MessageKind.QUARANTINE.value))
    marks = pc.if_else(pa.array(changed), pa.scalar(REDACTED), pa.scalar(None, pa.string()))
    at = made.schema.get_field_index("reason")
    return made.set_column(at, made.schema.field(at), pc.if_else(quarantined, made["reason"], marks))


def _differing(one: pa.Array[Any], other: pa.Array[Any]) -> Mask:
    if one.equals(other):
        return np.zeros(len(one), bool)
    if pa.types.is_nested(one.type):
        return np.array([a != b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool)
    unknown = as_mask(pc.is_null(one)) != as_mask(pc.is_null(other))
    found: Mask = unknown | as_mask(pc.not_equal(one, other))
    return found


def _by_kind(rows: pa.RecordBatch) -> Iterator[OfKind]:
    for kind in pc.unique(rows["kind"]).to_pylist():
        mine = rows.filter(pc.equal(rows["kind"], pa.scalar(kind)))
        yield MessageKind(kind), mine.select(FILE_SCHEMA.names)


def _reduced(given: pa.RecordBatch, kept: tuple[str, ...], reason: str | None = None) -> pa.RecordBatch:
    """The rows with some of their columns; the others null, but for the reason."""
    size = given.num_rows
    columns = [given[one.name] if one.name in kept else pa.nulls(size, one.type) for one in FILE_SCHEMA]
    if reason is not None:
        columns[FILE_SCHEMA.get_field_index("reason")] = pa.repeat(str(reason), size)
    return pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA)
