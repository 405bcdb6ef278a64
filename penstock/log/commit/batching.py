"""Grouping of waiting appends into few batches, in the order of their arrival.

A batch has one source, bucket, codec and log buffer, because its origin describes all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

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
    """The answer to an append: offsets [first, first + count), one timestamp each (int64, microseconds).

    ``durability`` is the promise that holds: ``synced`` or ``written``.
    """

    first: int
    count: int
    timestamps: Timestamps
    durability: Durability = "synced"


def answer_stored(stored: StoredAppend, durability: Durability) -> Appended:
    """Return the answer to an append that was stored before."""
    times = np.arange(stored.time, stored.time + stored.count, dtype=np.int64)
    return Appended(stored.first, stored.count, times, durability)


@dataclass(slots=True)
class QueuedAppend:
    """An append that waits for its commit; ``size`` is the size of its body in bytes.

    Rows stay rows until the commit, because one conversion to columns per batch is cheaper than one per append.
    """

    body: records.Body
    origin: Origin
    size: int
    future: Future[Appended]
    producer: ProducerSequence | None = None
    checksum: int = 0
    """CRC32C of the rows; 0 without a producer."""


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


def group_appends(appends: Iterable[QueuedAppend]) -> list[BatchGroup]:
    """Return the batches to write, in order.

    Order: frames of one log buffer keep their order across all batches, so that a torn write never leaves a later
    frame stored and an earlier one lost.
    """
    groups: list[BatchGroup] = []
    newest: dict[tuple[object, ...], tuple[tuple[object, ...], BatchGroup]] = {}
    for append in appends:
        origin = append.origin
        key = (origin.source, origin.bucket, origin.codec, origin.buffer)
        slot = ("buffer", origin.buffer) if origin.buffer else key
        last = newest.get(slot)
        if last is None or last[0] != key or not last[1].takes(append):
            groups.append(BatchGroup())
            newest[slot] = last = (key, groups[-1])
        last[1].add(append)
    return groups


def join_origins(origins: list[Origin]) -> Origin:
    """Return the origin of a batch made of several: counts summed, times and positions joined."""
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
    """A group as it will be stored: offsets, timestamps, and the framed message for ``position``."""

    group: BatchGroup
    origin: Origin
    base: int
    timestamps: Timestamps
    framed: Framed
    position: int
    producers: list[ProducerEntry]
    load: Callable[[], pa.RecordBatch]
    """Returns the rows with SCHEMA, for subscribers; decoded only if one asks."""

    @property
    def message(self) -> Message:
        """Return the message as a reader will parse it."""
        first, last = int(self.timestamps[0]), int(self.timestamps[-1])
        rows, framed = len(self.timestamps), self.framed
        return Message(self.position, framed.length, self.base, rows, first, last, framed.crc, self.origin)


def prepare(group: BatchGroup, base: int, time: int, position: int) -> Prepared:
    """Assign offsets from ``base`` and timestamps from ``time`` on, and frame the group for ``position``."""
    times = np.arange(time, time + group.rows, dtype=np.int64)
    origin = join_origins([item.origin for item in group.items])
    producers = _producer_entries(group, base, time)
    described = document(origin, base, group.rows, (time, time + group.rows - 1), position, producers)
    if (rows := _rows_if_few(group)) is not None:
        framed = row_format.frame(rows, base, time, described)
        load = partial(_decode_frame, framed)
    else:
        framed = frame(batch := _build_batch(group, base, times), described)
        load = partial(_return_batch, batch)
    return Prepared(group, origin, base, times, framed, position, producers, load)


def _rows_if_few(group: BatchGroup) -> records.Rows | None:
    """Return the rows of a small group without columns; None for other groups."""
    few = 0 < group.rows <= row_format.MAX_ROWS and group.size <= row_format.MAX_ROW_BYTES
    return records.joined_rows([item.body for item in group.items]) if few else None


def _decode_frame(framed: Framed) -> pa.RecordBatch:
    return records.decode(b"".join(framed.parts))[0]


def _return_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _build_batch(group: BatchGroup, base: int, times: Timestamps) -> pa.RecordBatch:
    body = records.concatenated([item.body for item in group.items])
    stamps = pa.array(times).view(records.SCHEMA.field("timestamp").type)
    offsets = pa.array(np.arange(base, base + body.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([offsets, stamps, *body.columns], schema=records.SCHEMA)


def _producer_entries(group: BatchGroup, base: int, time: int) -> list[ProducerEntry]:
    entries: list[ProducerEntry] = []
    done = 0
    for append in group.items:
        count = append.body.num_rows
        if append.producer is not None:
            entry = (append.producer.id, append.producer.sequence, base + done, count, time + done, append.checksum)
            entries.append(entry)
        done += count
    return entries


def resolve(prepared: Prepared, durability: Durability) -> None:
    """Answer all appends of a stored batch."""
    done = 0
    for append in prepared.group.items:
        count = append.body.num_rows
        times = prepared.timestamps[done : done + count]
        append.future.set_result(Appended(prepared.base + done, count, times, durability))
        done += count
