"""A function from rows to rows, with checks of its output.

It may drop rows, change them, or give them another kind.

Invariant: each offset is in the table once, and a repeated batch has the same rows, because the columns that identify
a row never change. A dropped row leaves a row of kind ``dropped`` without content, for the proof; a changed row says
so in ``reason``. Rows that the function fails on go to quarantine: a batch is halved until the failing rows are alone.
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

IDENTITY = ("topic", "partition", "offset", "timestamp", "received", "source", "bucket", "landed_at", "uuid")
"""Columns that a function must not change."""
DROPPED_COLUMNS = IDENTITY[:-1]
"""Columns of a dropped row."""
FAILED_CONTENT = ("payload", "key", "annotations")
"""Further columns of a row that a function failed on."""
KINDS = (MessageKind.EVENT, MessageKind.SYSLOG, MessageKind.MESSAGE, MessageKind.QUARANTINE)
REASON_NAME = r"^[a-z][a-z0-9_]{0,39}$"
Function = Callable[[pa.RecordBatch], pa.RecordBatch]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
OfKind = tuple[MessageKind, pa.RecordBatch]


class BadRows(PenstockError, ValueError):
    """Output that a function must not return; the text names the problem."""


@dataclass(slots=True)
class CheckedFunction:
    """A function with its ``name``; ``failed`` counts rows that it failed on, and ``error`` is the first error.

    Owned by one task.
    """

    name: str
    function: Function
    failed: int = 0
    error: str = ""

    def apply(self, kind: MessageKind, rows: pa.RecordBatch) -> Iterator[OfKind]:
        """Yield the rows (FILE_SCHEMA) that result from these, by kind."""
        input_rows = rows.append_column("kind", pa.repeat(kind.value, rows.num_rows))
        failed: list[pa.RecordBatch] = []
        parts: dict[MessageKind, list[pa.RecordBatch]] = {}
        for output_kind, output in self._call(input_rows, failed):
            parts.setdefault(output_kind, []).append(output)
        if failed:
            reduced = _keep_columns(concatenated(failed), (*DROPPED_COLUMNS, *FAILED_CONTENT), Reason.TRANSFORM_FAILED)
            parts.setdefault(MessageKind.QUARANTINE, []).append(reduced)
        yield from ((output_kind, concatenated(batches)) for output_kind, batches in parts.items())

    def _call(self, input_rows: pa.RecordBatch, failed: list[pa.RecordBatch]) -> Iterator[OfKind]:
        try:
            output = self.function(input_rows)
            positions = check(input_rows, output)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
            if input_rows.num_rows > 1:
                # Limit: halving calls the function less than twice for each row, even if it fails on all of them.
                half = input_rows.num_rows // 2
                yield from self._call(input_rows.slice(0, half), failed)
                yield from self._call(input_rows.slice(half), failed)
                return
            self.failed += 1
            self.error = self.error or f"{type(error).__name__}: {error}".partition("\n")[0]
            failed.append(input_rows)
        else:
            # A function, or a redaction of names, may give two annotations one name.
            yield from _split_by_kind(_with_reasons(input_rows, with_unique_annotations(output), positions))
            dropped = np.ones(input_rows.num_rows, bool)
            dropped[positions] = False
            if dropped.any():
                yield MessageKind.DROPPED, _keep_columns(input_rows.filter(pa.array(dropped)), DROPPED_COLUMNS)


def check(input_rows: pa.RecordBatch, output: Any) -> Positions:
    """Return for each output row its position in the input. Raises BadRows."""
    if not isinstance(output, pa.RecordBatch):
        raise BadRows(f"it returned {type(output).__name__} instead of a RecordBatch")
    if not output.schema.equals(input_rows.schema):
        raise BadRows(f"it returned other columns: {_difference(input_rows.schema, output.schema)}")
    # A function may build arrays whose offsets or UTF-8 are invalid; later code would read beyond their buffers.
    output.validate(full=True)
    positions = _input_positions(input_rows, output)
    for name in IDENTITY:
        if not output[name].equals(_take_rows(input_rows[name], positions)):
            raise BadRows(f"it changed {name}")
    _check_values(output)
    return positions


def _difference(expected: pa.Schema, actual: pa.Schema) -> str:
    missing = [field.name for field in expected if field.name not in actual.names]
    additional = [name for name in actual.names if name not in expected.names]
    changed = [
        field.name for field in expected if field.name in actual.names and actual.field(field.name).type != field.type
    ]
    differences = {"missing": missing, "more": additional, "of another type": changed}
    return (
        "; ".join(f"{label} {', '.join(names)}" for label, names in differences.items() if names) or "in another order"
    )


def _input_positions(input_rows: pa.RecordBatch, output: pa.RecordBatch) -> Positions:
    """Return input positions by topic, partition and offset."""
    size = input_rows.num_rows
    # Fast path: rows that were not reordered need no sort.
    if output.num_rows == size and all(
        output[name].equals(input_rows[name]) for name in ("offset", "topic", "partition")
    ):
        return np.arange(size)
    keys_table = pa.Table.from_batches([input_rows, output]).select(["topic", "partition", "offset"]).combine_chunks()
    topics, offsets = (
        pc.fill_null(keys_table[name].combine_chunks(), empty) for name, empty in (("topic", ""), ("offset", -1))
    )
    keys = [topics.dictionary_encode().indices.to_numpy(), _filled_numbers(keys_table["partition"]), offsets.to_numpy()]
    # Sorted together, an output row comes directly behind the input row with the same key; a second one does not.
    order = np.lexsort((np.arange(len(offsets)) >= size, *reversed(keys)))
    same = np.all([key[order][1:] == key[order][:-1] for key in keys], axis=0)
    positions = np.full(output.num_rows, -1)
    following = order[1:]
    matches = (following >= size) & same & (order[:-1] < size)
    positions[following[matches] - size] = order[:-1][matches]
    if (positions < 0).any():
        raise BadRows("it returned rows that it was not given, or one of them twice")
    return positions


def _filled_numbers(column: pa.ChunkedArray[Any]) -> Any:
    return pc.fill_null(column.combine_chunks(), pa.scalar(-1, column.type)).to_numpy()


def _take_rows(column: pa.Array[Any], positions: Positions) -> pa.Array[Any]:
    if len(positions) == len(column) and (positions == np.arange(len(column))).all():
        return column
    rows: pa.Array[Any] = pc.take(column, pa.array(positions))
    return rows


def _check_values(output: pa.RecordBatch) -> None:
    kinds = output["kind"]
    if not set(pc.unique(kinds).to_pylist()) <= set(KINDS):
        raise BadRows(f"kind is not one of {', '.join(KINDS)}")
    events = output.filter(pc.equal(kinds, pa.scalar(MessageKind.EVENT.value)))
    if events["uuid"].null_count or not _are_types(events["type"]):
        raise BadRows(f"an event needs a uuid, and a type of 1 to {MAX_TYPE_BYTES} bytes without control characters")
    reasons = pc.unique(output["reason"].filter(pc.equal(kinds, pa.scalar(MessageKind.QUARANTINE.value))))
    if not all(as_mask(pc.match_substring_regex(reasons, REASON_NAME))):
        raise BadRows("what goes to quarantine needs a reason of small letters, digits and underscores")
    bounds: Any = pc.min_max(output["event_time"].cast(pa.int64())).as_py()
    if bounds["min"] is not None and not MIN_TIMESTAMP * 1000 <= bounds["min"] <= bounds["max"] <= MAX_TIMESTAMP * 1000:
        raise BadRows("event_time is not within the years 1 to 9999")


def _are_types(column: pa.Array[Any]) -> bool:
    names = pc.unique(column)
    sizes = pc.binary_length(names).to_numpy(zero_copy_only=False)
    unsafe = as_mask(pc.match_substring_regex(names, UNSAFE_IN_TYPE))
    return names.null_count == 0 and bool(((sizes > 0) & (sizes <= MAX_TYPE_BYTES)).all()) and not unsafe.any()


def _with_reasons(input_rows: pa.RecordBatch, output: pa.RecordBatch, positions: Positions) -> pa.RecordBatch:
    """Return output with the reason REDACTED in rows that land and were changed, now or before.

    Other rows that land have no reason.
    """
    changed = as_mask(pc.equal(_take_rows(input_rows["reason"], positions), pa.scalar(REDACTED)))
    for name in output.schema.names:
        if name != "reason":
            changed |= _differs(_take_rows(input_rows[name], positions), output[name])
    quarantined = pc.equal(output["kind"], pa.scalar(MessageKind.QUARANTINE.value))
    marks = pc.if_else(pa.array(changed), pa.scalar(REDACTED), pa.scalar(None, pa.string()))
    index = output.schema.get_field_index("reason")
    return output.set_column(index, output.schema.field(index), pc.if_else(quarantined, output["reason"], marks))


def _differs(before: pa.Array[Any], after: pa.Array[Any]) -> Mask:
    if before.equals(after):
        return np.zeros(len(before), bool)
    if pa.types.is_nested(before.type):
        return np.array([a != b for a, b in zip(before.to_pylist(), after.to_pylist(), strict=True)], bool)
    null_changed = as_mask(pc.is_null(before)) != as_mask(pc.is_null(after))
    mask: Mask = null_changed | as_mask(pc.not_equal(before, after))
    return mask


def _split_by_kind(rows: pa.RecordBatch) -> Iterator[OfKind]:
    for kind in pc.unique(rows["kind"]).to_pylist():
        rows_of_kind = rows.filter(pc.equal(rows["kind"], pa.scalar(kind)))
        yield MessageKind(kind), rows_of_kind.select(FILE_SCHEMA.names)


def _keep_columns(rows: pa.RecordBatch, names: tuple[str, ...], reason: str | None = None) -> pa.RecordBatch:
    """Return rows with the named columns; the others are null, except for the reason."""
    size = rows.num_rows
    columns = [rows[field.name] if field.name in names else pa.nulls(size, field.type) for field in FILE_SCHEMA]
    if reason is not None:
        columns[FILE_SCHEMA.get_field_index("reason")] = pa.repeat(str(reason), size)
    return pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA)
