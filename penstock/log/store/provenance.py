"""Where rows came from, as columns: what a batch says of all its rows."""

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
"""Source, bucket, when the first row of the batch was received, and codec."""


def provenance(origin: Origin) -> dict[str, str | int]:
    """The value of each column of PROVENANCE; times in microseconds since the epoch."""
    return {
        "source": origin.source,
        "bucket": origin.bucket * 1_000_000,
        "received": origin.first,
        "codec": origin.codec,
    }


def with_provenance(batch: pa.RecordBatch, origin: Origin, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``: those of ``batch``, and those of PROVENANCE for all its rows."""
    known = provenance(origin)
    columns = [
        pa.repeat(pa.scalar(known[field.name], field.type), batch.num_rows)
        if field.name in known
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
