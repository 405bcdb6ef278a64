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
from penstock.files.file_system import Bytes
from penstock.log.settings import MERGE_BYTES, MERGE_ROWS, Durability
from penstock.log.store import row_format
from penstock.log.store.batch_format import IpcMessage, document, frame
from penstock.log.store.producers import ProducerEntry, ProducerSequence, StoredAppend

Timestamps = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to an append: offsets [first, first + count), one timestamp each (int64, microseconds).

    ``durability`` is the promise that holds: ``synced`` or ``written``. ``is_repeated``: stored before, under its
    producer's number.
    """

    first: int
    count: int
    timestamps: Timestamps
    durability: Durability = "synced"
    is_repeated: bool = False


def answer_stored(stored: StoredAppend, durability: Durability) -> Appended:
    """Return the answer to an append that was stored before."""
    times = np.arange(stored.time, stored.time + stored.count, dtype=np.int64)
    return Appended(stored.first, stored.count, times, durability, is_repeated=True)


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
class _OpenGroup:
    """Appends with one ``key`` that become batch ``number`` of a commit, and their size."""

    key: tuple[object, ...]
    number: int
    appends: list[QueuedAppend] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def takes(self, append: QueuedAppend) -> bool:
        return self.rows + append.body.num_rows <= MERGE_ROWS and self.size + append.size <= MERGE_BYTES


def group_appends(appends: Iterable[QueuedAppend]) -> list[list[QueuedAppend]]:
    """Return the appends of each batch to write, in order.

    Order: frames of one log buffer, and appends of one producer, keep their order across all batches, so that a torn
    write never leaves a later one stored and an earlier one lost.
    """
    groups: list[list[QueuedAppend]] = []
    newest: dict[tuple[object, ...], _OpenGroup] = {}
    newest_of_producer: dict[str, int] = {}
    for append in appends:
        origin, producer = append.origin, append.producer
        key = (origin.shared, origin.buffer)
        slot = ("buffer", origin.buffer) if origin.buffer else key
        group = newest.get(slot)
        first = newest_of_producer.get(producer.id, 0) if producer else 0
        if group is None or group.key != key or group.number < first or not group.takes(append):
            newest[slot] = group = _OpenGroup(key, len(groups))
            groups.append(group.appends)
        if producer:
            newest_of_producer[producer.id] = group.number
        group.appends.append(append)
        group.rows += append.body.num_rows
        group.size += append.size
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
        first.hops,
        max(origin.total for origin in origins),
    )


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch as it will be stored: its appends, one timestamp per row, its message and that message's bytes."""

    appends: list[QueuedAppend]
    timestamps: Timestamps
    message: IpcMessage
    parts: tuple[Bytes, ...]
    load: Callable[[], pa.RecordBatch]
    """Returns the rows with SCHEMA, for subscribers; decoded only if one asks."""


def prepare(appends: list[QueuedAppend], base: int, time: int, position: int) -> PreparedBatch:
    """Assign offsets from ``base`` and timestamps from ``time`` on, and frame the batch for ``position``."""
    count = sum(append.body.num_rows for append in appends)
    span = time, time + count - 1
    timestamps = np.arange(time, time + count, dtype=np.int64)
    origin = join_origins([append.origin for append in appends])
    producers = _producer_entries(appends, base, time)
    described = document(origin, base, count, span, position, producers)
    load: Callable[[], pa.RecordBatch]
    if (rows := _rows_if_few(appends, count)) is not None:
        parts, crc = row_format.frame(rows, base, time, described)
        load = partial(_decode, parts)
    else:
        parts, crc = frame(batch := _build_batch(appends, base, timestamps), described)
        load = partial(_return_batch, batch)
    message = IpcMessage(position, sum(map(len, parts)), base, count, *span, crc, origin, producers)
    return PreparedBatch(appends, timestamps, message, parts, load)


def _rows_if_few(appends: list[QueuedAppend], count: int) -> records.Rows | None:
    """Return the rows of a small batch without columns; None for other batches."""
    few = 0 < count <= row_format.MAX_ROWS and sum(append.size for append in appends) <= row_format.MAX_ROW_BYTES
    return records.joined_rows([append.body for append in appends]) if few else None


def _decode(parts: tuple[Bytes, ...]) -> pa.RecordBatch:
    return records.decode(b"".join(parts))[0]


def _return_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _build_batch(appends: list[QueuedAppend], base: int, timestamps: Timestamps) -> pa.RecordBatch:
    body = records.concatenated([append.body for append in appends])
    stamps = pa.array(timestamps).view(records.SCHEMA.field("timestamp").type)
    offsets = pa.array(np.arange(base, base + body.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([offsets, stamps, *body.columns], schema=records.SCHEMA)


def _producer_entries(appends: list[QueuedAppend], base: int, time: int) -> tuple[ProducerEntry, ...]:
    entries: list[ProducerEntry] = []
    done = 0
    for append in appends:
        count = append.body.num_rows
        if append.producer is not None:
            entry = (append.producer.id, append.producer.sequence, base + done, count, time + done, append.checksum)
            entries.append(entry)
        done += count
    return tuple(entries)


def resolve(prepared: PreparedBatch, durability: Durability) -> None:
    """Answer all appends of a stored batch."""
    done = 0
    for append in prepared.appends:
        count = append.body.num_rows
        times = prepared.timestamps[done : done + count]
        append.future.set_result(Appended(prepared.message.base + done, count, times, durability))
        done += count
