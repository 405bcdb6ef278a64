"""What of the log has not landed, as the rows that it will be: by the landing's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.stream_judge import StreamJudge
from penstock.landing.event_rules import MessageKind
from penstock.landing.from_kafka.rows import LOG_ROW, of_the_log
from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.table_schema import LANDED
from penstock.landing.topics.topic_store import Range, TopicStore
from penstock.landing.writing.part_writer import Source, gathered
from penstock.sql.cut import Cut


def rows_beyond(
    cut: Cut, ranges: Sequence[Range], store: TopicStore | None, rules: Rules, window: int, tell: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges`` (LANDED; ``landed_at`` is null), without duplicates of what is in the table or here.

    ``window`` in microseconds; ``tell`` hears how many messages were read.
    """
    judge, done = StreamJudge(cut.keys, window), 0
    for source in gathered(_sources(ranges, store)):
        for kind, rows in table_rows(source.rows, rules, None):
            kept = rows.filter(_fresh(rows, judge)) if kind is MessageKind.EVENT else rows
            yield _with_folders(kind, kept)
        done += source.rows.num_rows
        tell(done)


def ranges_beyond(cut: Cut, store: TopicStore, patterns: Sequence[str]) -> list[Range]:
    """The offsets of the topics that the pipeline reads (``patterns``) and that have not landed."""
    views = store.views(patterns).items()
    return [Range(name, *run) for name, view in views for run in cut.beyond(name, view.start, view.end)]


def _sources(ranges: Sequence[Range], store: TopicStore | None) -> Iterator[Source]:
    for one in ranges:
        for rows in store.read(one, LOG_ROW) if store is not None else ():
            yield Source(of_the_log(rows))


def _fresh(rows: pa.RecordBatch, judge: StreamJudge) -> pa.Array[Any]:
    before, repeats = judge.judged(EventsSeen.of(rows))
    return pa.array(np.logical_not(before | repeats))


def _with_folders(kind: MessageKind, rows: pa.RecordBatch) -> pa.RecordBatch:
    """LANDED: besides the columns of a file those that its folders name."""
    named = pa.repeat(pa.scalar(kind.value, pa.string()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, named, pc.cast(rows["timestamp"], pa.date32())], schema=LANDED)
