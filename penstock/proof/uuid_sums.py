"""Sums of the uuids' hashes (docs/accounting.md, section 15).

Invariant: one lost and one doubled message do not cancel out in a sum. A hash is the sum of the bytes, each times a
weight of its position, mixed; it is the same on each machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name, SourceBucket
from penstock.landing.rows.engine import text_bytes
from penstock.ledger.posts import ROWS, SUM
from penstock.proof.evidence import grouped

Hashes = npt.NDArray[np.uint64]
ROWS_AT_ONCE = 8192
"""Limit: hashing needs eight bytes of memory for each byte of these rows."""
HALF = np.uint64(32)


def hashes(uuids: Sequence[str] | pa.Array[Any]) -> Hashes:
    """Return a 64-bit hash of each text (no nulls)."""
    column = uuids if isinstance(uuids, pa.Array) else pa.array(uuids, pa.string())
    parts = [_hashed(column.slice(start, ROWS_AT_ONCE)) for start in range(0, len(column), ROWS_AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hashed(column: pa.Array[Any]) -> Hashes:
    starts, data = text_bytes(column)
    ends = starts.astype(np.int64) - starts[0]
    lengths, size = np.diff(ends), len(data)
    longest = int(lengths.max(initial=0))
    weights = _mixed(np.arange(1, longest + 1, dtype=np.uint64)) | np.uint64(1)
    # Fast path: uuids have one length, so one matrix product gives the same sums as the general way below.
    if size == longest * len(column):
        return _mixed(data.reshape(len(column), longest) @ weights + weights.sum() + np.uint64(longest))
    positions = np.arange(size) - np.repeat(ends[:-1], lengths)
    # Overflow is intended: all sums are modulo 2^64.
    sums = np.zeros(size + 1, np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * weights[positions], out=sums[1:])
    return _mixed(sums[ends[1:]] - sums[ends[:-1]] + lengths.astype(np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """Apply SplitMix64's finalizer: each input bit affects each output bit."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def of_events(rows: pa.Table) -> dict[SourceBucket, Counts]:
    """Return the number of uuids and the sum of their hashes, by source, bucket and kind, of ``evidence.ROWS``."""
    events = rows.filter(pc.is_valid(rows["uuid"])) if rows["uuid"].null_count else rows
    event_hashes = np.concatenate([np.empty(0, np.uint64), *map(hashes, events["uuid"].chunks)])
    # Sums of 32-bit halves cannot overflow in Arrow. `counted` joins them modulo 2^64.
    halves = {"high": pa.array(event_hashes >> HALF), "low": pa.array(event_hashes & np.uint64(0xFFFFFFFF))}
    sums: dict[SourceBucket, Counts] = {}
    for group in grouped(events, halves, [("high", "sum"), ("low", "sum"), ("low", "count")]):
        counts = counted(
            f"{Name.LANDED}{group['kind']}", group["low_count"], (group["high_sum"] << 32) + group["low_sum"]
        )
        sums.setdefault((group["source"] or "", group["bucket"] or 0), Counts()).absorb(counts)
    return sums


def counted(fate: str, rows: int, total: int) -> Counts:
    """Return the counts of ``rows`` uuids with one fate."""
    return Counts({f"{ROWS}{fate}": rows, f"{SUM}{fate}": total % (1 << 64)})
