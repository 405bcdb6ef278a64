"""The part of the log that has not landed, as the rows that it will become by the landing's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.duplicates.decision import StreamJudge
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.rows.engine import as_mask
from penstock.landing.table_schema import LANDED
from penstock.landing.topics.topic_store import Range
from penstock.landing.transform.rules import Transformation
from penstock.landing.writing.part_writer import MessageBatch, join_small_batches, rows_to_land
from penstock.sql.cut import Cut
from penstock.sql.tables import Tables


def rows_beyond(
    tables: Tables, cut: Cut, ranges: Sequence[Range], report_progress: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``ranges`` (schema LANDED, ``landed_at`` null), without duplicates of rows in the table or
    in the tail.

    ``report_progress`` is called with the number of messages read so far.
    """
    # Duplicates are judged in the order of the log, as the landing judges them.
    judge, transformation, messages_read = (
        StreamJudge(cut.keys, tables.window),
        Transformation(tables.transform.steps()),
        0,
    )
    for source in join_small_batches(_sources(tables, ranges)):
        for kind, rows in rows_to_land(source.rows, tables.rules, transformation, None):
            yield _with_folders(kind, rows.filter(_is_no_duplicate(rows, judge)) if _may_repeat(kind, rows) else rows)
        messages_read += source.rows.num_rows
        report_progress(messages_read)


def ranges_beyond(tables: Tables, cut: Cut) -> list[Range]:
    """Return the unlanded offsets of the topics that the pipeline reads and the user may read."""
    views = tables.store.views(tables.patterns) if tables.store is not None else {}
    readable_views = [(name, view) for name, view in views.items() if tables.may_read(name)]
    return [Range(name, *run) for name, view in readable_views for run in cut.beyond(name, view.start, view.end)]


def _sources(tables: Tables, ranges: Sequence[Range]) -> Iterator[MessageBatch]:
    for offset_range in ranges:
        # Limit: one batch of the log is in memory at a time.
        for rows in tables.store.read(offset_range, LOG_ROW) if tables.store is not None else ():
            yield MessageBatch(with_null_partition(rows))


def _may_repeat(kind: MessageKind, rows: pa.RecordBatch) -> bool:
    return kind in WITH_UUID and rows["uuid"].null_count < rows.num_rows


def _is_no_duplicate(rows: pa.RecordBatch, judge: StreamJudge) -> pa.Array[Any]:
    with_uuid = as_mask(pc.is_valid(rows["uuid"]))
    landed_before, repeats = judge.judge(EventsSeen.from_rows(rows.filter(pa.array(with_uuid))))
    fresh = np.ones(rows.num_rows, bool)
    fresh[with_uuid] = ~(landed_before | repeats)
    return pa.array(fresh)


def _with_folders(kind: MessageKind, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns that the folders of a file name: kind and date."""
    named = pa.repeat(pa.scalar(kind.value, pa.string()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, named, pc.cast(rows["timestamp"], pa.date32())], schema=LANDED)
