"""Provenance columns: source, bucket, receive time and codec of a batch, repeated for each row."""

from __future__ import annotations

import pyarrow as pa

from penstock.counts import Origin

_TYPES: dict[str, pa.DataType] = {
    "source": pa.string(),
    "bucket": pa.timestamp("us", "UTC"),
    "received": pa.timestamp("us", "UTC"),
    "codec": pa.string(),
}
PROVENANCE = pa.schema(_TYPES)
"""Source, bucket, receive time of the batch's first row, and codec."""


def provenance(origin: Origin) -> dict[str, str | int]:
    """Return the value of each column of PROVENANCE; times in microseconds since the epoch."""
    return {
        "source": origin.source,
        "bucket": origin.bucket * 1_000_000,
        "received": origin.first,
        "codec": origin.codec,
    }


def with_provenance(batch: pa.RecordBatch, origin: Origin, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``schema``: columns of ``batch``, and the columns of PROVENANCE for all rows."""
    constants = provenance(origin)
    columns = [
        pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        if field.name in constants
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
