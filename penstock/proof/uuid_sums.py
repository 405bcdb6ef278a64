"""Sums of the uuids' hashes (the balance, section 14): one lost and one doubled message do not cancel out in them.

Whole columns at a time. A hash is a sum of the bytes, each times a number of its place, mixed: the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name, SourceBucket
from penstock.landing.rows.engine import contents
from penstock.ledger.posts import ROWS, SUM
from penstock.proof.evidence import grouped

Hashes = npt.NDArray[np.uint64]
CHUNK = 8192
"""Rows hashed at once: eight bytes are needed for each of theirs."""
HALF = np.uint64(32)


def hashes(uuids: Sequence[str] | pa.Array[Any]) -> Hashes:
    """A 64-bit hash of each text; there are no nulls."""
    column = uuids if isinstance(uuids, pa.Array) else pa.array(uuids, pa.string())
    parts = [_hashed(column.slice(at, CHUNK)) for at in range(0, len(column), CHUNK)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hashed(column: pa.Array[Any]) -> Hashes:
    starts, data = contents(column)
    ends = starts.astype(np.int64) - starts[0]
    lengths, size = np.diff(ends), len(data)
    longest = int(lengths.max(initial=0))
    weights = _mixed(np.arange(1, longest + 1, dtype=np.uint64)) | np.uint64(1)
    if size == longest * len(column):  # as uuids are; the same sums
        return _mixed(data.reshape(len(column), longest) @ weights + weights.sum() + np.uint64(longest))
    places = np.arange(size) - np.repeat(ends[:-1], lengths)
    sums = np.zeros(size + 1, np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * weights[places], out=sums[1:])
    return _mixed(sums[ends[1:]] - sums[ends[:-1]] + lengths.astype(np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64's finalizer: each bit of the value decides over each of the result."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def of_events(rows: pa.Table) -> dict[SourceBucket, Counts]:
    """Of the rows (evidence.ROWS) with a uuid, by source and bucket: how many of each kind, and the sums of hashes."""
    events = rows.filter(pc.is_valid(rows["uuid"])) if rows["uuid"].null_count else rows
    found = np.concatenate([np.empty(0, np.uint64), *map(hashes, events["uuid"].chunks)])
    halves = {"high": pa.array(found >> HALF), "low": pa.array(found & np.uint64(0xFFFFFFFF))}
    sums: dict[SourceBucket, Counts] = {}
    for one in grouped(events, halves, [("high", "sum"), ("low", "sum"), ("low", "count")]):
        some = counted(f"{Name.LANDED}{one['kind']}", one["low_count"], (one["high_sum"] << 32) + one["low_sum"])
        sums.setdefault((one["source"] or "", one["bucket"] or 0), Counts()).absorb(some)
    return sums


def counted(fate: str, rows: int, total: int) -> Counts:
    """The counts of ``rows`` uuids with one fate."""
    return Counts({f"{ROWS}{fate}": rows, f"{SUM}{fate}": total % (1 << 64)})
