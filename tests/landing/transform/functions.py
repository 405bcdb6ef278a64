"""Transformations as users write them, correct and faulty."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def drop_debug(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Drop events of the type ``debug``."""
    return rows.filter(pc.fill_null(pc.not_equal(rows["type"], pa.scalar("debug")), True))


def without_host(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Remove the host."""
    return replace_column(rows, "host", pa.nulls(rows.num_rows, pa.string()))


def backwards(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Reverse the order of rows."""
    return rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))


def audit_to_messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Turn events of the type ``audit`` into plain messages."""
    audit = pc.fill_null(pc.equal(rows["type"], pa.scalar("audit")), False)
    return replace_column(rows, "kind", pc.if_else(audit, pa.scalar("message"), rows["kind"]))


def fails_on_bad(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Raise for payloads with ``bad`` in them."""
    if any(b"bad" in (payload or b"") for payload in rows["payload"].to_pylist()):
        raise RuntimeError("something bad\nand more")
    return rows


def replace_column(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:  # type: ignore[type-arg]
    """Return the rows with a replaced column."""
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), column)


NO_FUNCTION = 5
