"""Source and bucket of rows of Kafka, and times of documents, as the landing may have written them.

A record's header with its origin counts today. A row that landed before the header counted has the source ``kafka``
and the minute of its record; a row beyond a task's limit of origins has ``other/other``, which depends on the records
that were in the same task. A document of JSON or ``_bulk`` had no event time before its ``@timestamp`` counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import BUCKET_SECONDS
from penstock.kafka.origin_header import NO_ORIGIN, OTHER_ORIGINS
from penstock.upkeep.repair.lost_column import LostColumn

TIME = "event_time"
ORIGIN_COLUMNS = ("source", "bucket")
_WITHOUT_HEADER = pa.array([NO_ORIGIN, OTHER_ORIGINS])
_BUCKET_MICROS = BUCKET_SECONDS * 1_000_000


def with_former_origins(
    rows: pa.RecordBatch, columns: Mapping[str, pa.Array[Any]], lost: Mapping[str, LostColumn]
) -> pa.RecordBatch:
    """Return rows that were read again (FILE_SCHEMA) with the source and bucket that a file may have for them.

    ``columns`` are the file's readable columns in the same order, ``lost`` the others. Readable values stay if the
    landing can have written them for the record; the caller compares the others. Lost ones are from the header, or from
    before the header counted if only this agrees with the statistics.

    Limit: of a row group with rows from before and after, lost sources are from the header, because the bounds do not
    separate the two.
    """
    choices = [_with_origins(rows, columns, source) for source in (None, NO_ORIGIN, OTHER_ORIGINS)]
    lost_columns = {name: lost[name] for name in ORIGIN_COLUMNS if name in lost}
    return next(
        (
            choice
            for choice in choices
            if all(statistics.agrees(choice[name]) for name, statistics in lost_columns.items())
        ),
        choices[0],
    )


def _with_origins(
    rows: pa.RecordBatch, columns: Mapping[str, pa.Array[Any]], lost_source: str | None
) -> pa.RecordBatch:
    """Return rows with the file's origins; ``lost_source``: a lost source of rows of Kafka, None for today's."""
    source: Any = rows["source"]
    bucket: Any = rows["bucket"]
    is_kafka = pc.is_valid(rows["partition"])
    micros: Any = rows["received"].cast(pa.int64())
    minutes = pc.multiply(pc.divide(micros, _BUCKET_MICROS), _BUCKET_MICROS).cast(bucket.type)
    # Records that are read again are in other tasks than at the landing, so the limit of origins hits other ones.
    is_beyond_limit = pc.equal(source, pa.scalar(OTHER_ORIGINS))
    if "source" in columns:
        former: Any = columns["source"].cast(source.type)
        is_possible = pc.is_in(former, _WITHOUT_HEADER)
        # Without the file's bucket nothing says which minute the header of such a record has.
        is_possible = pc.or_(is_possible, is_beyond_limit) if "bucket" in columns else is_possible
        source = pc.if_else(pc.and_(is_kafka, is_possible), former, source)
    elif lost_source is not None:
        source = pc.if_else(is_kafka, pa.scalar(lost_source), source)
    elif "bucket" in columns:
        is_before_headers = pc.and_(is_kafka, pc.not_equal(columns["bucket"].cast(bucket.type), bucket))
        source = pc.if_else(is_before_headers, pa.scalar(NO_ORIGIN), source)
    if "bucket" in columns:
        former = columns["bucket"].cast(bucket.type)
        is_possible = pc.or_(pc.equal(former, minutes), is_beyond_limit)
    else:
        former, is_possible = minutes, pc.is_in(source, _WITHOUT_HEADER)
    bucket = pc.if_else(pc.and_(is_kafka, is_possible), former, bucket)
    for name, column in zip(ORIGIN_COLUMNS, (source, bucket), strict=True):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows


def with_former_times(
    rows: pa.RecordBatch, columns: Mapping[str, pa.Array[Any]], lost: Mapping[str, LostColumn]
) -> pa.RecordBatch:
    """Return rows that were read again (FILE_SCHEMA) with the event times that a file may have for documents.

    The arguments and the limit of rows from before and after are as in ``with_former_origins``.
    """
    times: Any = rows["event_time"]
    if TIME in columns:
        is_former = is_untimed_document(columns[TIME], rows)
    elif TIME not in lost or lost[TIME].agrees(times):
        return rows
    else:
        is_former = is_untimed_document(pa.nulls(len(rows), times.type), rows)
    former = pc.if_else(is_former, pa.scalar(None, times.type), times)
    index = rows.schema.get_field_index(TIME)
    return rows.set_column(index, rows.schema.field(index), former)


def is_untimed_document(times: pa.Array[Any], columns: Mapping[str, pa.Array[Any]] | pa.RecordBatch) -> pa.Array[Any]:
    """Return a mask of the messages with an object of JSON, no events, that have none of these times.

    Rows do not have their codec, so that messages of other protocols are among them.
    """
    is_object: Any = pc.fill_null(pc.starts_with(columns["payload"], "{"), pa.scalar(False))
    is_document: Any = pc.and_(is_object, pc.is_null(columns["type"]))
    mask: pa.Array[Any] = pc.and_(is_document, pc.is_null(times))
    return mask
