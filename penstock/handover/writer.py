"""Writes decoded batches as frames of the log buffer: counts travel with their data, and nothing blocks for long.

If a reader lags by the whole buffer and its policy is ``drop``, it is moved on, and the next frame carries the counts
of the frames it misses (docs/accounting.md, sections 4 and 6).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.counts import BucketClock, Counts, Name, Origin
from penstock.errors import PenstockError
from penstock.handover.buffer import (
    HandlerPosition,
    TopicByPosition,
    epoch_of,
    last_frame_metadata,
    last_total,
    was_restarted,
)
from penstock.handover.dropped_frames import Carrier, DroppedFrameCounts, Move, last_move
from penstock.handover.frames.frame import encode_frame, intact_metadata, published
from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.handover.held_frames import saved_end
from penstock.handover.missed_frames import missed_counts, poll_with_repeated
from penstock.handover.paths import LOG, held_file
from penstock.handover.positions.accounts import read_account
from penstock.handover.positions.lock_holder import end_holder
from penstock.handover.positions.lost_position import carried_floor, frames_between, restore_floor, save_frames
from penstock.handover.positions.position import UNKNOWN
from penstock.handover.sender_table import Arrivals, SenderTable
from penstock.handover.state_page import StatePage
from penstock.logbuffer.errors import AdminAction, BackPressured, Lapped
from penstock.logbuffer.mapped import Frame
from penstock.logbuffer.publication import Publication
from penstock.logbuffer.subscription import Subscription
from penstock.records import Body

MAX_SKIP_BYTES = 4 << 20
"""Limit of one move, because the counts of its frames must be read while the receiver waits."""
ROOM_POLL_S = 0.001
"""Poll interval while a reader uses the room."""
PATIENCE_S = 1.0
"""Limit for a held lock, which a reader needs for a millisecond, and for a daemon that does not move."""
FORWARDER, DAEMON = "penstock.sinks.forwarder", "penstock.server.daemon"
MAX_SAVE_DELAY_S = 30.0
"""Limit of the doubled pauses after frames could not be saved: each attempt copies and writes up to a whole buffer."""
_LOGGER = logging.getLogger(__name__)


class GaveUp(PenstockError, RuntimeError):
    """The log buffer had no room for as long as the caller could wait."""


class FrameWriter:
    """The writing side of one listener's log buffer, with the receiver's running totals. Owned by one thread.

    ``before`` is the metadata of the previous receiver's last frame, ``published`` its round number and slot end,
    ``drops`` the socket's cookie and the kernel's drop counter, which the next frame carries.
    ``on_counts`` receives the counts of each round. ``give_up_at`` is the monotonic time after which waiting for room
    ends with GaveUp; 0 waits without limit. ``on_skip`` receives a reader that misses frames, and their bounds;
    ``on_wait`` is called about every millisecond while the writer waits for room. ``senders`` is the table of the
    listener's senders, if they are counted.
    """

    def __init__(
        self,
        source: str,
        codec: str,
        publication: Publication,
        readers: Sequence[HandlerPosition],
        page: StatePage,
        on_counts: Callable[[Counts], None] = lambda counts: None,
    ) -> None:
        self._publication, self._readers, self._on_counts = publication, readers, on_counts
        publication.window = publication.parameters.term_length
        self._source, self._codec = source, codec
        frame = publication.last_frame()
        before = last_frame_metadata(publication)
        self.before = before or FrameMetadata(Origin(source, 0, 0, 0))
        self.published = _published(frame) if frame else (0, 0)
        self.incarnation = self.before.incarnation + 1
        # A total that is larger than the last frame's makes readers count the damaged frames as lost.
        self.total = last_total(before, page, readers[0].position)
        self._is_behind = before is not None and self.total > before.total
        self.drops = (self.before.socket_id, self.before.drops)
        self.clock = BucketClock(bucket=self.before.origin.bucket)
        self.give_up_at = 0.0
        self.on_skip: Callable[[str, int, int], None] = lambda reader, begin, end: None
        self.on_wait: Callable[[], None] = lambda: None
        self.senders: SenderTable | None = None
        self._locked_since = 0.0
        self._stalled_position, self._stalled_since, self._save_delay = UNKNOWN, 0.0, 0.0
        self._held_mark = UNKNOWN
        self._saved_end = saved_end(held_file(publication.path.parent, source))
        self._missed = DroppedFrameCounts(page, self.before.missed, {r.name: r.position.floor for r in readers})
        if was_restarted(page):
            self._restore_floors(page)
        # Order: the floors first. After a restart of the machine readers wait for the epoch of this boot.
        inode = publication.path.stat().st_ino
        self._epoch, self._restarted_at = epoch_of(page, inode, publication.position, self.total)
        self._topic = TopicByPosition(page).topic(publication.position)
        self._publish_newest(frame)
        self._raise_limit()

    def _restore_floors(self, page: StatePage) -> None:
        """Move readers again that a power failure has moved back: the frames that they missed are counted.

        Counts of the log are counted if a frame in the buffer carries them, or a later one will; others are stored.
        """
        for reader in self._readers:
            position, move = reader.position, last_move(page, reader.name)
            floor, mark = move.to, move.mark
            held = held_file(position.path.parent, self._source)
            if reader.name == LOG:
                owed = self._missed.owed_move
                frames = frames_between(self._publication, position.position, self._publication.position)
                floor, mark = max((owed.to, owed.mark), carried_floor(held, frames))
            else:
                # Crash: the power failure may spare the account alone. Frames that it has are not dropped as well.
                account = read_account(held.parent, self._source, reader.name)
                if not account.left and account.mark != UNKNOWN:
                    floor, mark = max((floor, mark), (account.done, account.mark))
            restore_floor(position, floor, mark)
            if reader.name == LOG and position.was_advanced and position.mark != UNKNOWN and not held.exists():
                # Order: the mark before the position, and both before the epoch, for which the daemon waits. If its
                # frames are saved, the floor mark is replaced, and the dropped messages would be corrupt as well.
                position.mark, position.position = position.reached_mark, position.floor

    @property
    def position(self) -> int:
        """The start of the next frame."""
        return self._publication.position

    @property
    def window(self) -> int:
        """The number of bytes by which a reader may lag."""
        return self._publication.window

    @property
    def frame_limit(self) -> int:
        """The limit of one frame's payload in bytes."""
        return self._publication.max_message_length

    @property
    def owes(self) -> bool:
        """Whether counts of missed frames wait for a frame, or the total must show damaged ones."""
        return bool(self._missed) or self._is_behind

    def publish(
        self,
        messages: Body,
        counts: Counts,
        reserved: int,
        *,
        first: int = 0,
        open_counts: tuple[int, int] = (0, 0),
        codec: str = "",
        arrivals: Arrivals | None = None,
    ) -> None:
        """Write ``messages`` with their ``counts`` as one frame; wait while a reader uses the room.

        ``first`` is the start of the round (microseconds since the epoch), ``open_counts`` the incomplete messages and
        fragments, ``codec`` the codec if it is not the listener's, ``arrivals`` the counts by sender.
        """
        bucket, last = self.clock.stamp()
        self.total += counts[Name.ACCEPTED]
        self._on_counts(counts)

        def encode() -> list[memoryview | bytes]:
            carried = {**counts, **self._missed.attach(*self._next_frame())}
            origin = Origin(self._source, bucket, first or last, last, codec or self._codec, carried)
            metadata = FrameMetadata(
                origin,
                self.incarnation,
                self.total,
                *open_counts,
                *self.drops,
                self._missed.number,
                self._epoch,
                published(reserved),
                self._missed.carried.to,
                self._missed.carried.mark,
                self._missed.lost_counts,
                self._missed.repeated,
            )
            return encode_frame(messages, metadata)

        if arrivals and self.senders is not None:
            self.senders.stage(arrivals, self._publication.position, last)
        try:
            self._offer(encode, reserved)
        except BaseException:
            if self.senders is not None:
                self.senders.discard()
            raise
        # Order: confirmed after the frame is in the buffer; before that the counts are still owed.
        self._missed.confirm_attached()
        self._is_behind = False

    @property
    def sender_key(self) -> int:
        """The key of the identities in the table of senders; 0 without a table."""
        return self.senders.hash_key if self.senders is not None else 0

    def count_senders(self, path: Path) -> None:
        """Count senders in the table at ``path`` from now on; not if there is no room: messages matter more."""
        frame = self._publication.last_frame()
        try:
            self.senders = SenderTable(path, frame.begin if frame else -1)
        except OSError as error:
            # A table that nobody writes would report its senders as silent forever. The ledger has its last post.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            _LOGGER.warning("listener %r: senders are not counted: %s", self._source, error)

    def _next_frame(self) -> Carrier:
        return Carrier(self._epoch, self._publication.position, self._topic)

    def _offer(self, encode: Callable[[], list[memoryview | bytes]], reserved: int) -> None:
        self._raise_limit()
        frame = encode()
        while True:
            try:
                self._publication.offer(frame, reserved_value=reserved)
                break
            # The term was rotated; the same frame fits the next term.
            except AdminAction:
                continue
            except BackPressured:
                if self._make_room():
                    frame = encode()  # with the counts that are missed now
        written = self._publication.last_frame()
        self._publish_newest(written)
        if written and self.senders is not None:
            self.senders.confirm(written.begin)
        self.release()

    def release(self) -> None:
        """Release pages, also while no frames come: see ``Publication.release``."""
        self._publication.release()

    def _publish_newest(self, frame: Frame | None) -> None:
        if frame:
            self._readers[0].position.newest, self._readers[0].position.total = frame.begin, self.total

    def _raise_limit(self) -> None:
        self._publication.consumed(min(reader.reached for reader in self._readers))

    def _make_room(self) -> bool:
        """Advance the slowest reader if it may miss frames, else wait briefly; report whether it was advanced."""
        slowest = min(self._readers, key=lambda reader: reader.reached)
        with slowest.position.try_lock() as is_locked:
            may_skip = (
                is_locked and slowest.drop and (self._knows_its_frames(slowest) or self._save_if_stalled(slowest))
            )
            if may_skip:
                self._skip(slowest)
        if is_locked:
            self._locked_since = 0.0
        elif not may_skip:
            self._end_stuck_reader(slowest)
        if not may_skip:
            if self.give_up_at and time.monotonic() > self.give_up_at:
                raise GaveUp("the log buffer is full and its reader does not advance")
            self.on_wait()
            time.sleep(ROOM_POLL_S)
        self._raise_limit()
        return may_skip

    def _end_stuck_reader(self, reader: HandlerPosition) -> None:
        """Kill a reader that is stuck while it holds its lock; its successor continues there.

        The log daemon may be busy with other work, so it is killed only if a signal has stopped it.
        """
        now = time.monotonic()
        self._locked_since = self._locked_since or now
        if now - self._locked_since > PATIENCE_S:
            self._locked_since = 0.0
            is_daemon = reader.name == LOG
            end_holder(reader.position.path, DAEMON if is_daemon else FORWARDER, only_stopped=is_daemon)

    def _save_if_stalled(self, reader: HandlerPosition) -> bool:
        """Save the uncertain frames of a log daemon that has not moved for PATIENCE_S; report whether they are saved.

        A slow daemon moves and is waited for, one group at a time.
        """
        # Not the claim: a daemon that tries the same frames again and again claims and gives back others behind them.
        now, position = time.monotonic(), reader.position.position
        if position != self._stalled_position:
            self._stalled_position, self._stalled_since, self._save_delay = position, now, PATIENCE_S
        if now - self._stalled_since <= self._save_delay:
            return False
        is_saved = self._save(reader, position, max(reader.position.claim, self._restarted_at))
        self._stalled_since = time.monotonic()
        self._save_delay = PATIENCE_S if is_saved else min(2 * self._save_delay, MAX_SAVE_DELAY_S)
        return is_saved

    def _save(self, reader: HandlerPosition, begin: int, end: int) -> bool:
        held = held_file(reader.position.path.parent, self._source)
        try:
            self._held_mark = save_frames(held, self._publication, begin, end, reader.position)
        except OSError as error:
            _LOGGER.warning("frames of the log daemon cannot be saved: %s; waiting for it", error)
            return False
        if end > reader.position.position:
            # Order: the saved frames, then the mark, then the floor, from which on the daemon reads only saved frames.
            # Not the claim decides: the daemon may give it back at any moment, and the saved frames would be dropped.
            reader.position.floor_mark = self._held_mark
            reader.position.floor = end
        return True

    def _skip(self, reader: HandlerPosition) -> None:
        """Move ``reader`` over a quarter of a term."""
        start = reader.reached
        if start + self._publication.window > self._publication.position:
            return  # the reader has moved by itself
        with Subscription(self._publication.path, start, in_order=True) as frames:
            try:
                missed_frames = poll_with_repeated(frames, min(self._publication.window // 4, MAX_SKIP_BYTES))
                end = frames.position
            except Lapped:  # overwritten already; the total shows the number of messages
                missed_frames, end = [], frames.oldest() or self._publication.position
            mark = reader.mark if self._knows_its_frames(reader) else self._held_mark
            missed = missed_counts(missed_frames, reader, mark, self._is_damaged)
            # Order: counts, then the floor mark, then the floor. A crash in between leaves counts that the floor
            # confirms.
            move = Move(start, end, missed.mark)
            self._missed.skip(reader.name, move, missed.counts, missed.lost, self._next_frame())
            reader.position.floor_mark = missed.mark
            reader.position.floor = end
        self._missed.confirm_skip()
        self.on_skip(reader.name, start, end)

    def _is_damaged(self, begin: int, end: int) -> bool:
        return not any(map(intact_metadata, frames_between(self._publication, begin, end)))

    def _knows_its_frames(self, reader: HandlerPosition) -> bool:
        """Report whether the reader's position says which frames it has handled.

        Crash: two positions of the log daemon do not say it, and only the topics know the stored frames: one of a
        daemon that died while storing frames, and one from before a power failure, which may have undone writes to its
        page, unless saved frames before it still wait. The power failure may also have undone the floor after saved
        frames; these are stored then, and not dropped.
        """
        if reader.name != LOG or reader.position.position >= max(reader.position.claim, self._restarted_at):
            return True
        held = held_file(reader.position.path.parent, self._source)
        is_behind_saved = reader.reached == reader.position.floor >= self._saved_end
        return is_behind_saved and reader.position.was_advanced and held.exists()


def _published(frame: Frame) -> tuple[int, int]:
    """Return round and slot end of a frame: from its metadata, or from its header if the checksum does not match."""
    metadata = intact_metadata(frame)
    return metadata.slots if metadata and metadata.slots else published(frame.reserved_value)
