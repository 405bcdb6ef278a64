"""From a listener's log buffer into topics: frames in, synced batches out, then the position.

Counts go with their frame; those of a frame without messages go to the internal topic ``_receipts``. What is
stored already (a frame polled again after a crash) is skipped by the topics themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name, Origin, bucket_of
from penstock.errors import PenstockError
from penstock.handover.buffer import TopicByPosition
from penstock.handover.frame import decode_frame, frame_head, frame_receipt, is_whole
from penstock.handover.held_frames import kept_frames
from penstock.handover.paths import LOG, held_file, state_file
from penstock.handover.position import UNKNOWN, ReaderPosition
from penstock.handover.reader import GATHER, FrameGroup, FrameReader
from penstock.handover.receipt import Receipt
from penstock.handover.splitter import SplitFrame, TopicSplitter
from penstock.handover.state_page import StatePage
from penstock.log import Log, LogError
from penstock.logbuffer import Frame
from penstock.records import EMPTY_BODY, BadBatch, body

RECEIPTS = "_receipts"
NOTHING = memoryview(b"")
GROUP_BYTES = 8 << 20
"""Bytes of frames stored as one group."""
GATHER_COUNTS, MEANWHILE = 0.02, 16 << 20
"""Seconds in which frames come together of which only the counts are stored, for these nobody waits; and the bytes that
come in this time at the most.
"""
_LOGGER = logging.getLogger(__name__)


class RoutesUnknown(PenstockError, RuntimeError):
    """Nobody has said, or it is damaged what was said, which topic a listener's frames are for."""


class Drain(FrameReader):
    """Empties the log buffer of ``listener``."""

    def __init__(self, listener: str, folder: Path, log: Log, wake: int | None) -> None:
        super().__init__(folder, listener, LOG, wake, GROUP_BYTES)
        self._log = log

    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Append the frames' batches, wait until they are synced, and move on behind each that is."""
        try:
            self._store(group, position)
        except LogError:
            position.claim = position.position  # what was not stored may be missed
            raise
        position.position = group.end
        held_file(self.folder, self.listener).unlink(missing_ok=True)

    def resume(self, path: Path, position: ReaderPosition) -> None:
        """Where to look up what frames are for; what was in a predecessor's hands, which the writer went over.

        Raises RoutesUnknown while it is not known what frames are for.
        """
        self._page = StatePage(state_file(self.folder, self.listener))
        if not TopicByPosition(self._page):
            raise RoutesUnknown("its receiver has still to say which topic frames are for")
        if position.moved_on:
            self._store_held(position)

    def _store_held(self, position: ReaderPosition) -> None:
        file = held_file(self.folder, self.listener)
        kept, total = kept_frames(file)
        if frames := [frame._replace(data=self.kept(frame)) for frame in kept if frame.begin >= position.stored]:
            _LOGGER.warning("listener %r: what was in the hands of the daemon before is stored now", self.listener)
            self.handle(FrameGroup(frames, frames[0].begin, frames[-1].end, position.mark), position)
        if UNKNOWN not in (total, position.mark) and total > position.mark:
            self._enter_corrupt(total - position.mark)
            position.mark = total
        file.unlink(missing_ok=True)

    def _enter_corrupt(self, lost: int) -> None:
        _LOGGER.error("listener %r: %d messages that were kept aside cannot be read any more", self.listener, lost)
        now = time.time()
        counts = Counts({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        origin = Origin(self.listener, bucket_of(now), int(now * 1e6), int(now * 1e6), counts=counts)
        self._append_counts(origin).result()

    def kept(self, frame: Frame) -> memoryview:
        """Of messages that go elsewhere only the counts; nothing where they cannot be relied on."""
        if not self._goes_elsewhere(frame.begin):
            return frame.data
        return frame_head(frame.data) if is_whole(frame.data) else NOTHING

    def gather_time(self, group: FrameGroup, term_length: int) -> float:
        """Longer where the messages go elsewhere, and the writer does not come round meanwhile."""
        has_room = term_length > 2 * MEANWHILE
        return GATHER_COUNTS if has_room and self._goes_elsewhere(group.begin) else GATHER

    def _goes_elsewhere(self, position: int) -> bool:
        return TopicByPosition(self._page).topic(position) is None

    def _store(self, group: FrameGroup, position: ReaderPosition) -> None:
        appended: list[tuple[int, int, list[Future[Any]]]] = []
        try:
            for frame, mark, origin, parts in self._split(group, self._page):
                appended.append((frame.end, mark, self._append(parts, origin)))
        finally:
            wait([future for _, _, futures in appended for future in futures])
        for end, total, futures in appended:
            for future in futures:
                future.result()
            position.mark, position.position = total, end

    def _split(self, group: FrameGroup, page: StatePage) -> Iterator[tuple[Frame, int, Origin, _RoutedFrame]]:
        """Each frame that can be read, the total behind it, its origin, and its messages by topic."""
        read: list[tuple[Frame, int, Origin, pa.RecordBatch]] = []
        mark, routes = group.mark, TopicByPosition(page)
        for frame in group.frames:
            try:
                batch, receipt = _read(frame, routes)
            except BadBatch as error:
                _LOGGER.error("listener %r: a frame at %d cannot be read: %s", self.listener, frame.begin, error)
                continue
            origin = self._origin(frame, receipt, mark)
            mark = receipt.total
            read.append((frame, mark, origin, batch))
        splitter = TopicSplitter(self._log, page, group.begin, group.end)
        for own, part in groupby(read, lambda each: routes.topic(each[0].begin)):
            found = list(part)
            batches = [batch for *_, batch in found]
            parts = splitter.split(batches, own) if own is not None else [SplitFrame(batch) for batch in batches]
            for (frame, total, origin, _), of_frame in zip(found, parts, strict=True):
                yield frame, total, origin, _RoutedFrame(own, of_frame)

    def _origin(self, frame: Frame, receipt: Receipt, mark: int) -> Origin:
        """The batch's origin; messages of frames between the last one and this one were corrupt."""
        counts = Counts(receipt.origin.counts)
        lost = receipt.total - counts[Name.ACCEPTED] - mark if mark != UNKNOWN else 0
        if lost > 0:
            counts.absorb({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        buffer = f"{self.listener}.{receipt.epoch}"
        return replace(receipt.origin, counts=counts, buffer=buffer, begin=frame.begin, end=frame.end)

    def _append(self, parts: _RoutedFrame, origin: Origin) -> list[Future[Any]]:
        """A frame's messages to their topics; its counts once, with the handler's own topic."""
        counts = Counts(origin.counts)
        counts[Name.REQUEST_REFUSED] += parts.split.refused
        if parts.own is None:  # the messages go elsewhere
            counts[f"{Name.NOT_ROUTED}{LOG}"] += parts.split.own.num_rows
            return [self._append_counts(replace(origin, counts=counts))]
        stored = [(name, self._fitting(name, body, counts)) for name, body in parts.split.others]
        own = self._fitting(parts.own, parts.split.own, counts)
        bare = replace(origin, counts={})
        futures = [self._log.topic(name, create=True).append(body, bare) for name, body in stored if body.num_rows]
        if own.num_rows:
            futures.append(self._log.topic(parts.own, create=True).append(own, replace(origin, counts=counts)))
        else:
            futures.append(self._append_counts(replace(origin, counts=counts)))
        return futures

    def _append_counts(self, origin: Origin) -> Future[Any]:
        return self._log.topic(RECEIPTS, create=True, internal=True).append(EMPTY_BODY, origin)

    def _fitting(self, topic: str, body: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
        """Leave out messages that the topic does not take, counted as failed."""
        limit = self._log.settings(topic).message_size_limit
        if not body.num_rows or body.get_total_buffer_size() <= limit:  # more than the messages have, and quick
            return body
        sizes = pc.binary_length(body.column("payload"))  # type: ignore[call-overload]  # the stub: no Array[Any]
        kept = body.filter(pc.less_equal(sizes.fill_null(0), pa.scalar(limit)))
        counts[f"{Name.HANDLER_FAILED}{LOG}"] += body.num_rows - kept.num_rows
        return kept


def _read(frame: Frame, routes: TopicByPosition) -> tuple[pa.RecordBatch, Receipt]:
    """Messages and receipt; of messages that go elsewhere only how many there are. Raises BadBatch."""
    if routes.topic(frame.begin) is not None:
        return decode_frame(frame.data)
    receipt = frame_receipt(frame.data)
    return body(pa.nulls(receipt.origin.counts.get(Name.ACCEPTED, 0), pa.binary())), receipt


class _RoutedFrame(NamedTuple):
    """A frame's messages: ``own`` is the handler's topic, None where messages go elsewhere."""

    own: str | None
    split: SplitFrame
