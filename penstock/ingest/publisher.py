"""From decoded batches to frames of the log buffer: counts ride with their data, nothing blocks for long.

When a reader lags by the whole buffer and its policy is ``drop``, the reader is moved on and the counts of
the frames it misses ride with the next frame (balance, sections 4 and 6).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.counts import BucketClock, Counts, Name, Origin, by_bucket, elsewhere, summed
from penstock.ingest.buffer import epoch_of
from penstock.ingest.files import LOG
from penstock.ingest.frames import Receipt, encode_frame, frame_receipt, published
from penstock.ingest.missed import MissedFrames
from penstock.ingest.statepage import STATISTICS, StatePage
from penstock.logbuffer.errors import AdminAction, BackPressured, Lapped
from penstock.logbuffer.position import ReaderPosition
from penstock.logbuffer.publication import Publication
from penstock.logbuffer.subscription import Subscription
from penstock.records import BadBatch

LARGEST_SKIP = 4 << 20
"""Bytes of frames that a reader is moved over at once: their counts have to be read."""
WAIT_FOR_ROOM = 0.001
"""Seconds between two looks at a reader that is using the frames in the way."""


class GaveUp(RuntimeError):
    """There was no room in the log buffer for as long as could be waited."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A handler as a reader of the log buffer; ``drop``: it may miss frames."""

    name: str
    drop: bool
    position: ReaderPosition


class Publisher:
    """The writing side of one listener's log buffer, and the receiver's running totals.

    ``before`` is the receipt of the last frame of the receiver before this one, ``published`` the round
    number and slot end of that frame. ``give_up_at``: the monotonic time after which room is no longer
    waited for (GaveUp), 0 for never.
    """

    def __init__(
        self, source: str, codec: str, publication: Publication, readers: Sequence[Reader], page: StatePage
    ) -> None:
        self._publication, self._readers = publication, readers
        publication.window = publication.parameters.term_length
        self._source, self._codec = source, codec
        frame = publication.last_frame()
        self.before = _receipt(frame.data, source) if frame else Receipt(Origin(source, 0, 0, 0))
        self.published = published(frame.reserved_value) if frame else (0, 0)
        self.incarnation = self.before.incarnation + 1
        told = page.read(STATISTICS) or {}
        self.total = self.before.total if frame else int(told.get("total", 0))  # so that a loss shows
        self.drops = (self.before.socket_id, self.before.drops)
        self.clock = BucketClock(bucket=self.before.origin.bucket)
        self.give_up_at = 0.0
        self._missed = MissedFrames(page, self.before.missed, {r.name: r.position.floor for r in readers})
        self._epoch = epoch_of(page, publication.path.stat().st_ino)
        self._raise_limit()

    @property
    def frame_limit(self) -> int:
        """Bytes of one frame's payload at most."""
        return self._publication.max_message_length

    @property
    def owes(self) -> bool:
        """Whether counts of missed frames wait for a frame to ride with."""
        return bool(self._missed)

    def publish(
        self,
        batch: pa.RecordBatch,
        counts: Counts,
        reserved: int,
        *,
        first: int = 0,
        still_open: tuple[int, int] = (0, 0),
    ) -> None:
        """Offer ``batch`` with its ``counts`` as one frame; waits while a reader uses the room it needs.

        ``first`` is the time (microseconds since the epoch) at which the round began, ``still_open`` the
        messages and fragments that wait for their rest.
        """
        bucket, last = self.clock.stamp()
        self.total += counts[Name.ACCEPTED]
        carried = {**counts, **self._missed.ride()}
        origin = Origin(self._source, bucket, first or last, last, self._codec, carried)
        receipt = Receipt(
            origin, self.incarnation, self.total, *still_open, *self.drops, self._missed.number, self._epoch
        )
        self._offer(encode_frame(batch, receipt), reserved)
        self._missed.rode()

    def _offer(self, frame: list[pa.Buffer | bytes], reserved: int) -> None:
        self._raise_limit()
        while True:
            try:
                self._publication.offer(frame, reserved_value=reserved)
                return
            except AdminAction:
                continue
            except BackPressured:
                self._make_room()

    def _raise_limit(self) -> None:
        self._publication.consumed(min(reader.position.position for reader in self._readers))

    def _make_room(self) -> None:
        """Move the slowest reader on, if it may miss frames and uses none just now; else wait a little."""
        slowest = min(self._readers, key=lambda reader: reader.position.position)
        with slowest.position.try_lock() as held:
            # One that died while it stored frames has to say first which of them it has.
            may_skip = held and slowest.drop and slowest.position.claim <= slowest.position.position
            if may_skip:
                self._skip(slowest)
        if not may_skip:
            if self.give_up_at and time.monotonic() > self.give_up_at:
                raise GaveUp("the log buffer is full and its reader does not go on")
            time.sleep(WAIT_FOR_ROOM)
        self._raise_limit()

    def _skip(self, reader: Reader) -> None:
        """Let ``reader`` miss a quarter of a term: first their counts are safe, then it is moved."""
        start = reader.position.position
        if start + self._publication.window > self._publication.position:
            return  # it has moved meanwhile
        with Subscription(self._publication.path, start) as frames:
            try:
                found = frames.poll(min(self._publication.window // 4, LARGEST_SKIP))
                end = frames.position
            except Lapped:  # it cannot be read any more, so nobody knows what it held
                found, end = [], frames.oldest() or self._publication.position
            self._missed.skip(reader.name, end, summed(_missed_counts(f.data, reader.name) for f in found))
            reader.position.floor = end
        self._missed.skipped()


def _receipt(frame: memoryview, source: str) -> Receipt:
    try:
        return frame_receipt(frame)
    except BadBatch:
        return Receipt(Origin(source, 0, 0, 0))


def _missed_counts(frame: memoryview, reader: str) -> dict[str, int]:
    """What is to be entered for a frame that ``reader`` misses, named by bucket.

    The log is the reader that enters a listener's own counts: what it misses has to say them too.
    """
    origin = _receipt(frame, "").origin
    named: dict[str, int] = {}
    for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
        kept = counts if reader == LOG else Counts()
        if bucket == origin.bucket:
            # Its own messages: those of frames missed before, which ride with it, are dropped already.
            kept[f"{Name.POLICY_DROP}{reader}"] += origin.counts.get(Name.ACCEPTED, 0)
        named.update(elsewhere(bucket, kept))
    return named
