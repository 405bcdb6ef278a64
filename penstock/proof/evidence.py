"""The material of a proof: rows of a batch's files, uuids that landed before, and gaps of a topic.

Everything is read with pyarrow, only the needed columns; no Spark is involved.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Name, SourceBucket
from penstock.files.errors import DamagedFile
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.journal import Commit
from penstock.landing.offset_runs import (
    Offsets,
    Runs,
    as_runs,
    count_below,
    difference,
    intersection,
    missing_offsets,
)
from penstock.landing.row_hashes import HASHED_COLUMNS, row_hashes
from penstock.landing.row_sums import RowSums, with_partitions
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask, TableFile, is_missing_or_damaged, open_rows
from penstock.landing.table_paths import partition_value
from penstock.log.store.gaps import Gap
from penstock.qualified_names import MARK

ROWS = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64()),
        pa.field("source", pa.dictionary(pa.int32(), pa.string())),
        pa.field("bucket", pa.int64()),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string())),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("uuid", pa.string()),
        pa.field("micros", pa.int64()),
        pa.field("hash", pa.int64()),
    ]
)
"""Columns that a proof needs; ``hash`` of the whole row is null unless it was asked for."""
_DICTIONARIES = ("topic", "source", "reason")
_FATE = ("source", "kind", "reason")
NO_ROWS = ROWS.empty_table()
LANDING_DELAY_MS = 60_000
"""Limit: a row may land this much later than the log stored it, when a pipeline starts."""
CACHE_BYTES = 64 << 20
"""Limit: memory for uuids of recent batches; uuids of older batches are read from their files."""


def read_rows(table: TablePath, files: Iterable[TableFile], *, strict: bool = False, hashed: bool = False) -> pa.Table:
    """Return the rows (ROWS; bucket in seconds) of files of the table; ``hashed``: with the hashes of whole rows.

    A missing or damaged file has no rows; if ``strict``, it raises DamagedFile.
    """
    parts = [NO_ROWS]
    for file in files:
        rows = _read_file(table, file, partition_value(file, "kind"), strict)
        parts.append(with_hashes(rows, table, file) if hashed and rows.num_rows else rows)
    return pa.concat_tables(parts)


def with_hashes(rows: pa.Table, table: TablePath, file: TableFile, mask: Mask | None = None) -> pa.Table:
    """Return the rows of a file, or of a mask of its rows, with the hashes of whole rows; null if it is damaged."""
    hashes, start = [NO_ROWS["hash"].combine_chunks()], 0
    folder = partition_value(file, "kind"), partition_value(file, "date")
    try:
        with open_rows(table, file) as opened:
            for batch in opened.batches([name for name in HASHED_COLUMNS if name in opened.columns]):
                part = batch if mask is None else batch.filter(pa.array(mask[start : start + batch.num_rows]))
                start += batch.num_rows
                hashes += [pa.array(row_hashes(part, *folder))] if part.num_rows else []
    except (pa.ArrowInvalid, OSError) as error:
        if not is_missing_or_damaged(error):
            raise
        return rows
    return rows.set_column(rows.schema.get_field_index("hash"), "hash", pa.chunked_array(hashes))


def _read_file(table: TablePath, file_name: TableFile, kind: str, strict: bool) -> pa.Table:
    columns = ["topic", "offset", "source", "bucket", "reason", *(["uuid"] if kind in WITH_UUID else [])]
    try:
        with open_rows(table, file_name, _DICTIONARIES) as file:
            rows = file.read([*columns, "partition", "timestamp"])
    except (pa.ArrowInvalid, OSError) as error:
        if not is_missing_or_damaged(error):
            raise
        if strict:
            raise DamagedFile(f"{table / file_name}: {str(error).partition(chr(10))[0]}") from None
        return NO_ROWS
    count = rows.num_rows
    seconds = pc.divide(rows["bucket"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1_000_000)
    micros = rows["timestamp"].cast(pa.int64())
    values: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]]
    values = {
        "topic": with_partitions(rows["topic"], rows["partition"]),
        "micros": micros,
        "bucket": seconds,
        "kind": pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), [kind]),
        "uuid": pa.nulls(count, pa.string()),
        "hash": pa.nulls(count, pa.int64()),
    }
    values |= {name: rows[name] for name in columns if name not in ("bucket", "topic")}
    return pa.table([values[f.name] for f in ROWS], schema=ROWS)


def row_sums(rows: pa.Table) -> RowSums:
    """Return the sums of rows by topic and slice."""
    sums = RowSums()
    for kind in map(str, pc.unique(rows["kind"].cast(pa.string())).to_pylist()):
        of_kind = rows.filter(holds(rows["kind"], partial(pc.equal, pa.scalar(kind)))).combine_chunks()
        for batch in of_kind.to_batches():
            uuids = batch["uuid"] if kind in WITH_UUID else None
            hashes = None if batch["hash"].null_count else batch["hash"].to_numpy()
            sums.add_rows(batch["topic"], batch["offset"].to_numpy(), uuids, kind, hashes)
    return sums


def tally(rows: pa.Table) -> dict[SourceBucket, Counter[tuple[str, str]]]:
    """Count rows by source and bucket, then by kind and reason."""
    counts: dict[SourceBucket, Counter[tuple[str, str]]] = {}
    for row in grouped(rows, {}, [([], "count_all")]):
        origin = (row["source"] or "", row["bucket"] or 0)
        counts.setdefault(origin, Counter())[row["kind"], row["reason"] or ""] += row["count_all"]
    return counts


def grouped(rows: pa.Table, values: Mapping[str, Any], sums: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the aggregates of rows with equal source, bucket, kind and reason; ``values``: columns to sum up."""
    coded = {name: codes(rows[name]) for name in _FATE}
    numbers = {name: column for name, (column, _) in coded.items()}
    table = pa.table({**numbers, "bucket": rows["bucket"], **values})
    for row in table.group_by(["bucket", *_FATE]).aggregate(sums).to_pylist():
        yield row | {name: texts[row[name]] for name, (_, texts) in coded.items() if row[name] is not None}


def codes(column: pa.ChunkedArray[Any]) -> tuple[pa.ChunkedArray[Any], list[str]]:
    """Return a dictionary column as numbers, which are cheaper to group by than texts, and the texts."""
    unified: Any = column.unify_dictionaries()
    texts = unified.chunk(0).dictionary.to_pylist() if unified.num_chunks else []
    return pa.chunked_array([chunk.indices for chunk in unified.chunks], pa.int32()), texts


def holds(column: pa.ChunkedArray[Any], condition: Callable[[pa.Array[Any]], Any]) -> pa.ChunkedArray[Any]:
    """Return the rows for which a condition holds, evaluated once for each text of a dictionary column."""
    chunks: list[Any] = column.chunks
    return pa.chunked_array([condition(chunk.dictionary).take(chunk.indices) for chunk in chunks], pa.bool_())


def fate(kind: str, reason: str) -> str:
    """Return the name of the count of a row."""
    if kind == MessageKind.DROPPED:
        return Name.DROPPED
    return Name.QUARANTINED + reason if kind == MessageKind.QUARANTINE else Name.LANDED + kind


def is_of_topic(rows: pa.Table, topic: str) -> pa.ChunkedArray[Any]:
    """Return a mask of the rows of one topic."""
    return holds(rows["topic"], lambda names: pc.equal(names, pa.scalar(topic)))


def of_topic(rows: pa.Table, topic: str) -> pa.Table:
    """Return the rows of one topic."""
    mask = is_of_topic(rows, topic)
    return rows if pc.all(mask, skip_nulls=False).as_py() else rows.filter(mask)


def split_offsets(offsets: Offsets, begin: int, end: int) -> tuple[Runs, Offsets]:
    """Return the offsets of [begin, end) that are absent, and those present outside the range or more than once."""
    inside_range = (offsets >= begin) & (offsets < end)
    distinct, times = np.unique(offsets[inside_range], return_counts=True)
    return missing_offsets(distinct, begin, end), np.concatenate([offsets[~inside_range], distinct[times > 1]])


def in_gaps(missing: Runs, gaps: Iterable[Gap]) -> tuple[Runs, dict[SourceBucket, Counter[str]]]:
    """Return the missing offsets outside all gaps, and the number in gaps by source, bucket and reason."""
    ordered = sorted(gaps, key=lambda gap: (gap.begin, gap.end))
    ranges = as_runs([(gap.begin, gap.end) for gap in ordered])
    covered, reached = intersection(missing, ranges), 0
    counts: dict[SourceBucket, Counter[str]] = {}
    for gap in ordered if len(covered) else ():
        # Gaps may overlap: an offset counts for the first of them only.
        begin, reached = max(gap.begin, reached), max(gap.end, reached)
        low, high = np.searchsorted(covered[:, 1], begin, "right"), np.searchsorted(covered[:, 0], gap.end)
        if low < high and begin < gap.end:
            in_gap = intersection(covered[low:high], as_runs([(begin, gap.end)]))
            for origin, number in _count_by_origin(gap, in_gap).items():
                counts.setdefault(origin, Counter())[gap.reason] += number
    return difference(missing, ranges), counts


def _count_by_origin(gap: Gap, covered: Runs) -> Counter[SourceBucket]:
    """Source and bucket of offsets inside a gap."""
    origins, begins, _ = zip(*gap.spans_by_bucket(), strict=True)
    numbers = np.diff(count_below(covered, np.array([*begins, gap.end], np.int64))).tolist()
    counts: Counter[SourceBucket] = Counter()
    for origin, number in zip(origins, numbers, strict=True):
        counts[origin] += number
    return +counts


@dataclass(slots=True)
class _Batch:
    """A batch and the newest timestamp of each of its topics; None until its rows are read."""

    commit: Commit
    newest: dict[str, int] | None = None


class LandedUuids:
    """Events that landed in recent batches: the survivors of duplicates. One thread.

    ``rows_of``: reads the rows of a batch; ``window`` in seconds.
    """

    def __init__(self, rows_of: Callable[[Commit], pa.Table], window: float, cache_bytes: int = CACHE_BYTES) -> None:
        self._rows_of = rows_of
        self._window = round(window * 1_000_000)
        self._batches: list[_Batch] = []
        self._cache: OrderedDict[int, pa.Table] = OrderedDict()
        self._room = cache_bytes

    def remember(self, commit: Commit, rows: pa.Table | None = None) -> None:
        """Add a batch, in order; ``rows`` if they were read already."""
        # A batch that is proved again, after a failure, replaces itself and the ones after it.
        self._batches = [batch for batch in self._batches if batch.commit.batch < commit.batch]
        latest = _Batch(commit)
        self._batches.append(latest)
        if rows is not None:
            self._cache_rows(latest, _events(rows))
        self._forget()

    def _forget(self) -> None:
        """Drop batches older than the window in all of their topics; of unread batches the time of landing counts."""
        latest: dict[str, int] = {}
        for batch in self._batches:
            for topic, micros in (batch.newest or {}).items():
                latest[topic] = max(latest.get(topic, micros), micros)
        landed = self._batches[-1].commit.landed_at - self._window // 1000 - LANDING_DELAY_MS
        self._batches = [
            batch
            for batch in self._batches
            if (
                any(micros >= latest[topic] - self._window for topic, micros in batch.newest.items())
                if batch.newest is not None
                else batch.commit.landed_at >= landed
            )
        ]

    def find_landed(self, wanted_uuids: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, dict[str, list[int]]]:
        """Return the timestamps of landed events by topic and uuid, for wanted uuids with their timestamps.

        The newest batches are searched first, until each wanted timestamp has an event within the window. All
        partitions of a topic of Kafka count as one topic.
        """
        remaining = {topic: dict(uuids) for topic, uuids in wanted_uuids.items() if uuids}
        landed_at: dict[str, dict[str, list[int]]] = {topic: {} for topic in remaining}
        for batch in reversed(self._batches):
            if not any(remaining.values()):
                break
            rows = self._rows(batch)
            for topic, uuids in remaining.items():
                for uuid, micros in matching(rows, topic, uuids):
                    landed_at[topic].setdefault(uuid, []).append(micros)
                    times = uuids.get(uuid, ())
                    uuids[uuid] = [time for time in times if abs(time - micros) > self._window]
                remaining[topic] = {uuid: times for uuid, times in uuids.items() if times}
        return landed_at

    def within(self, micros: int, times: Iterable[int]) -> bool:
        """Report whether one of the times is within the window of another."""
        return any(abs(micros - time) <= self._window for time in times)

    def _rows(self, batch: _Batch) -> pa.Table:
        rows = self._cache.get(batch.commit.batch)
        if rows is None:
            # Not cached: a search through old batches would evict the recent ones, which are searched first.
            rows = _events(self._rows_of(batch.commit))
            batch.newest = _newest(rows)
        return rows

    def _cache_rows(self, batch: _Batch, rows: pa.Table) -> None:
        batch.newest = _newest(rows)
        number = batch.commit.batch
        cached = self._cache.pop(number, None)
        self._room += (cached.nbytes if cached is not None else 0) - rows.nbytes
        self._cache[number] = rows
        while self._room < 0 and self._cache:
            self._room += self._cache.popitem(last=False)[1].nbytes


def _events(rows: pa.Table) -> pa.Table:
    events = rows.select(["topic", "uuid", "micros"])
    return events.filter(pc.is_valid(events["uuid"])) if events["uuid"].null_count else events


def _newest(rows: pa.Table) -> dict[str, int]:
    numbers, names = codes(rows["topic"])
    newest = pa.table({"topic": numbers, "micros": rows["micros"]}).group_by("topic").aggregate([("micros", "max")])
    return {names[row["topic"]]: row["micros_max"] for row in newest.to_pylist()}


def matching(rows: pa.Table, topic: str, uuids: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return uuid and timestamp of a topic's rows that have one of the uuids."""
    wanted_uuids = pc.is_in(rows["uuid"], value_set=pa.array(list(uuids), pa.string()))
    matches = rows.filter(pc.and_(holds(rows["topic"], partial(_names_topic, topic)), wanted_uuids))
    return [(row["uuid"], row["micros"]) for row in matches.to_pylist()]


def _names_topic(topic: str, names: pa.Array[Any]) -> Any:
    """Report for each name whether it is the topic or one of its partitions."""
    return pc.or_(pc.equal(names, pa.scalar(topic)), pc.starts_with(names, topic + MARK))
