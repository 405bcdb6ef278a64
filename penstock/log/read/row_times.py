"""The times at which rows were stored, from the index of their segment where it has them.

Invariant: nothing stays open between calls, so a log that replaced another one at its path is read as it is now.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from penstock.log.errors import LogError
from penstock.log.read.topic_reader import TopicReader
from penstock.log.store import index, segment_files
from penstock.log.store.segment_files import SegmentFiles


def row_times(directory: Path, offsets: Sequence[int]) -> list[int | None]:
    """Return the times (microseconds) of rows of a topic, which are read in this order.

    A missing row has the time of a later one, or None if no row is readable.
    """
    try:
        # Fast path: a twentieth of the time of a reader, which maps the data and computes the checksum of a batch.
        firsts = segment_files.first_offsets(os.listdir(directory))
        times = [_indexed_time(directory, firsts, offset) for offset in offsets]
    except OSError:
        times = [None]
    # Order: all rows again, because the log may have been replaced since the first was read.
    return [first_time(directory, offset) for offset in offsets] if None in times else times


def first_time(directory: Path, offset: int) -> int | None:
    """Return the time of the first row from ``offset`` on; None if no row is readable."""
    try:
        return next((stored.first for stored in TopicReader(directory).read(offset, max_rows=1)), None)
    except (LogError, OSError):
        return None


def _indexed_time(directory: Path, firsts: Sequence[int], offset: int) -> int | None:
    """Return the time that the index has for the first and the last row of a batch; None for another row, or damage."""
    number = bisect_right(firsts, offset) - 1
    if number < 0:
        return None
    files = SegmentFiles(directory, firsts[number])
    descriptor = os.open(files.index, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if index.form(os.pread(descriptor, index.HEADER_SIZE, 0), files.fingerprint) is None:
            return None
        record = index.find_record(descriptor, offset)
    finally:
        os.close(descriptor)
    # Of damaged batches, which have no source, the time is a guess.
    if record is None or not any(record.source):
        return None
    return {record.base: record.first, record.base + record.rows - 1: record.last}.get(offset)
