"""What a proof looks at: the rows of a batch's files, the uuids that landed before, the gaps of a topic.

Everything is read with pyarrow, only the columns needed; no Spark is involved.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.counts import SourceBucket
from penstock.landing.event_rules import MessageKind
from penstock.landing.journal import PARTITION_MARK, Commit
from penstock.log.store.gaps import Gap

Offsets = npt.NDArray[np.int64]

ROWS = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64()),
        pa.field("source", pa.dictionary(pa.int32(), pa.string())),
        pa.field("bucket", pa.int64()),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string())),
        pa.field("kind", pa.string()),
        pa.field("uuid", pa.string()),
    ]
)
_DICTIONARIES = ("topic", "source", "reason")
_NO_ROWS = ROWS.empty_table()
CACHE_BYTES = 64 << 20
"""Most memory for uuids that landed lately; older ones are read from their files again."""


def read_rows(table: Path, files: Iterable[str]) -> pa.Table:
    """The rows (ROWS; bucket in seconds) of files of the table. A file that is gone or damaged has no rows."""
    return pa.concat_tables([_NO_ROWS, *(_read_file(table / name, _kind(name)) for name in files)])


def _kind(name: str) -> str:
    return next((part[5:] for part in name.split("/") if part.startswith("kind=")), "")


def _read_file(path: Path, kind: str) -> pa.Table:
    columns = ["topic", "offset", "source", "bucket", "reason", *(["uuid"] if kind == MessageKind.EVENT else [])]
    try:
        with pq.ParquetFile(path, read_dictionary=list(_DICTIONARIES)) as file:
            by_partition = "partition" in file.schema_arrow.names
            rows = file.read(columns=[*columns, "partition"] if by_partition else columns)
    except (FileNotFoundError, pa.ArrowInvalid):
        return _NO_ROWS
    except OSError as error:
        if error.errno is None:  # pyarrow's word for a file that is no Parquet (any more)
            return _NO_ROWS
        raise
    count = rows.num_rows
    seconds = pc.divide(rows["bucket"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1_000_000)
    topic = _with_partition(rows) if by_partition else rows["topic"]
    values: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]]
    values = {"topic": topic, "bucket": seconds, "kind": pa.repeat(kind, count), "uuid": pa.nulls(count, pa.string())}
    values |= {name: rows[name] for name in columns if name not in ("bucket", "topic")}
    return pa.table([values[f.name] for f in ROWS], schema=ROWS)


def _with_partition(rows: pa.Table) -> pa.ChunkedArray[Any]:
    """The topic of each row, with the number of its partition where it came from Kafka."""
    numbers = rows["partition"]
    if numbers.null_count == len(numbers):
        return rows["topic"]
    plain = rows["topic"].cast(pa.string())
    named: pa.ChunkedArray[pa.StringScalar] = pc.binary_join_element_wise(  # type: ignore[call-overload]  # takes a scalar
        plain, numbers.cast(pa.string()), PARTITION_MARK
    )
    return pc.coalesce(named, plain).dictionary_encode()


def tally(rows: pa.Table) -> dict[SourceBucket, Counter[tuple[str, str]]]:
    """The rows by source and bucket, then by kind and reason."""
    plain = rows.select(["source", "bucket", "kind", "reason"])
    for name in ("source", "reason"):
        plain = plain.set_column(plain.schema.get_field_index(name), name, plain[name].cast(pa.string()))
    grouped = plain.group_by(["source", "bucket", "kind", "reason"]).aggregate([([], "count_all")])
    found: dict[SourceBucket, Counter[tuple[str, str]]] = {}
    for row in grouped.to_pylist():
        place = (row["source"] or "", row["bucket"] or 0)
        found.setdefault(place, Counter())[row["kind"], row["reason"] or ""] += row["count_all"]
    return found


def of_topic(rows: pa.Table, topic: str) -> pa.Table:
    """The rows of one topic."""
    return rows.filter(pc.equal(rows["topic"].cast(pa.string()), pa.scalar(topic)))


def split_offsets(found: Offsets, begin: int, end: int) -> tuple[Offsets, Offsets]:
    """Offsets of [begin, end) that are not among ``found``; and those found outside, or more than once."""
    inside = found[(found >= begin) & (found < end)]
    seen = np.bincount(inside - begin, minlength=end - begin) if end > begin else np.zeros(0, np.int64)
    doubled = np.flatnonzero(seen > 1) + begin
    outside = found[(found < begin) | (found >= end)]
    return np.flatnonzero(seen == 0) + begin, np.concatenate([outside, doubled])


def in_gaps(missing: Offsets, gaps: Iterable[Gap]) -> tuple[Offsets, dict[SourceBucket, Counter[str]]]:
    """The missing offsets that no gap covers, and how many are in gaps, by place and reason."""
    found: dict[SourceBucket, Counter[str]] = {}
    for gap in gaps:
        covered = missing[(missing >= gap.begin) & (missing < gap.end)]
        if len(covered):
            missing = missing[(missing < gap.begin) | (missing >= gap.end)]
            for place, count in _places(gap, covered).items():
                found.setdefault(place, Counter())[gap.reason] += count
    return missing, found


def _places(gap: Gap, covered: Offsets) -> Counter[SourceBucket]:
    """Source and bucket of offsets inside a gap.

    A gap knows how many rows of each it has, not where: they are taken to lie in order of time. So the parts of
    a gap that several batches have come to its exact counts together.
    """
    places = sorted(((bucket, source), n) for source, buckets in gap.counts.items() for bucket, n in buckets.items())
    ends = np.cumsum([n for _, n in places], dtype=np.int64) + gap.begin
    numbers = np.bincount(np.searchsorted(ends, covered, side="right"), minlength=len(places) + 1)
    known = [*((source, bucket) for (bucket, source), _ in places), ("", 0)]
    return Counter({place: int(count) for place, count in zip(known, numbers, strict=True) if count})


class LandedUuids:
    """The events that landed in the last batches: where the survivor of a duplicate must be."""

    def __init__(self, table: Path, window: float, cache_bytes: int = CACHE_BYTES) -> None:
        self._table = table
        self._window = round(window * 1000)
        self._commits: list[Commit] = []
        self._cache: OrderedDict[int, pa.Table] = OrderedDict()
        self._room = cache_bytes

    def remember(self, commit: Commit, rows: pa.Table | None = None) -> None:
        """Take in a batch, in order; ``rows`` as read from its files, where they were."""
        before = [c for c in self._commits if c.batch < commit.batch]
        horizon = before[-1].watermark - self._window if before else 0
        # Spark forgets a uuid when a batch has run whose watermark is past its landing and the window.
        self._commits = [c for c in before if c.landed_at >= horizon]
        self._commits.append(commit)
        if rows is not None:
            self._keep(commit.batch, _events(rows))

    def find(self, wanted: Mapping[str, set[str]]) -> dict[str, set[str]]:
        """Those of the uuids wanted, by topic, that landed within the window; newest batches first.

        A topic of Kafka is one topic, whatever the partition: so Spark drops duplicates.
        """
        left = {topic: set(uuids) for topic, uuids in wanted.items() if uuids}
        found: dict[str, set[str]] = {topic: set() for topic in left}
        for commit in reversed(self._commits):
            if not left:
                break
            rows = self._rows(commit)
            for topic in list(left):
                hits = _matching(rows, topic, left[topic])
                found[topic] |= hits
                left[topic] -= hits
                if not left[topic]:
                    del left[topic]
        return found

    def _rows(self, commit: Commit) -> pa.Table:
        rows = self._cache.get(commit.batch)
        if rows is None:
            events = (name for name in commit.files if _kind(name) == MessageKind.EVENT)
            rows = _events(read_rows(self._table, events))
        return rows

    def _keep(self, batch: int, rows: pa.Table) -> None:
        known = self._cache.pop(batch, None)
        self._room += (known.nbytes if known is not None else 0) - rows.nbytes
        self._cache[batch] = rows
        while self._room < 0 and self._cache:
            self._room += self._cache.popitem(last=False)[1].nbytes


def _events(rows: pa.Table) -> pa.Table:
    return rows.select(["topic", "uuid"]).filter(pc.is_valid(rows["uuid"])).combine_chunks()


def _matching(rows: pa.Table, topic: str, uuids: set[str]) -> set[str]:
    names = rows["topic"].cast(pa.string())
    mine = rows["uuid"].filter(pc.or_(pc.equal(names, pa.scalar(topic)), pc.starts_with(names, topic + PARTITION_MARK)))
    found = mine.filter(pc.is_in(mine, value_set=pa.array(list(uuids), pa.string())))
    return set(found.to_pylist())  # type: ignore[arg-type]  # what is among uuids is not null
