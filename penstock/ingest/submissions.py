"""The messages of requests on their way into the log buffer, several requests' at once, and who waits for them.

A request is answered once the log has its messages. What does not fit now is refused before any of it is written: its
sender waits and comes again, and so nothing that was taken has to be dropped for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.handover.buffer import HandlerPosition
from penstock.handover.frame import reserved_value
from penstock.handover.frame_size import FRAME_OVERHEAD_BYTES
from penstock.handover.stored_waits import Fate, StoredWaits
from penstock.handover.writer import FrameWriter
from penstock.records import EMPTY_BODY, body, concatenated
from penstock.wire.requests import Received, Refused
from penstock.wire.source_annotations import CERTIFICATE_NAME, SOURCE_ADDRESS, annotate

BUSY, LATE = "busy", "late"
CALM = 3
"""Turns of the event loop without another request: then what has arrived is read, and what waits is written at once."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends a request: address, and the name of the certificate (or "")."""

    address: str
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class _Submitted:
    body: pa.RecordBatch
    counts: Counts
    codec: str
    done: asyncio.Future[Fate]


class Submissions:
    """Those of one listener. ``wake`` is called once frames are written."""

    def __init__(
        self,
        listener: ListenerConfig,
        writer: FrameWriter,
        readers: Sequence[HandlerPosition],
        wake: Callable[[], None],
    ) -> None:
        self._listener, self._writer, self._wake = listener, writer, wake
        self._waits: StoredWaits[asyncio.Future[Fate]] = StoredWaits(writer, readers)
        self._waiting: list[_Submitted] = []
        self._size = 0
        self._counts = Counts()
        self._round = writer.published[0] + 1
        self._is_watching = False

    def refused(self, reason: str) -> None:
        """Count a request that is refused as a whole."""
        self._counts[f"{Name.REQUEST}{reason}"] += 1

    async def stored(self, received: Received, codec: str, sender: Sender) -> None:
        """Returns once the log has the messages. Raises Refused where it has no room, or does not take them."""
        batch = self._annotated(received.body, sender)
        size = frame_size(batch)
        if not self._waits.has_room(self._size + size):
            raise Refused(503, BUSY, "the log does not keep up; try again")
        loop = asyncio.get_running_loop()
        submitted = _Submitted(batch, received.counts, codec, loop.create_future())
        if not self._waiting:
            loop.call_soon(self._flush_once_calm, 0, 0)
        self._waiting.append(submitted)
        self._size += size
        if (fate := await submitted.done) is not Fate.STORED:
            raise Refused(503, LATE, f"the log does not have it ({fate}); try again")

    def tick(self) -> None:
        """Counts that no messages have taken along."""
        if self._counts.pruned() or self._writer.owes:
            counts, self._counts = self._counts, Counts()
            self._publish(EMPTY_BODY, counts, "")
            self._wake()

    def _annotated(self, batch: pa.RecordBatch, sender: Sender) -> pa.RecordBatch:
        which = np.zeros(batch.num_rows, np.int64)
        if self._listener.annotate_source:
            batch = annotate(batch, SOURCE_ADDRESS, [sender.address], which)
        if sender.certificate:
            batch = annotate(batch, CERTIFICATE_NAME, [sender.certificate], which)
        return batch

    def _flush_once_calm(self, known: int, calm: int) -> None:
        """Write what waits, with the requests that have arrived and were not read yet: one frame for several."""
        waiting = len(self._waiting)
        calm = calm + 1 if waiting == known else 0
        if calm < CALM and self._size < self._writer.frame_limit // 2:
            asyncio.get_running_loop().call_soon(self._flush_once_calm, waiting, calm)
        else:
            self._flush()

    def _flush(self) -> None:
        """Write all that waits; those that have no messages need not wait any longer."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        begin = self._writer.position
        try:
            for codec in dict.fromkeys(each.codec for each in waiting):
                self._write([each for each in waiting if each.codec == codec], codec)
        except PenstockError as error:
            _LOGGER.error("requests are refused: %s", error)
            _settle([(each.done, Fate.LATE) for each in waiting])
            return
        self._wake()
        for each in waiting:
            if each.body.num_rows:
                self._waits.expect(begin, each.done)
            else:
                _settle([(each.done, Fate.STORED)])
        self._watch()

    def _write(self, submitted: list[_Submitted], codec: str) -> None:
        counts, self._counts = self._counts, Counts()
        for each in submitted:
            counts.absorb(each.counts)
        bodies = [each.body for each in submitted if each.body.num_rows]
        parts = list(in_frames(concatenated(bodies), self._writer.frame_limit - FRAME_OVERHEAD_BYTES)) if bodies else []
        for part in parts[:-1]:
            own = Counts({Name.SEEN: part.num_rows, Name.ACCEPTED: part.num_rows})
            counts.subtract(own)
            self._publish(part, own, codec)
        if parts or counts.pruned():  # what is left rides with the last part
            self._publish(parts[-1] if parts else EMPTY_BODY, counts, codec)

    def _publish(self, batch: pa.RecordBatch, counts: Counts, codec: str) -> None:
        self._writer.publish(batch, counts, reserved_value(self._round, 0), codec=codec)
        self._round += 1

    def _watch(self) -> None:
        if not self._is_watching and self._waits.pause is not None:
            self._is_watching = True
            asyncio.get_running_loop().call_later(self._waits.pause, self._look)

    def _look(self) -> None:
        self._is_watching = False
        _settle(self._waits.take_decided())
        self._watch()


def _settle(decided: list[tuple[asyncio.Future[Fate], Fate]]) -> None:
    for future, fate in decided:
        if not future.done():  # its sender may have gone
            future.set_result(fate)


def frame_size(batch: pa.RecordBatch) -> int:
    """Bytes of a frame that ``batch`` takes."""
    size: Any = pa.ipc.get_record_batch_size(batch)
    return int(size)


def in_frames(whole: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """``whole`` in parts of ``most`` bytes, by halves; a message is small against that."""
    if whole.num_rows <= 1 or frame_size(whole) <= most:
        yield whole
        return
    half = whole.num_rows // 2
    yield from in_frames(_part(whole, 0, half), most)
    yield from in_frames(_part(whole, half, whole.num_rows - half), most)


def _part(whole: pa.RecordBatch, begin: int, rows: int) -> pa.RecordBatch:
    """Some rows, and nothing else: of a column of maps that are all null, Arrow would send all of the whole's."""
    part = whole.slice(begin, rows)
    if part.column("annotations").null_count < rows:
        return part
    keys, payloads, type_urls, _ = part.columns
    return body(payloads, keys=keys, type_urls=type_urls)
