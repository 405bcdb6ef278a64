"""Times that producers set (CreateTime), as an annotation next to the log's own time.

The log's time stays the one of its index and retention, because that index needs times that never decrease; a
producer's clock may say anything. The annotation is text, so every reader of the topic and the tables has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.records.varints import Ints
from penstock.records import ANNOTATIONS, annotation_maps, bounds

CREATION_TIME = "kafka.timestamp"
"""Annotation with a producer's time, in milliseconds since the epoch."""
MAX_AHEAD_MS = 3_600_000
"""Limit: a producer's time is at most an hour after the log's, Kafka's own message.timestamp.after.max.ms.

Therefore a search for the first record of a time has to begin only an hour before the log's entries of that time.
"""
NO_TIME = -1
_DIGITS = r"^[0-9]{1,15}$"


def add_creation_times(annotations: pa.Array[Any] | None, millis: Ints) -> pa.Array[Any]:
    """Return the annotations with the time of each row first; rows without a time (NO_TIME) get none."""
    rows = np.flatnonzero(millis >= 0)
    texts = pa.array(millis[rows]).cast(pa.string())
    if annotations is None:
        annotations = pa.nulls(len(millis), ANNOTATIONS)
    assert isinstance(annotations, pa.MapArray)
    old_bounds = bounds(annotations).astype(np.int64)
    begin, total = int(old_bounds[0]), int(old_bounds[-1] - old_bounds[0])
    has_time = (millis >= 0).astype(np.int64)
    new_bounds = old_bounds - begin + np.concatenate([[0], np.cumsum(has_time)])
    is_time = np.zeros(total + len(rows), np.bool_)
    is_time[new_bounds[:-1][rows]] = True
    positions = np.empty(len(is_time), np.int64)
    positions[is_time], positions[~is_time] = total + np.arange(len(rows)), np.arange(total)
    order: Any = pa.array(positions)
    names = pa.concat_arrays([annotations.keys.slice(begin, total), pa.repeat(CREATION_TIME, len(rows))])
    values = pa.concat_arrays([annotations.items.slice(begin, total), texts])
    nulls = annotations.is_null().to_numpy(zero_copy_only=False) & (has_time == 0)
    return annotation_maps(new_bounds, names.take(order), values.take(order), nulls)


def split_creation_times(annotations: pa.Array[Any]) -> tuple[pa.Array[Any], Ints | None]:
    """Return the annotations without times, and the time of each row (NO_TIME: none); None if no row has one."""
    assert isinstance(annotations, pa.MapArray)
    if annotations.null_count == len(annotations):
        return annotations, None
    row_bounds = bounds(annotations).astype(np.int64)
    begin, total = int(row_bounds[0]), int(row_bounds[-1] - row_bounds[0])
    names, texts = annotations.keys.slice(begin, total), annotations.items.slice(begin, total)
    named = pc.equal(names, pa.scalar(CREATION_TIME))
    if not pc.any(named).as_py():
        return annotations, None
    # An annotation of this name that came through another protocol may be any text: it stays an annotation.
    digits: Any = pc.match_substring_regex(texts, _DIGITS)
    is_time: Any = pc.and_(named, digits.fill_null(False))
    mask = is_time.to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(annotations)), np.diff(row_bounds))[mask]
    millis = np.full(len(annotations), NO_TIME, np.int64)
    millis[rows] = texts.filter(is_time).cast(pa.int64()).to_numpy()
    remaining = np.concatenate([[0], np.cumsum(~mask)])[row_bounds - begin]
    rest = pc.invert(is_time)
    # Rows that only had a time are null again, as their producer sent no headers.
    return annotation_maps(remaining, names.filter(rest), texts.filter(rest), np.diff(remaining) == 0), millis


def shown_times(batch: pa.RecordBatch) -> Ints:
    """Return the time that consumers see of each row, in milliseconds: the producer's, else the log's."""
    log_times: Ints = batch.column("timestamp").view(pa.int64()).to_numpy() // 1000
    _, millis = split_creation_times(batch.column("annotations"))
    return log_times if millis is None else np.where(millis >= 0, millis, log_times)
