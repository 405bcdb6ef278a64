"""Messages of requests on their way into the log buffer: several requests share a frame, and each sender waits.

Invariant: a request is answered once the log has its messages. If there is no room, the request is refused before
anything is written: its sender retries, so no accepted message is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.handover.buffer import HandlerPosition
from penstock.handover.frames.frame import reserved_value
from penstock.handover.frames.frame_size import FRAME_OVERHEAD_BYTES
from penstock.handover.sender_table import ACCEPTED, REFUSED, Arrivals, Ints, named_arrivals, sender_counts
from penstock.handover.stored_waits import Fate, StoredWaits
from penstock.handover.writer import FrameWriter
from penstock.records import EMPTY_BODY, FEW_ROWS, Body, Rows, body, concatenated, joined_rows
from penstock.wire.requests import Received, Refused
from penstock.wire.source_annotations import CERTIFICATE_NAME, SOURCE_ADDRESS, annotate

BUSY, LATE = "busy", "late"
INCOMPLETE = "incomplete"
"""Reason of a refusal: the request did not arrive: its client has disconnected; gRPC: or it is over max_body."""
MAX_HOLD_S = 0.003
"""Longest time that requests wait for the sync of earlier ones before they are written: a usual sync takes less."""
FULL_PATIENCE_S = 1.0
"""Time that a written request waits on a full disk: a shortage that ends by then costs no repeated request."""
FULL_RETRY_S = 5
"""Time after which a sender should retry on a full disk, which takes longer to pass than a busy log."""
FULL_TEXTS = {
    Fate.DISK_FULL: "the disk is full; retry later",
    Fate.LOG_FULL: "the log is full (log.max_bytes); retry later",
}
ROWS_OVERHEAD_BYTES = 1024
"""Upper bound for the schema and the buffer descriptions of a batch of few rows in a frame."""
Settle = Callable[[Fate], None]
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sender:
    """Address of a request's sender, and the name of its certificate (or "")."""

    address: str
    certificate: str = ""


@dataclass(slots=True)  # not frozen: construction of frozen ones takes three times as long
class _Pending:
    body: Body
    counts: Counts
    codec: str
    settle: Settle
    sender: Sender


class RequestWriter:
    """Requests of one listener. Owned by one thread. ``wake`` is called once frames are written."""

    def __init__(
        self,
        listener: ListenerConfig,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._listener, self._writer, self._wake = listener, writer, wake
        self._waits: StoredWaits[Settle] = StoredWaits(writer, readers, full_patience=FULL_PATIENCE_S)
        self._pending: list[_Pending] = []
        self._size = 0
        self._pending_since = 0.0
        self._counts = Counts()
        self._round = writer.published[0] + 1

    @property
    def pending(self) -> int:
        """The number of requests that are not written yet."""
        return len(self._pending)

    @property
    def fills_a_frame(self) -> bool:
        """Whether the pending requests should be written without waiting for more."""
        return self._size >= self._writer.frame_limit // 2

    @property
    def holds_back(self) -> bool:
        """Whether pending requests should wait for the sync of earlier ones: all of them share the next frame."""
        is_syncing = self.pause is not None and not self.fills_a_frame
        return is_syncing and time.monotonic() - self._pending_since < MAX_HOLD_S

    @property
    def pause(self) -> float | None:
        """Seconds until the next ``settle_decided``; None while no sender waits."""
        return self._waits.pause

    def count_refusal(self, reason: str) -> None:
        """Count a request that is refused as a whole."""
        self._counts[f"{Name.REQUEST}{reason}"] += 1

    def count_closed_connections(self, count: int) -> None:
        """Count connections that were closed to make room for others."""
        self._counts[f"{Name.CONNECTION_CLOSED}limit"] += count

    def add(self, received: Received, codec: str, sender: Sender, settle: Settle) -> None:
        """Add a request, which the next ``flush`` writes. ``settle`` is called once its outcome is decided.

        Raises Refused if the log lacks room.
        """
        # Order: refused before it is written, or each repeated request would be stored once there is space.
        if received.body.num_rows and (shortage := self._waits.shortage):
            raise refusal_of(shortage)
        messages = self._annotated(received.body, sender)
        size = frame_size(messages)
        # Limit: refuse before writing; the bytes that wait for the log are bounded.
        if not self._waits.has_room(self._size + size):
            raise Refused(503, BUSY, "the log lags behind; retry later")
        if not self._pending:
            self._pending_since = time.monotonic()
        self._pending.append(_Pending(messages, received.counts, codec, settle, sender))
        self._size += size

    def _annotated(self, messages: Body, sender: Sender) -> Body:
        if self._listener.annotate_source:
            messages = _with_annotation(messages, SOURCE_ADDRESS, sender.address)
        if sender.certificate:
            messages = _with_annotation(messages, CERTIFICATE_NAME, sender.certificate)
        return messages

    def flush(self) -> None:
        """Write all pending requests; requests without messages do not wait for the log."""
        pending, self._pending, self._size = self._pending, [], 0
        begin = self._writer.position
        try:
            for codec in dict.fromkeys(request.codec for request in pending):
                self._write([request for request in pending if request.codec == codec], codec)
        except PenstockError as error:
            _LOGGER.error("requests: cannot write to the log buffer: %s", error)
            for request in pending:
                request.settle(Fate.LATE)
            return
        for request in pending:
            if request.body.num_rows:
                self._waits.expect(begin, request.settle)
            else:
                request.settle(Fate.STORED)
        # Order: the log sees that senders wait before it wakes, which may suspend this process. Otherwise it would wait
        # for more frames before it reads the next one.
        self._wake()

    def settle_decided(self) -> bool:
        """Settle the requests whose outcome is known; report whether there were any."""
        decided = self._waits.take_decided()
        for settle, fate in decided:
            settle(fate)
        return bool(decided)

    def tick(self) -> None:
        """Publish counts that no messages carried."""
        if self._counts.pruned() or self._writer.owes:
            counts, self._counts = self._counts, Counts()
            self._publish(EMPTY_BODY, counts, "")
            self._wake()

    def _write(self, requests: list[_Pending], codec: str) -> None:
        counts, self._counts = self._counts, Counts()
        for request in requests:
            counts.absorb(request.counts)
        bodies = [request.body for request in requests if request.body.num_rows]
        parts = list(self._parts(bodies))
        for part in parts[:-1]:
            part_counts = Counts({Name.SEEN: part.num_rows, Name.ACCEPTED: part.num_rows})
            counts.subtract(part_counts)
            self._publish(part, part_counts, codec)
        if parts or counts.pruned():  # the remaining counts go with the last part
            self._publish(parts[-1] if parts else EMPTY_BODY, counts, codec, self._count_senders(requests))

    def _parts(self, bodies: list[Body]) -> Iterator[Body]:
        """Yield the messages in parts that fit into a frame each."""
        rows = joined_rows(bodies)
        limit = self._writer.frame_limit - FRAME_OVERHEAD_BYTES
        if rows is not None and 0 < len(rows) <= FEW_ROWS and frame_size(rows) <= limit:
            yield rows
        elif bodies:
            yield from split_into_frames(concatenated(bodies), limit)

    def _count_senders(self, requests: list[_Pending]) -> Arrivals | None:
        """Return the messages of requests by sender; they go with the last frame, before any request is answered."""
        if self._writer.senders is None:
            return None
        by_sender: dict[str, Ints] = {}
        for request in requests:
            counts = by_sender.setdefault(request.sender.address, sender_counts(1)[0])
            counts[ACCEPTED] += request.counts[Name.ACCEPTED]
            counts[REFUSED] += request.counts.total(Name.REFUSED)
        return named_arrivals(by_sender, self._writer.sender_key)

    def _publish(self, messages: Body, counts: Counts, codec: str, arrivals: Arrivals | None = None) -> None:
        self._writer.publish(messages, counts, reserved_value(self._round, 0), codec=codec, arrivals=arrivals)
        self._round += 1


def refusal_of(fate: Fate) -> Refused:
    """Return the refusal of a request whose messages the log does not have, or may not have."""
    if fate in FULL_TEXTS:
        return Refused(503, fate, FULL_TEXTS[fate], FULL_RETRY_S)
    return Refused(503, LATE, f"the log did not confirm the messages ({fate}); retry")


def _with_annotation(messages: Body, name: str, text: str) -> Body:
    if isinstance(messages, Rows):
        return messages.annotated(name, text)
    return annotate(messages, name, [text], np.zeros(messages.num_rows, np.int64))


def frame_size(messages: Body) -> int:
    """Return the bytes that ``messages`` take in a frame; of rows, an upper limit."""
    if isinstance(messages, Rows):
        # Limit: four bytes per character, offsets of each value and annotation, and the padding of all buffers.
        annotations = sum(len(pairs or ()) for *_, pairs in messages)
        return 4 * messages.size + 32 * len(messages) + 8 * annotations + ROWS_OVERHEAD_BYTES
    size: Any = pa.ipc.get_record_batch_size(messages)
    return int(size)


def split_into_frames(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Split ``batch`` by halves into parts of at most ``max_bytes``, which any one message fits into."""
    if batch.num_rows <= 1 or frame_size(batch) <= max_bytes:
        yield batch
        return
    # Halving needs no size per message, which would cost a pass over all of them.
    half = batch.num_rows // 2
    yield from split_into_frames(_copy_rows(batch, 0, half), max_bytes)
    yield from split_into_frames(_copy_rows(batch, half, batch.num_rows - half), max_bytes)


def _copy_rows(batch: pa.RecordBatch, begin: int, rows: int) -> pa.RecordBatch:
    part = batch.slice(begin, rows)
    # Workaround: Arrow writes the whole parent column for a slice of maps that are all null.
    if part.column("annotations").null_count < rows:
        return part
    keys, payloads, type_urls, _ = part.columns
    return body(payloads, keys=keys, type_urls=type_urls)
