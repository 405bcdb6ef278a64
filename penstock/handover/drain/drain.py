"""Moves a listener's messages from its log buffer to topics: frames in, synced batches out, then the position.

Counts go with their frame; counts of a frame without messages go to the internal topic ``_receipts``. After a crash
frames are polled again; the topics skip the stored ones.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import SERIES_END, Counts, Name, Origin, bucket_of, series_of, summed
from penstock.errors import PenstockError
from penstock.files.disk_space import is_disk_full
from penstock.files.file_system import OS
from penstock.handover.buffer import TopicByPosition, was_restarted
from penstock.handover.drain.splitter import MessagesByTopic, TopicSplitter
from penstock.handover.dropped_frames import LostCounts
from penstock.handover.frames.frame import (
    decode_small_frame,
    frame_head,
    intact_metadata,
    is_intact,
    read_frame_metadata,
)
from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.handover.held_frames import PassedFrames, read_held_frames, remove_held_frames
from penstock.handover.paths import LOG, buffer_file, held_file, state_file
from penstock.handover.positions.lost_position import carried_floor, frames_in_file, restore_floor
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.handover.reader import GATHER_S, FrameGroup, FrameReader
from penstock.handover.state_page import EPOCH, TOPIC_BY_POSITION, StatePage
from penstock.log import Log, LogError, LogFull, OutcomeInDoubt, Topic
from penstock.log.commit.committer_threads import Work
from penstock.log.topic import NO_START
from penstock.logbuffer import Frame, LogBufferError
from penstock.records import EMPTY_BODY, BadBatch, Body, Rows, body

RECEIPTS = "_receipts"
NOT_ROUTED = f"{Name.NOT_ROUTED}{LOG}"
SAVED = f"{SERIES_END}saved"
"""End of the name under which the receipts have unreadable saved messages."""
EMPTY = memoryview(b"")
GROUP_BYTES = 8 << 20
"""Limit of the frames stored as one group, and so of one commit."""
SMALL_GROUP_BYTES = 256 << 10
GATHER_COUNTS_S, GATHERED_COUNTS_BYTES = 0.02, 16 << 20
"""Interval of groups of which only counts are stored (no sender waits for them), and the most bytes in that time."""
StoredPosition = Callable[[str, str], int]
"""Returns the position up to which a topic has stored the frames of a log buffer, named as in ``Origin.buffer``."""
_LOGGER = logging.getLogger(__name__)


class RoutesUnknown(PenstockError, RuntimeError):
    """The topics of a listener's frames are not known, because they were never written or are damaged."""


class Drain(FrameReader):
    """The log daemon's reader of ``listener``."""

    def __init__(self, listener: str, folder: Path, log: Log, wake: int | None) -> None:
        super().__init__(folder, listener, LOG, wake, GROUP_BYTES)
        self._log = log
        self._held_file = held_file(folder, listener)
        self._routes_version = b""
        self._routes: TopicByPosition | None = None
        self._uncertain_end = 0
        self._has_resumed = False

    def before_claim(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Note frames that were claimed and not passed: a predecessor, or another topic, may have stored them."""
        self._uncertain_end = position.claim
        if position.was_advanced:
            # Order: the mark before the position. If the writer saves these frames, the next drain continues at the
            # stored mark: the messages that were dropped before them are counted, and not corrupt as well.
            position.mark, position.position = group.mark, group.begin

    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Append the frames' batches, wait for the sync, and advance past each that is stored."""
        try:
            self._store(group, position)
        except LogError as error:
            shortage = "disk" if is_disk_full(error) else "log"
            position.shortage = shortage if isinstance(error, LogFull) else ""
            if isinstance(error, LogFull):
                self._log.note_refusal(self.listener)
            # Frames that were not stored go back to the writer: it may drop and count them. Those before the uncertain
            # end may be stored in part; the writer saves them.
            position.claim = max(position.position, self._uncertain_end)
            raise
        # Order: all appends are synced before the position moves; a crash before this line stores nothing twice.
        position.position = group.end
        position.shortage = ""
        # The saved frames are stored by now; the file would only be read again.
        if self._held_file.exists():
            # Lock: the writer saves frames and moves the floor behind them under it. After a restart of the machine
            # these may be frames behind this group.
            with position.lock():
                if not position.was_advanced:
                    remove_held_frames(self._held_file)

    def resume(self, path: Path, position: ReaderPosition) -> None:
        """Store the saved frames of a stopped predecessor. Raises RoutesUnknown while the topics are unknown."""
        self._page = StatePage(state_file(self.folder, self.listener))
        self._position = position
        if not self._has_resumed:
            # A predecessor may have died on a full disk. Later looks follow a refusal: what they try decides.
            position.shortage, self._has_resumed = "", True
        if not TopicByPosition(self._page):
            raise RoutesUnknown("the receiver has not yet written the topic of its frames")
        if self._leaving and was_restarted(self._page):
            # Crash: the listener is removed, so that no writer restores a floor that a power failure took. Counts that
            # no frame carries are never entered, and their frames are stored instead.
            restore_floor(position, *carried_floor(self._held_file, frames_in_file(path, position.position)))
        if self.must_resume(position):
            self._store_held(position)
        if position.floor:
            # Crash: a predecessor may have died between the removal of the file and its sync.
            OS.sync_directory(self.folder)

    def idle(self) -> None:
        """Forget a shortage: the writer has dropped the frames that could not be stored."""
        # Order: receivers write no request during a shortage, so without this an empty buffer would keep it forever.
        self._position.shortage = ""

    def must_resume(self, position: ReaderPosition) -> bool:
        """Report whether the writer has saved frames of a predecessor and passed them since ``resume``.

        Otherwise the next group would begin behind them, and its end would remove their file.
        """
        return position.was_advanced and self._held_file.exists()

    def _store_held(self, position: ReaderPosition) -> None:
        inode = self._held_file.stat().st_ino
        saved, number = read_held_frames(self._held_file)
        passed, total, epoch = 0, UNKNOWN, self._epoch_at(position.stored)
        _LOGGER.warning("listener %r: storing the saved frames of the previous daemon", self.listener)
        # Crash: each group moves the position past itself, so that a successor continues with the next.
        for group in _grouped(saved, self._group_bytes):
            if isinstance(group, PassedFrames):
                passed += group.messages
                # Between saved frames the total is behind by the damaged ones, which the next one shows. Crash: the
                # position's mark may have these passed frames already, so the total of the file comes first.
                before = position.mark if total == UNKNOWN else total
                if group.is_first:
                    total = group.after
                elif before != UNKNOWN:
                    total = min(before + group.messages, group.after)
                if group.begin > position.stored and position.mark != UNKNOWN:
                    # Order: the mark before the position.
                    position.mark, position.position = max(position.mark, total), group.begin
                continue
            if newest := next((metadata for f in reversed(group) if (metadata := intact_metadata(f))), None):
                total, epoch = newest.total, newest.epoch
            parts = [frame._replace(data=self.copied_part(frame)) for frame in group if frame.begin >= position.stored]
            if parts:
                self.handle(FrameGroup(parts, parts[0].begin, parts[-1].end, position.mark), position)
        if UNKNOWN not in (number, position.mark):
            self._enter_corrupt(position, number + passed, epoch)
        # Lock: the writer replaces the file under it, by one with further frames.
        with position.lock():
            if self._held_file.exists() and self._held_file.stat().st_ino == inode:
                remove_held_frames(self._held_file)
                if position.was_advanced:
                    # Order: the mark before the position. If the writer saves frames behind the floor, the messages
                    # that it dropped before them are counted, and not corrupt as well.
                    position.mark, position.position = position.reached_mark, position.floor

    def _enter_corrupt(self, position: ReaderPosition, total: int, epoch: str) -> None:
        """Enter unreadable saved messages of ``epoch``; ``total`` is that of messages after the saved frames."""
        # Crash: a predecessor may have entered them and died before the mark. They are stored like a frame of a log
        # buffer of their own, whose positions are totals, so the receipts know up to where. Each epoch has its own: a
        # total that goes back reaches the same numbers again.
        buffer, start = f"{self.listener}.{epoch}{SAVED}", self._start_total(epoch)
        entered = [topic.stored_total(buffer, sys.maxsize, start, SAVED) for topic in self._recovered({RECEIPTS})]
        position.mark = max([position.mark, *(min(stored, total) for stored in entered)])
        if total <= position.mark:
            return
        lost = total - position.mark
        _LOGGER.error("listener %r: %d saved messages are unreadable", self.listener, lost)
        now = time.time()
        counts = Counts({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        times = bucket_of(now), int(now * 1e6), int(now * 1e6)
        origin = Origin(
            self.listener, *times, counts=counts, buffer=buffer, begin=position.mark, end=total, total=total
        )
        stored = self._append_counts(origin)
        self._log.committers.wait([stored])
        stored.result()
        position.mark = total

    def _epoch_at(self, position: int) -> str:
        """Return the epoch of frames at ``position``; only the series if it is an earlier one."""
        epoch = self._page.read(EPOCH) or {"epoch": ""}
        return str(epoch["epoch"]) if position >= epoch.get("begin", 0) else series_of(str(epoch["epoch"]))

    def _start_total(self, epoch: str) -> int:
        """Return the total at which ``epoch`` began; NO_START for an earlier one."""
        current = self._page.read(EPOCH) or {}
        return int(current.get("total", NO_START)) if current.get("epoch") == epoch else NO_START

    def copied_part(self, frame: Frame) -> memoryview:
        """Return only the counts of a frame whose messages go elsewhere, or nothing if they are damaged."""
        if not self._goes_elsewhere(frame.begin):
            return frame.data
        return frame_head(frame.data) if is_intact(frame.data) else EMPTY

    def gather_time(self, group: FrameGroup, term_length: int) -> float:
        """Return a longer time for frames without messages, if the writer cannot wrap around in it."""
        has_room = term_length > 2 * GATHERED_COUNTS_BYTES
        return GATHER_COUNTS_S if has_room and self._goes_elsewhere(group.begin) else GATHER_S

    def _goes_elsewhere(self, position: int) -> bool:
        return self._topics_by_position().topic(position) is None

    def _topics_by_position(self) -> TopicByPosition:
        """Return the topics of frames. Fast path: parsed again only if the receiver has changed them."""
        version = self._page.version(TOPIC_BY_POSITION)
        if self._routes is None or version != self._routes_version:
            self._routes, self._routes_version = TopicByPosition(self._page), version
        return self._routes

    def _store(self, group: FrameGroup, position: ReaderPosition) -> None:
        appended: list[tuple[int, int, list[Future[Any]]]] = []
        unconfirmed: list[Future[Any]] = []
        have_messages = True
        refusal: LogError | None = None
        committers = self._log.committers
        try:
            is_small = group.end - group.begin <= SMALL_GROUP_BYTES
            # Fast path: this thread commits the first topic itself. Waking a committer costs as much as a small commit;
            # a large one runs in parallel with the decoding of further frames.
            with contextlib.ExitStack() as stack:
                commits = stack.enter_context(committers.scheduling_locally()) if is_small else []
                for frame, metadata, origin, topic, messages in self._split(group, self._page):
                    has_messages = any(part.num_rows for part in messages.values())
                    if unconfirmed and (metadata.floor or has_messages != have_messages):
                        # Order: counts alone are stored in another topic than messages, and one may have room where the
                        # other has none. Then frames before go back to the writer, with one that is counted already.
                        if not self._are_stored(unconfirmed, commits):
                            break
                        unconfirmed = []
                    futures = self._append(topic, messages, origin, commits)
                    appended.append((frame.end, metadata.total, futures))
                    # Order: a frame with counts of dropped ones is stored before any later one. Once it is lost, any
                    # later position of its topic or of the receipts therefore shows that its counts are entered.
                    if metadata.floor and not self._are_stored(futures, commits):
                        break
                    if not metadata.floor:
                        unconfirmed += futures
                        have_messages = has_messages
                self._run(commits)
        except LogError as error:
            refusal = error
        finally:
            # Waits for all, also after an error: a future that completes later would advance a position that was given
            # back.
            self._wait_for([future for _, _, futures in appended for future in futures], [])
            # A frame may be stored behind a refused one, as in another requested topic, or by a crash after a failed
            # append. Dropped, it would count twice.
            kept_ends = [end for end, _, futures in appended if any(map(_may_be_stored, futures))]
            self._uncertain_end = max([self._uncertain_end, *kept_ends])
        for end, total, futures in appended:
            for future in futures:
                future.result()
            position.mark, position.position = total, end
        if refusal is not None:
            raise refusal

    def _run(self, commits: list[Work]) -> None:
        while commits:
            commit = commits.pop()
            if commit():
                self._log.committers.hand_over(commit)

    def _wait_for(self, futures: list[Future[Any]], commits: list[Work]) -> None:
        """Run ``commits`` on this thread, and wait until all appends are decided."""
        self._run(commits)
        if pending := [future for future in futures if not future.done()]:
            self._log.committers.wait(pending)

    def _are_stored(self, futures: list[Future[Any]], commits: list[Work]) -> bool:
        self._wait_for(futures, commits)
        return not any(future.exception() for future in futures)

    def _split(
        self, group: FrameGroup, page: StatePage
    ) -> Iterator[tuple[Frame, FrameMetadata, Origin, str | None, MessagesByTopic]]:
        """Yield each readable frame with its metadata, its origin, its own topic, and its messages by topic.

        Messages without a topic go to another handler: they are only counted.
        """
        read: list[tuple[Frame, FrameMetadata, Origin, Body]] = []
        mark, routes = group.mark, self._topics_by_position()
        for frame in group.frames:
            try:
                batch, metadata = _read(frame, routes)
            except BadBatch as error:
                _LOGGER.error("listener %r: a frame at %d cannot be read: %s", self.listener, frame.begin, error)
                continue
            origin = self._origin(frame, metadata, mark)
            mark = metadata.total
            read.append((frame, metadata, origin, batch))
        splitter = TopicSplitter(self._log, page, group.begin, group.end)
        for topic, part in groupby(read, lambda each: routes.topic(each[0].begin)):
            entries = list(part)
            if topic is None:
                for frame, metadata, origin, batch in entries:
                    origin = self._without_entered(_with_count(origin, NOT_ROUTED, batch.num_rows), metadata)
                    yield frame, metadata, origin, None, {}
                continue
            split_frames = splitter.split([batch for *_, batch in entries], topic)
            for (frame, metadata, origin, _), (messages, refused) in zip(entries, split_frames, strict=True):
                origin = self._without_entered(_with_count(origin, Name.REQUEST_REFUSED, refused), metadata)
                yield frame, metadata, origin, topic, messages

    def _origin(self, frame: Frame, metadata: FrameMetadata, mark: int) -> Origin:
        """Return the batch's origin; the messages of damaged frames before this one are counted as corrupt."""
        counts, buffer = Counts(metadata.origin.counts), f"{self.listener}.{metadata.epoch}"
        lost = metadata.total - counts[Name.ACCEPTED] - mark if mark != UNKNOWN else 0
        if lost > 0:
            # Crash: a power failure may take stored frames from the log buffer, and spare the total.
            lost -= max(self._stored_total(buffer, frame.begin, self._start_total(metadata.epoch)) - mark, 0)
        if lost > 0:
            counts.absorb({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        return replace(
            metadata.origin, counts=counts, buffer=buffer, begin=frame.begin, end=frame.end, total=metadata.total
        )

    def _stored_total(self, buffer: str, begin: int, start: int) -> int:
        """Return the total of messages before a frame up to which the log has entered their counts."""
        topics = self._recovered({RECEIPTS, *self._topics_by_position().topics})
        return max((topic.stored_total(buffer, begin, start) for topic in topics), default=0)

    def _recovered(self, names: set[str]) -> list[Topic]:
        """Return the topics that exist, with their positions: a full disk may have kept one from its recovery.

        Raises LogFull then.
        """
        topics = [self._log.topic(name, internal=True) for name in sorted(names & {*self._log.names(internal=True)})]
        for topic in topics:
            topic.recover()
        return topics

    def _without_entered(self, origin: Origin, metadata: FrameMetadata) -> Origin:
        """Return the origin with repeated counts, and without the counts that lost frames have carried into the log.

        Order: called once the frames before it in its group are stored, because saved ones may be the lost ones.
        """
        repeated = () if self._has_intact_carrier(metadata, origin.begin) else metadata.repeated
        lost = (*metadata.lost_counts, *repeated)
        if not lost:
            return origin
        self._recovered({carrier.topic or RECEIPTS for carriers, _ in lost for carrier in carriers})
        entered = entered_counts(lost, self.listener, self._log.buffer_position)
        parts = [*(counts for _, counts in repeated), {name: -entered[name] for name in entered}]
        return replace(origin, counts=summed([origin.counts, *parts]))

    def _has_intact_carrier(self, metadata: FrameMetadata, begin: int) -> bool:
        """Report whether the log buffer still has the frame whose counts the one at ``begin`` repeats: it was handled.

        Not only the topics decide: one that was deleted since then no longer knows what it has stored.
        """
        carriers = {carriers[0] for carriers, _ in metadata.repeated}
        with contextlib.suppress(OSError, LogBufferError):
            for carrier in carriers:
                frames = frames_in_file(buffer_file(self.folder, self.listener), carrier.begin, begin)
                if any((found := intact_metadata(frame)) and found.epoch == carrier.epoch for frame in frames):
                    return True
        return False

    def _append(
        self, own_topic: str | None, messages: MessagesByTopic, origin: Origin, commits: list[Work]
    ) -> list[Future[Any]]:
        """Append a frame's messages to their topics, and its counts once, with the handler's own topic.

        Without messages for that topic the counts are appended last, once the others are stored.
        """
        counts = Counts(origin.counts)
        accepted = {topic: self._drop_oversized(topic, body, counts) for topic, body in messages.items()}
        # Order: the counts of dropped messages are complete before the origin that carries them is made.
        with_counts = replace(origin, counts=counts)
        futures = [
            self._log.topic(topic, create=True).append(
                body, with_counts if topic == own_topic else replace(origin, counts={}, total=0)
            )
            for topic, body in accepted.items()
            if body.num_rows
        ]
        if own_topic is None or not accepted[own_topic].num_rows:
            # Order: a frame whose messages are refused goes back to the writer, which may drop and count it again.
            if futures and not self._are_stored(futures, commits):
                return futures
            futures.append(self._append_counts(with_counts))
        return futures

    def _append_counts(self, origin: Origin) -> Future[Any]:
        return self._log.topic(RECEIPTS, create=True, internal=True).append(EMPTY_BODY, origin)

    def _drop_oversized(self, topic: str, body: Body, counts: Counts) -> Body:
        """Drop messages that are too large for the topic, and count them as failed."""
        limit = self._log.settings(topic).message_size_limit
        if isinstance(body, Rows):
            if 4 * body.size <= limit:  # a text has up to four bytes per character
                return body
            body = body.batch()
        if not body.num_rows or body.get_total_buffer_size() <= limit:
            return body
        sizes = pc.binary_length(body.column("payload"))  # type: ignore[call-overload]  # the stub: no Array[Any]
        accepted = body.filter(pc.less_equal(sizes.fill_null(0), pa.scalar(limit)))
        counts[f"{Name.HANDLER_FAILED}{LOG}"] += body.num_rows - accepted.num_rows
        return accepted


def entered_counts(lost: Iterable[LostCounts], listener: str, stored_position: StoredPosition) -> Counts:
    """Return the counts that lost frames of ``listener`` have carried into the log.

    Crash: a power failure may take a stored frame, and the reader's position. The topics know what is stored: that of
    the frame's messages, or the receipts if it had none for its topic.
    """
    entered = Counts()
    for carriers, counts in lost:
        if any(
            stored_position(topic, f"{listener}.{carrier.epoch}") > carrier.begin
            for carrier in carriers
            for topic in {carrier.topic or RECEIPTS, RECEIPTS}
        ):
            entered.absorb(counts)
    return entered


def _may_be_stored(append: Future[Any]) -> bool:
    error = append.exception()
    return error is None or isinstance(error, OutcomeInDoubt)


def _grouped(saved: Iterable[Frame | PassedFrames], limit_bytes: int) -> Iterator[list[Frame] | PassedFrames]:
    """Yield frames in groups of ``limit_bytes`` of the buffer; a group has at least one frame."""
    group: list[Frame] = []
    for entry in saved:
        if group and (isinstance(entry, PassedFrames) or entry.end > group[0].begin + limit_bytes):
            yield group
            group = []
        if isinstance(entry, PassedFrames):
            yield entry
        else:
            group.append(entry)
    if group:
        yield group


def _read(frame: Frame, routes: TopicByPosition) -> tuple[Body, FrameMetadata]:
    """Return messages and metadata; messages that go elsewhere are only counted. Raises BadBatch."""
    if routes.topic(frame.begin) is not None:
        return decode_small_frame(frame.data)
    metadata = read_frame_metadata(frame.data)
    return body(pa.nulls(metadata.origin.counts.get(Name.ACCEPTED, 0), pa.binary())), metadata


def _with_count(origin: Origin, name: str, count: int) -> Origin:
    return replace(origin, counts=summed([origin.counts, {name: count}])) if count else origin
