"""Ranges of a topic that travel as one append: consecutive batches with one source, minute, codec and path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.counts import Origin
from penstock.log import StoredBatch, TopicReader
from penstock.records import BODY, concatenated

MAX_BYTES = 4 << 20
"""Limit: of the rows in one append, far below the 64 MiB that a request may have."""
MAX_BATCHES = 256
"""Limit: of the batches that are joined, so that an append is made within milliseconds."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows (BODY) of the offsets [begin, end), and their origin on this host. Gaps have no rows."""

    begin: int
    end: int
    rows: pa.RecordBatch
    origin: Origin


def next_range(reader: TopicReader, offset: int) -> Range | None:
    """Return the first entries from ``offset`` on that travel together; None at the end of the topic.

    Raises CorruptBatch for a damaged batch that is not a gap yet.
    """
    batches: list[StoredBatch] = []
    size = 0
    for stored in reader.read(offset):
        if batches and not (_continues(batches[-1], stored) and len(batches) < MAX_BATCHES):
            break
        size += stored.batch.nbytes
        if batches and size > MAX_BYTES:
            break
        batches.append(stored)
    if not batches:
        return None
    joined = _join(batches)
    rows = _fitting_rows(joined.rows)
    return Range(joined.begin, joined.begin + rows.num_rows, rows, joined.origin)


def reread_range(reader: TopicReader, begin: int, end: int) -> Range | None:
    """Return the entries of an earlier range that the topic still has; None if it has none. Raises CorruptBatch."""
    batches = list(reader.read(begin, end=end))
    return _join(batches) if batches else None


def _continues(previous: StoredBatch, stored: StoredBatch) -> bool:
    # Without a gap in between, the rows of a range are as many as its offsets.
    return stored.base == previous.end and stored.origin.shared == previous.origin.shared


def _join(batches: Sequence[StoredBatch]) -> Range:
    bodies = [pa.RecordBatch.from_arrays(stored.batch.columns[-len(BODY) :], schema=BODY) for stored in batches]
    origins = [stored.origin for stored in batches]
    first, last = min(origin.first for origin in origins), max(origin.last for origin in origins)
    origin = Origin(origins[0].source, origins[0].bucket, first, last, origins[0].codec, hops=origins[0].hops)
    return Range(batches[0].base, batches[-1].end, concatenated(bodies), origin)


def _fitting_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the first rows that fit into one append; a single row always does."""
    while rows.nbytes > MAX_BYTES and rows.num_rows > 1:
        rows = rows.slice(0, rows.num_rows // 2)
    return rows
