"""Ranges of a topic that travel as one append: consecutive batches with one source, minute, codec and path.

Ranges that follow each other travel together, each as an append of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.counts import Origin
from penstock.log import StoredBatch, TopicReader
from penstock.records import BODY, concatenated

MAX_BYTES = 4 << 20
"""Limit: of the rows that travel together, far below the 64 MiB that a request may have."""
MIN_BYTES = 64 << 10
"""The same on a slow link, where as many bytes travel together as it carried in ``ROUND_S``."""
ROUND_S = 5.0
"""Seconds that a round trip over a slow link takes, so that counts are posted and other topics have their turn."""
MAX_BATCHES = 256
"""Limit: of the batches that travel together, so that their appends are made within milliseconds."""
MAX_RANGES = 64
"""Limit: of the ranges that travel together: of many producers the other side remembers so many answers each."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows (BODY) of the offsets [begin, end), and their origin on this host. Gaps have no rows.

    ``stored_us``: when the last row was stored; 0 if that is not known without another read.
    """

    begin: int
    end: int
    rows: pa.RecordBatch
    origin: Origin
    stored_us: int


def bytes_for_link(sent: int, seconds: float) -> int:
    """Return how many bytes may travel together over a link that carried ``sent`` bytes in a time."""
    return int(min(max(sent / max(seconds, 1e-6) * ROUND_S, MIN_BYTES), MAX_BYTES))


def next_ranges(reader: TopicReader, offset: int, limit: int = MAX_RANGES, max_bytes: int = MAX_BYTES) -> list[Range]:
    """Return the first ranges from ``offset`` on that travel together, at most ``limit``; none at the topic's end.

    ``max_bytes``: of their rows; a single row may have more. Raises CorruptBatch for a damaged batch that is not a gap
    yet.
    """
    ranges: list[list[StoredBatch]] = []
    size = 0
    for count, stored in enumerate(reader.read(offset)):
        size += stored.batch.nbytes
        last = ranges[-1][-1] if ranges else None
        # Without a gap in between, the rows of a range are as many as its offsets.
        if last is not None and (stored.base != last.end or size > max_bytes or count == MAX_BATCHES):
            break
        if last is None or stored.origin.shared != last.origin.shared:
            if len(ranges) == limit:
                break
            ranges.append([])
        ranges[-1].append(stored)
    joined = [_join(batches) for batches in ranges]
    return [_fitting(joined[0], max_bytes)] if len(joined) == 1 else joined


def reread_range(reader: TopicReader, begin: int, end: int) -> Range | None:
    """Return the entries of an earlier range that the topic still has; None if it has none. Raises CorruptBatch."""
    batches = list(reader.read(begin, end=end))
    return _join(batches) if batches else None


def _join(batches: Sequence[StoredBatch]) -> Range:
    bodies = [pa.RecordBatch.from_arrays(stored.batch.columns[-len(BODY) :], schema=BODY) for stored in batches]
    origins = [stored.origin for stored in batches]
    first, last = min(origin.first for origin in origins), max(origin.last for origin in origins)
    origin = Origin(origins[0].source, origins[0].bucket, first, last, origins[0].codec, hops=origins[0].hops)
    return Range(batches[0].base, batches[-1].end, concatenated(bodies), origin, batches[-1].last)


def _fitting(joined: Range, max_bytes: int) -> Range:
    """Return the first rows of a range that fit into one append; a single row always does."""
    rows = joined.rows
    while rows.nbytes > max_bytes and rows.num_rows > 1:
        rows = rows.slice(0, rows.num_rows // 2)
    if rows is joined.rows:
        return joined
    return replace(joined, end=joined.begin + rows.num_rows, rows=rows, stored_us=0)
