"""Transformations as users write them, and as they should not."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def drop_debug(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without events of the type ``debug``."""
    return rows.filter(pc.fill_null(pc.not_equal(rows["type"], pa.scalar("debug")), True))


def without_host(rows: pa.RecordBatch) -> pa.RecordBatch:
    """No host."""
    return put(rows, "host", pa.nulls(rows.num_rows, pa.string()))


def backwards(rows: pa.RecordBatch) -> pa.RecordBatch:
    """In another order."""
    return rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))


def audit_to_messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Events of the type ``audit`` as plain messages."""
    audit = pc.fill_null(pc.equal(rows["type"], pa.scalar("audit")), False)
    return put(rows, "kind", pc.if_else(audit, pa.scalar("message"), rows["kind"]))


def fails_on_bad(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Does not like payloads with ``bad`` in them."""
    if any(b"bad" in (payload or b"") for payload in rows["payload"].to_pylist()):
        raise RuntimeError("something bad\nand more")
    return rows


def put(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:  # type: ignore[type-arg]
    """The rows with another column in its place."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)


NO_FUNCTION = 5
