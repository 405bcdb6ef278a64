"""Offsets and keys of the rows that a restored file must not bring a second time.

They are the rows of other files, and of row groups of the damaged file that can be read or were restored before.
Limit: other files are read once for a file, a row group at a time, and only if the bounds in the table's log are near.
Keys are mapped from a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import KEYS_PER_STEP, HashRun
from penstock.landing.event_rules import WITH_UUID
from penstock.landing.offset_runs import NO_RUNS, Offsets, Runs, as_runs, joined
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.row_sums import with_partitions
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout, kind_and_day
from penstock.upkeep.repair.reread_rows import offsets_by_topic

ROW_KEY = ("topic", "partition", "offset")
EVENT_KEY = (*ROW_KEY, "timestamp", "uuid")
_ROUNDING = timedelta(milliseconds=1)
"""Other engines cut times in the table's log to milliseconds."""


class OtherRows:
    """The rows of ``landed`` other than the lost ones of a damaged file, under the lock of upkeep.

    ``window`` of duplicates is in microseconds. Reading raises what a further damaged file raises.
    """

    def __init__(self, layout: Layout, table: DeltaTable, damaged: TableFile, window: int) -> None:
        self._layout, self._table, self._damaged, self._window = layout, table, damaged, window
        self._bounds = table.statistics(damaged)
        self._own: list[dict[str, Runs]] = []
        self._own_keys: list[HashRun] = []
        self._landed: dict[str, Runs] | None = None
        self._keys: list[HashRun] | None = None

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows of the damaged file: ROW_KEY, or EVENT_KEY if their uuids count as landed."""
        self._own.append(runs_by_stream(rows))
        if "uuid" in rows.schema.names:
            self._own_keys += [HashRun.from_events(seen) for seen in _events([rows])]

    def offsets(self, name: str) -> Runs:
        """Return the offsets of a topic, or of a partition of Kafka."""
        if self._landed is None:
            self._landed = joined(map(runs_by_stream, self._batches("offset", ROW_KEY)))
        return as_runs(np.concatenate([part.get(name, NO_RUNS) for part in (self._landed, *self._own)]))

    def keys(self) -> list[HashRun]:
        """Return the keys of events that a lost row may repeat; deleted ones, too."""
        if self._keys is None:
            path = self._layout.keys.with_suffix(".restore")
            self._keys = []
            for seen in _events(self._batches("timestamp", EVENT_KEY)):
                HashRun.from_events(seen).write(path)
                self._keys.append(HashRun.open(path))
                # Crash: the file without a name is gone with the process; one that a kill leaves is written again.
                path.unlink()
            self._keys += DeletionRecord(self._layout).key_runs()
        return [*self._keys, *self._own_keys]

    def _batches(self, column: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield rows of other files that are near in topic and ``column``."""
        low, high, _ = self._bounds.get(column, (None, None, None))
        if column == "timestamp" and low is not None:
            low, high = _widen(low, high, timedelta(microseconds=self._window) + _ROUNDING)
        near = {} if low is None or high is None else {column: (low, high)}
        first, last, _ = self._bounds.get("topic", (None, None, None))
        for file in self._table.active_within({**near, "topic": (first, last)} if first is not None else near):
            if file != self._damaged and (column == "offset" or kind_and_day(file)[0] in WITH_UUID):
                with open_rows(self._table.folder, file) as rows:
                    yield from rows.batches(names)


def _widen(low: datetime, high: datetime, margin: timedelta) -> tuple[datetime, datetime]:
    """Return bounds with a margin on both sides. Limit: the years 1 to 9999; times of records may be at their end."""
    earliest, latest = (limit.replace(tzinfo=low.tzinfo) for limit in (datetime.min, datetime.max))
    return low - min(margin, low - earliest), high + min(margin, latest - high)


def _events(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[EventsSeen]:
    """Yield the events among rows, many at once."""
    parts, count = list[EventsSeen](), 0
    for batch in batches:
        rows: Any = batch.filter(pc.is_valid(batch["uuid"]))
        plain = rows if isinstance(rows, pa.RecordBatch) else next(iter(rows.combine_chunks().to_batches()), None)
        if plain is not None and plain.num_rows:
            parts.append(EventsSeen.from_rows(plain))
            count += len(parts[-1])
        if count >= KEYS_PER_STEP:
            yield EventsSeen.concat(parts)
            parts, count = [], 0
    if parts:
        yield EventsSeen.concat(parts)


def runs_by_stream(rows: pa.RecordBatch | pa.Table) -> dict[str, Runs]:
    """Return the offsets of rows by topic, or by partition of Kafka (``events/0``)."""
    offsets: Offsets = rows["offset"].to_numpy()
    return offsets_by_topic(*encode_streams(rows["topic"], rows["partition"]), offsets)


def encode_streams(topics: Any, partitions: Any) -> tuple[list[str], Offsets]:
    """Return the distinct topics (``events/0`` for a partition of Kafka), and the index of each row's topic."""
    names = with_partitions(topics, partitions)
    plain = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    encoded: Any = plain if pa.types.is_dictionary(plain.type) else plain.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
