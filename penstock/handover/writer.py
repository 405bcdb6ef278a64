"""From decoded batches to frames of the log buffer: counts ride with their data, nothing blocks for long.

When a reader lags by the whole buffer and its policy is ``drop``, the reader is moved on and the counts of
the frames it misses ride with the next frame (balance, sections 4 and 6).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.counts import BucketClock, Counts, Name, Origin, by_bucket, elsewhere
from penstock.errors import PenstockError
from penstock.handover.accounts import CORRUPT, DROPPED
from penstock.handover.buffer import HandlerPosition, epoch_of, last_receipt, last_total, whole_receipt
from penstock.handover.dropped_frames import DroppedFrameCounts, Move
from penstock.handover.frame import encode_frame, published
from penstock.handover.held_frames import keep_frames
from penstock.handover.lock_holder import end_holder
from penstock.handover.paths import LOG, held_file
from penstock.handover.position import UNKNOWN
from penstock.handover.receipt import Receipt
from penstock.handover.state_page import StatePage
from penstock.logbuffer.errors import AdminAction, BackPressured, Lapped
from penstock.logbuffer.mapped import Frame
from penstock.logbuffer.publication import Publication
from penstock.logbuffer.subscription import Subscription

LARGEST_SKIP = 4 << 20
"""Bytes of frames that a reader is moved over at once: their counts have to be read."""
WAIT_FOR_ROOM = 0.001
"""Seconds between two looks at a reader that is using the frames in the way."""
PATIENCE = 1.0
"""Seconds for which a reader may hold its lock, which it needs for a millisecond, or the daemon not move."""
FORWARDER, DAEMON = "penstock.sinks.forwarder", "penstock.server.daemon"
_LOGGER = logging.getLogger(__name__)


class GaveUp(PenstockError, RuntimeError):
    """There was no room in the log buffer for as long as could be waited."""


class FrameWriter:
    """The writing side of one listener's log buffer, and the receiver's running totals.

    ``before`` is the receipt of the last frame of the receiver before this one, ``published`` the round
    number and slot end of that frame. ``heed`` gets the counts of each round. ``give_up_at``: the monotonic
    time after which room is no longer waited for (GaveUp), 0 for never. ``on_skip`` is told which reader misses
    frames, from where to where.
    """

    def __init__(
        self,
        source: str,
        codec: str,
        publication: Publication,
        readers: Sequence[HandlerPosition],
        page: StatePage,
        heed: Callable[[Counts], None] = lambda counts: None,
    ) -> None:
        self._publication, self._readers, self._heed = publication, readers, heed
        publication.window = publication.parameters.term_length
        self._source, self._codec = source, codec
        frame = publication.last_frame()
        before = last_receipt(publication)
        self.before = before or Receipt(Origin(source, 0, 0, 0))
        self.published = _published(frame) if frame else (0, 0)
        self.incarnation = self.before.incarnation + 1
        self.total = last_total(before, page, readers[0].position)  # so that a loss shows
        self._is_behind = before is not None and self.total > before.total
        self.drops = (self.before.socket_id, self.before.drops)
        self.clock = BucketClock(bucket=self.before.origin.bucket)
        self.give_up_at = 0.0
        self.on_skip: Callable[[str, int, int], None] = lambda reader, begin, end: None
        self._locked_since = 0.0
        self._standing, self._stands_since, self._held_mark = (0, 0), 0.0, UNKNOWN
        self._missed = DroppedFrameCounts(page, self.before.missed, {r.name: r.position.floor for r in readers})
        self._epoch = epoch_of(page, publication.path.stat().st_ino)
        self._say_newest(frame)
        self._raise_limit()

    @property
    def position(self) -> int:
        """Where the next frame begins."""
        return self._publication.position

    @property
    def window(self) -> int:
        """Bytes by which a reader may lag."""
        return self._publication.window

    @property
    def frame_limit(self) -> int:
        """Bytes of one frame's payload at most."""
        return self._publication.max_message_length

    @property
    def owes(self) -> bool:
        """Whether counts of missed frames wait for a frame to ride with, or its total is to tell of damaged ones."""
        return bool(self._missed) or self._is_behind

    def publish(
        self,
        batch: pa.RecordBatch,
        counts: Counts,
        reserved: int,
        *,
        first: int = 0,
        still_open: tuple[int, int] = (0, 0),
        codec: str = "",
    ) -> None:
        """Offer ``batch`` with its ``counts`` as one frame; waits while a reader uses the room it needs.

        ``first`` is the time (microseconds since the epoch) at which the round began, ``still_open`` the
        messages and fragments that wait for their rest, ``codec`` how they came where that is not the listener's.
        """
        bucket, last = self.clock.stamp()
        self.total += counts[Name.ACCEPTED]
        self._heed(counts)
        carried = {**counts, **self._missed.ride()}
        origin = Origin(self._source, bucket, first or last, last, codec or self._codec, carried)
        receipt = Receipt(
            origin,
            self.incarnation,
            self.total,
            *still_open,
            *self.drops,
            self._missed.number,
            self._epoch,
            published(reserved),
        )
        self._offer(encode_frame(batch, receipt), reserved)
        self._missed.rode()
        self._is_behind = False

    def _offer(self, frame: list[memoryview | bytes], reserved: int) -> None:
        self._raise_limit()
        while True:
            try:
                self._publication.offer(frame, reserved_value=reserved)
                break
            except AdminAction:
                continue
            except BackPressured:
                self._make_room()
        self._say_newest(self._publication.last_frame())
        self.release()

    def release(self) -> None:
        """Now and then while nothing comes, too: see ``Publication.release``."""
        self._publication.release()

    def _say_newest(self, frame: Frame | None) -> None:
        if frame:
            self._readers[0].position.newest, self._readers[0].position.total = frame.begin, self.total

    def _raise_limit(self) -> None:
        self._publication.consumed(min(reader.reached for reader in self._readers))

    def _make_room(self) -> None:
        """Move the slowest reader on, if it may miss frames; else wait a little."""
        slowest = min(self._readers, key=lambda reader: reader.reached)
        with slowest.position.try_lock() as held:
            may_skip = held and slowest.drop and (_answers_for_itself(slowest) or self._keeps_aside(slowest))
            if may_skip:
                self._skip(slowest)
        if held:
            self._locked_since = 0.0
        elif not may_skip:
            self._lose_patience(slowest)
        if not may_skip:
            if self.give_up_at and time.monotonic() > self.give_up_at:
                raise GaveUp("the log buffer is full and its reader does not go on")
            time.sleep(WAIT_FOR_ROOM)
        self._raise_limit()

    def _lose_patience(self, reader: HandlerPosition) -> None:
        """End a reader that has stopped in the middle of taking frames: its successor goes on there.

        The log daemon has much else to do, and is ended only where it was stopped by a signal.
        """
        now = time.monotonic()
        self._locked_since = self._locked_since or now
        if now - self._locked_since > PATIENCE:
            self._locked_since = 0.0
            is_daemon = reader.name == LOG
            end_holder(reader.position.path, DAEMON if is_daemon else FORWARDER, only_stopped=is_daemon)

    def _keeps_aside(self, reader: HandlerPosition) -> bool:
        """Whether what is in the log daemon's hands is kept for its successor, as it has not moved for PATIENCE.

        It may be slow: then it is waited for, a group at a time.
        """
        now, place = time.monotonic(), (reader.position.position, reader.position.claim)
        if place != self._standing:
            self._standing, self._stands_since = place, now
        if now - self._stands_since <= PATIENCE:
            return False
        self._stands_since = now
        return self._keep_aside(reader, *place)

    def _keep_aside(self, reader: HandlerPosition, begin: int, end: int) -> bool:
        found: list[Frame] = []
        try:
            with Subscription(self._publication.path, begin, in_order=True) as frames:
                while frames.position < end:
                    found += [frame for frame in frames.poll(end - frames.position) if frame.begin < end]
            self._held_mark = missed_counts(found, reader)[1]
            keep_frames(held_file(reader.position.path.parent, self._source), found, self._held_mark)
        except (OSError, Lapped) as error:
            _LOGGER.warning("what the log daemon has in its hands cannot be kept aside: %s; it is waited for", error)
            return False
        return True

    def _skip(self, reader: HandlerPosition) -> None:
        """Let ``reader`` miss a quarter of a term: first their counts are safe, then it is moved."""
        start = reader.reached
        if start + self._publication.window > self._publication.position:
            return  # it has moved meanwhile
        with Subscription(self._publication.path, start, in_order=True) as frames:
            try:
                found = frames.poll(min(self._publication.window // 4, LARGEST_SKIP))
                end = frames.position
            except Lapped:  # it cannot be read any more: the total says how many messages that were
                found, end = [], frames.oldest() or self._publication.position
            mark = reader.mark if _answers_for_itself(reader) else self._held_mark
            counts, behind = missed_counts(found, reader, mark)
            self._missed.skip(reader.name, Move(start, end, behind), counts)
            reader.position.floor_mark = behind
            reader.position.floor = end
        self._missed.skipped()
        self.on_skip(reader.name, start, end)


def _answers_for_itself(reader: HandlerPosition) -> bool:
    """Whether nothing is in the reader's hands, or it can tell by itself what that was.

    A log daemon that died while it stored frames does not know which of them it has.
    """
    return reader.name != LOG or reader.position.claim <= reader.position.position


def _published(frame: Frame) -> tuple[int, int]:
    """Round and slot end of a frame: under its checksum, or, where that does not fit, as its header says."""
    receipt = whole_receipt(frame)
    return receipt.slots if receipt and receipt.slots else published(frame.reserved_value)


def missed_counts(frames: Sequence[Frame], reader: HandlerPosition, before: int | None = None) -> tuple[Counts, int]:
    """What is to be entered for frames that ``reader`` misses, named by bucket, and the total behind them.

    ``before`` is the total before them where the reader has come further than it has stored.
    Messages of frames that cannot be read are in the total of the next that can, and are corrupt.
    """
    counts, mark = Counts(), reader.mark if before is None else before
    for frame in frames:
        receipt = whole_receipt(frame)
        if receipt is None:
            continue
        own = receipt.origin.counts.get(Name.ACCEPTED, 0)
        lost = max(receipt.total - own - mark, 0) if mark != UNKNOWN else 0
        mark = receipt.total
        counts.absorb(_of_log(receipt, own, lost, reader) if reader.name == LOG else _of_forwarder(receipt, own, lost))
    return counts, mark


def _of_log(receipt: Receipt, own: int, lost: int, reader: HandlerPosition) -> dict[str, int]:
    """The log is the reader that enters a listener's own counts: what it misses has to say them too."""
    named: dict[str, int] = {}
    for bucket, counts in by_bucket(receipt.origin.bucket, receipt.origin.counts).items():
        if bucket == receipt.origin.bucket:
            # Its own messages: those of frames missed before, which ride with it, are dropped already.
            counts[f"{Name.POLICY_DROP}{LOG}" if reader.routed else f"{Name.NOT_ROUTED}{LOG}"] += own
            counts.absorb({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        named.update(elsewhere(bucket, counts))
    return named


def _of_forwarder(receipt: Receipt, own: int, lost: int) -> dict[str, int]:
    return elsewhere(receipt.origin.bucket, {DROPPED: own, CORRUPT: lost})
