"""Records of Kafka as rows of the landing, whole Arrow batches at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import BUCKET_SECONDS
from penstock.landing.event_rules import MAX_TIMESTAMP

OWN = "_"
"""Headers whose names begin so say how a message travelled, and nothing about it."""
CODEC_HEADER = "codec"
SOURCE = "kafka"
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
"""The columns of Spark's Kafka source that are used."""
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
"""The columns of the landing's source, with the partition."""
LOG_ROW = pa.schema([one for one in ROW if one.name != "partition"])
"""Those that a topic of the log has."""


def bounded(times: pa.Array[Any]) -> pa.Array[Any]:
    """Times of records (microseconds) within the years that a table can hold: producers may say anything."""
    micros: Any = pc.max_element_wise(times.cast(pa.int64()), pa.scalar(0, pa.int64()), skip_nulls=False)
    most = pa.scalar(MAX_TIMESTAMP * 1000, pa.int64())
    found: pa.Array[Any] = pc.min_element_wise(micros, most, skip_nulls=False).cast(RECORD.field("timestamp").type)
    return found


def rows_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records as rows (ROW): headers become annotations, the header ``codec`` the codec."""
    count = batch.num_rows
    micros = batch.column("timestamp").cast(pa.int64())
    bucket = pc.multiply(pc.divide(micros, BUCKET_SECONDS * 1_000_000), BUCKET_SECONDS * 1_000_000)
    annotations, codec = _annotations(batch.column("headers"))  # type: ignore[arg-type]  # the schema says that it is a list
    values = {
        "payload": batch.column("value"),
        "type_url": pa.nulls(count, pa.string()),
        "annotations": annotations,
        "source": pa.repeat(SOURCE, count),
        "bucket": bucket.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        "received": batch.column("timestamp"),
        "codec": codec,
    }
    columns = [values[f.name] if f.name in values else batch.column(f.name) for f in ROW]
    return pa.RecordBatch.from_arrays(
        [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, ROW, strict=True)], schema=ROW
    )


def of_the_log(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a topic of the log (ROW without ``partition``) as ROW: its partition is null."""
    columns = [pa.nulls(rows.num_rows, f.type) if f.name == "partition" else rows.column(f.name) for f in ROW]
    return pa.RecordBatch.from_arrays(columns, schema=ROW)


def _annotations(headers: pa.ListArray[Any]) -> tuple[pa.MapArray[Any, Any], pa.Array[Any]]:
    """The headers that are text as annotations, and the codec; null where a record has none."""
    count = len(headers)
    rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    names = pc.struct_field(headers.flatten(), "key")
    shown = pc.invert(pc.starts_with(names, OWN))
    if not len(names) or not pc.any(shown).as_py():
        return pa.nulls(count, ROW.field("annotations").type), pa.nulls(count, pa.string())
    rows, names = rows[shown.to_numpy(zero_copy_only=False)], names.filter(shown)
    values = _texts(pc.struct_field(headers.flatten(), "value").filter(shown))
    is_codec = pc.equal(names, pa.scalar(CODEC_HEADER)).to_numpy(zero_copy_only=False)
    codecs = _scattered(count, rows[is_codec], values.filter(pa.array(is_codec)))
    rest = pa.array(~is_codec)
    return _maps(count, rows[~is_codec], names.filter(rest), values.filter(rest)), codecs


def _texts(values: pa.Array[Any]) -> pa.Array[Any]:
    """Values as texts; what is no UTF-8 with replacements."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode(errors="replace") for v in values.to_pylist()], pa.string())


def _scattered(count: int, rows: Rows, values: pa.Array[Any]) -> pa.Array[Any]:
    """``values`` at their ``rows`` (the last of each), null elsewhere."""
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _maps(count: int, rows: Rows, names: pa.Array[Any], values: pa.Array[Any]) -> pa.MapArray[Any, Any]:
    """A map for each row of its names and values, as sent: ``table_rows`` makes repeated names unique."""
    sizes = np.bincount(rows, minlength=count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    kind = ROW.field("annotations").type
    empty = pa.array(sizes == 0)
    maps: pa.MapArray[Any, Any] = pa.MapArray.from_arrays(offsets, names, values, type=kind, mask=empty)  # type: ignore[call-overload]  # the stub wants int64 offsets
    return maps
