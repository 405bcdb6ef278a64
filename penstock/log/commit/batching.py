"""Appends that wait together become few batches: same source, bucket, codec and buffer, in the order they came."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import records
from penstock.counts import Origin, summed
from penstock.log.settings import MERGE_BYTES, MERGE_ROWS, Durability
from penstock.log.store import row_format
from penstock.log.store.batch_format import Framed, Message, document, frame
from penstock.log.store.producers import ProducerEntry, ProducerSequence, StoredAppend

Timestamps = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an append went: offsets [first, first + count), one timestamp each (int64, microseconds).

    ``durability``: what is promised: ``synced``, or ``written``.
    """

    first: int
    count: int
    timestamps: Timestamps
    durability: Durability = "synced"


def appended(taken: StoredAppend, durability: Durability) -> Appended:
    """The answer to an append that was stored before."""
    times = np.arange(taken.time, taken.time + taken.count, dtype=np.int64)
    return Appended(taken.first, taken.count, times, durability)


@dataclass(slots=True)
class QueuedAppend:
    """An append that waits to be committed; ``size`` is its body's size in bytes.

    What waits together becomes columns together: rows are left as they came until then.
    """

    body: records.Body
    origin: Origin
    size: int
    future: Future[Appended]
    producer: ProducerSequence | None = None
    checksum: int = 0
    """Of the rows, where there is a producer."""


@dataclass(slots=True)
class BatchGroup:
    """Appends that become one batch."""

    items: list[QueuedAppend] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, item: QueuedAppend) -> None:
        self.items.append(item)
        self.rows += item.body.num_rows
        self.size += item.size

    def takes(self, item: QueuedAppend) -> bool:
        return self.rows + item.body.num_rows <= MERGE_ROWS and self.size + item.size <= MERGE_BYTES


def group_appends(items: Iterable[QueuedAppend]) -> list[BatchGroup]:
    """The batches to write, in order.

    What comes from one log buffer keeps its order over all of its groups, so that a torn write never leaves a later
    frame stored and an earlier one lost.
    """
    groups: list[BatchGroup] = []
    newest: dict[tuple[object, ...], tuple[tuple[object, ...], BatchGroup]] = {}
    for item in items:
        origin = item.origin
        key = (origin.source, origin.bucket, origin.codec, origin.buffer)
        slot = ("buffer", origin.buffer) if origin.buffer else key
        last = newest.get(slot)
        if last is None or last[0] != key or not last[1].takes(item):
            groups.append(BatchGroup())
            newest[slot] = last = (key, groups[-1])
        last[1].add(item)
    return groups


def join_origins(origins: list[Origin]) -> Origin:
    """The origin of a batch made of several: counts summed, times and positions joined."""
    first = origins[0]
    if len(origins) == 1:
        return first
    return Origin(
        first.source,
        first.bucket,
        min(origin.first for origin in origins),
        max(origin.last for origin in origins),
        first.codec,
        summed(origin.counts for origin in origins),
        first.buffer,
        min(origin.begin for origin in origins),
        max(origin.end for origin in origins),
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group as it will be stored."""

    group: BatchGroup
    origin: Origin
    base: int
    timestamps: Timestamps
    framed: Framed
    position: int
    producers: list[ProducerEntry]
    load: Callable[[], pa.RecordBatch]
    """Gives the rows as a topic has them (SCHEMA)."""

    @property
    def message(self) -> Message:
        """As it will be found in the segment."""
        first, last = int(self.timestamps[0]), int(self.timestamps[-1])
        rows, framed = len(self.timestamps), self.framed
        return Message(self.position, framed.length, self.base, rows, first, last, framed.crc, self.origin)


def prepare(group: BatchGroup, base: int, time: int, position: int) -> Prepared:
    """Give a group its offsets from ``base`` and timestamps from ``time`` on, and frame it for ``position``."""
    times = np.arange(time, time + group.rows, dtype=np.int64)
    origin = join_origins([item.origin for item in group.items])
    producers = _producers(group, base, time)
    described = document(origin, base, group.rows, (time, time + group.rows - 1), position, producers)
    if (rows := _few(group)) is not None:
        framed = row_format.frame(rows, base, time, described)
        load = partial(_loaded, framed)
    else:
        framed = frame(batch := _batch(group, base, times), described)
        load = partial(_same, batch)
    return Prepared(group, origin, base, times, framed, position, producers, load)


def _few(group: BatchGroup) -> records.Rows | None:
    """The rows of a group that has few and no columns of them."""
    bodies = [item.body for item in group.items]
    few = 0 < group.rows <= row_format.FEW and group.size <= row_format.MOST
    if not few or not all(isinstance(body, records.Rows) for body in bodies):
        return None
    return records.Rows(chain.from_iterable(bodies))  # type: ignore[arg-type]  # looked at above


def _loaded(framed: Framed) -> pa.RecordBatch:
    return records.decode(b"".join(framed.parts))[0]


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _batch(group: BatchGroup, base: int, times: Timestamps) -> pa.RecordBatch:
    body = records.concatenated([item.body for item in group.items])
    stamps = pa.array(times).view(records.SCHEMA.field("timestamp").type)
    offsets = pa.array(np.arange(base, base + body.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([offsets, stamps, *body.columns], schema=records.SCHEMA)


def _producers(group: BatchGroup, base: int, time: int) -> list[ProducerEntry]:
    entries: list[ProducerEntry] = []
    done = 0
    for item in group.items:
        count = item.body.num_rows
        if item.producer is not None:
            entry = (item.producer.id, item.producer.sequence, base + done, count, time + done, item.checksum)
            entries.append(entry)
        done += count
    return entries


def resolve(prepared: Prepared, durability: Durability) -> None:
    """Answer all appends of a stored batch."""
    done = 0
    for item in prepared.group.items:
        count = item.body.num_rows
        times = prepared.timestamps[done : done + count]
        item.future.set_result(Appended(prepared.base + done, count, times, durability))
        done += count
