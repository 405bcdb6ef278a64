"""Convert Kafka records to rows of the landing, whole Arrow batches at a time.

Any header and any timestamp is accepted: producers may send anything, and a refused record would be a lost message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.origin_header import OriginReader
from penstock.landing.event_rules import MAX_TIMESTAMP

TRANSPORT_HEADER_PREFIX = "_"
"""Prefix of headers that describe the transport (chunks, audits), not the message; they make no annotations."""
CODEC_HEADER = "codec"
Rows = npt.NDArray[np.int64]

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORD = pa.schema(
    [  # type: ignore[arg-type]  # the stub knows no list of fields of all types
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The columns of a record."""
ROW = pa.schema(
    [  # type: ignore[arg-type]  # as above
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary()),
        pa.field("type_url", pa.string()),
        pa.field("annotations", pa.map_(pa.string(), pa.string())),
        pa.field("source", pa.string()),
        pa.field("bucket", pa.timestamp("us", "UTC")),
        pa.field("received", pa.timestamp("us", "UTC")),
        pa.field("codec", pa.string()),
    ]
)
"""The columns of a message as the landing reads it."""
LOG_ROW = pa.schema([column for column in ROW if column.name != "partition"])
"""The columns of a message from a topic of the log, which has no partitions."""


def clamp_timestamps(millis: npt.NDArray[np.int64]) -> pa.Array[Any]:
    """Return timestamps of records (milliseconds) within the range that a table can hold, as of RECORD."""
    micros = np.clip(millis, 0, MAX_TIMESTAMP) * 1000
    clamped: pa.Array[Any] = pa.array(micros).cast(RECORD.field("timestamp").type)
    return clamped


def rows_from_records(batch: pa.RecordBatch, origins: OriginReader) -> pa.RecordBatch:
    """Convert records (RECORD) to rows (ROW): headers become annotations, the header ``codec`` the codec.

    Source and bucket come from the header with the record's origin (``kafka.origin_header``).
    """
    row_count = batch.num_rows
    seconds = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1_000_000
    source, bucket = origins.read(batch.column("headers"), seconds)  # type: ignore[arg-type]  # as below
    annotations, codec = _split_headers(batch.column("headers"))  # type: ignore[arg-type]  # the schema says that it is a list
    replaced = {
        "payload": batch.column("value"),
        "type_url": pa.nulls(row_count, pa.string()),
        "annotations": annotations,
        "source": source,
        "bucket": pa.array(bucket * 1_000_000).cast(ROW.field("bucket").type),
        "received": batch.column("timestamp"),
        "codec": codec,
    }
    columns = [replaced[f.name] if f.name in replaced else batch.column(f.name) for f in ROW]
    return pa.RecordBatch.from_arrays(
        [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, ROW, strict=True)], schema=ROW
    )


def with_null_partition(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of a topic of the log (LOG_ROW) to ROW, with null partitions."""
    columns = [pa.nulls(rows.num_rows, f.type) if f.name == "partition" else rows.column(f.name) for f in ROW]
    return pa.RecordBatch.from_arrays(columns, schema=ROW)


def _split_headers(headers: pa.ListArray[Any]) -> tuple[pa.MapArray[Any, Any], pa.Array[Any]]:
    """Return annotations and codecs of rows; null for a row without any."""
    row_count = len(headers)
    rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    names = pc.struct_field(headers.flatten(), "key")
    is_public = pc.invert(pc.starts_with(names, TRANSPORT_HEADER_PREFIX))
    # Fast path: batches without public headers, the usual case, need no maps.
    if not len(names) or not pc.any(is_public).as_py():
        return pa.nulls(row_count, ROW.field("annotations").type), pa.nulls(row_count, pa.string())
    rows, names = rows[is_public.to_numpy(zero_copy_only=False)], names.filter(is_public)
    values = _decode_texts(pc.struct_field(headers.flatten(), "value").filter(is_public))
    is_codec = pc.equal(names, pa.scalar(CODEC_HEADER)).to_numpy(zero_copy_only=False)
    codecs = _scatter(row_count, rows[is_codec], values.filter(pa.array(is_codec)))
    is_annotation = pa.array(~is_codec)
    return _build_maps(row_count, rows[~is_codec], names.filter(is_annotation), values.filter(is_annotation)), codecs


def _decode_texts(values: pa.Array[Any]) -> pa.Array[Any]:
    # Fast path: the cast validates all values at once; only a batch with invalid UTF-8 is decoded value by value.
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if content is None else content.decode(errors="replace") for content in values.to_pylist()],
            pa.string(),
        )


def _scatter(row_count: int, rows: Rows, values: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``values`` at their ``rows``, null elsewhere. The last value of a row wins."""
    indices = np.full(row_count, -1)
    indices[rows] = np.arange(len(rows))
    return values.take(pa.array(indices, mask=indices < 0))


def _build_maps(row_count: int, rows: Rows, names: pa.Array[Any], values: pa.Array[Any]) -> pa.MapArray[Any, Any]:
    """Return one map per row. Repeated names stay; ``table_rows`` makes them unique."""
    sizes = np.bincount(rows, minlength=row_count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    map_type = ROW.field("annotations").type
    is_empty = pa.array(sizes == 0)
    maps: pa.MapArray[Any, Any] = pa.MapArray.from_arrays(offsets, names, values, type=map_type, mask=is_empty)  # type: ignore[call-overload]  # the stub wants int64 offsets
    return maps
