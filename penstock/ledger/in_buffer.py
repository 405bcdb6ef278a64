"""Counts of the frames in the log buffers that the log has not taken yet.

Each frame is parsed once, however often the counts are requested: its counts are cached until the log has taken it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.counts import Counts, Name, SourceBucket, by_bucket
from penstock.handover.buffer import TopicByPosition
from penstock.handover.drain.drain import RECEIPTS, StoredPosition, entered_counts
from penstock.handover.dropped_frames import LostCounts
from penstock.handover.frames.frame import read_frame_metadata
from penstock.handover.paths import LOG, buffer_file, position_file, state_file
from penstock.handover.positions.position import ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, LogBufferError, Subscription
from penstock.records import BadBatch

DOCUMENT_BYTES = 4096
"""Size of the prefix of a frame that is searched for its document; a longer document is parsed in full."""
_DOCUMENT = re.compile(rb'\{"v":1,("source":"[^"]*","bucket":\d+),[^{}]*?(?:"counts":(\{[^{}]*\})|"incarnation")')
"""Start of a frame's document: source and bucket, and the counts if there are any."""
_EPOCH = re.compile(rb'"missed":\d+,"epoch":"([^"]*)"')
MAX_CACHED_DOCUMENTS = 1000
_LOGGER = logging.getLogger(__name__)
CountsByOrigin = Mapping[SourceBucket, Counts]


class BufferedCounts:
    """Counts that wait for one reader of each log buffer in ``folder``. Threads: the lock is held for a whole
    request.

    A log buffer that cannot be read has the frames that were read last.
    """

    def __init__(self, folder: Path, reader: str = LOG) -> None:
        self._folder, self._reader = folder, reader
        self.unreadable: dict[str, str] = {}
        """Why log buffers could not be read by the last request, by listener."""
        self._lock = threading.Lock()
        self._buffers: dict[str, _BufferedFrames] = {}

    def counts(
        self, listeners: Iterable[str], stored_position: StoredPosition | None = None
    ) -> dict[SourceBucket, Counts]:
        """Return the counts by source and bucket over the log buffers of ``listeners``, as ``WaitingFrames.counts``."""
        with self.frames(listeners) as waiting_frames:
            return waiting_frames.counts(stored_position)

    @contextlib.contextmanager
    def frames(self, listeners: Iterable[str]) -> Iterator[WaitingFrames]:
        """Read the log buffers of ``listeners``; the frames do not change until the end of the ``with``."""
        with self._lock:
            read = ((listener, self._read_or_reuse(listener)) for listener in listeners)
            yield WaitingFrames({listener: frames for listener, frames in read if frames is not None})

    def _read_or_reuse(self, listener: str) -> _BufferedFrames | None:
        try:
            frames = self._read_listener(listener)
        except (OSError, LogBufferError) as error:
            # One listener's file must not take the balance, the metrics and the alarms of all others away: they name
            # its receiver, which cannot start either.
            if listener not in self.unreadable:
                _LOGGER.warning("listener %r: new messages in its log buffer are not counted: %s", listener, error)
            self.unreadable[listener] = str(error)
            return self._buffers.get(listener)
        self.unreadable.pop(listener, None)
        if frames is None:
            self._buffers.pop(listener, None)
        else:
            self._buffers[listener] = frames
        return frames

    def _read_listener(self, listener: str) -> _BufferedFrames | None:
        """Return the frames of a listener that its reader has not passed; None without a log buffer."""
        reader_path, path = position_file(self._folder, listener, self._reader), buffer_file(self._folder, listener)
        if not reader_path.exists() or not path.exists():
            return None
        with ReaderPosition(reader_path) as position:
            reached = position.position
        with Subscription(path, reached, in_order=True) as subscription:
            buffer = self._buffers.get(listener)
            # The inode tells the cached file from one that the receiver created again under the same name.
            identity = path.stat().st_ino
            # A reader that was moved back needs frames that are no longer cached.
            if buffer is None or buffer.identity != identity or buffer.begin > reached:
                buffer = _BufferedFrames(identity, reached, reached)
            buffer.drop_before(reached)
            page = StatePage(state_file(self._folder, listener))
            try:
                routes = TopicByPosition(page)
                buffer.read_new_frames(subscription, routes)
            finally:
                page.close()
        buffer.topics = {*routes.topics, RECEIPTS}
        return buffer


@dataclass(frozen=True, slots=True)
class WaitingFrames:
    """The frames in log buffers that their reader has not passed, by listener."""

    listeners: Mapping[str, _BufferedFrames]

    def counts(self, stored_position: StoredPosition | None = None) -> dict[SourceBucket, Counts]:
        """Return the counts by source and bucket.

        With ``stored_position``, frames that the log has stored do not count, nor do counts that a lost frame has
        carried into the log. Crash: the reader's position passes them later, and after a crash only once they have been
        read again.
        """
        total: dict[SourceBucket, Counts] = {}
        for listener, buffer in self.listeners.items():
            of_listener = buffer.totals if stored_position is None else buffer.without_stored(listener, stored_position)
            for key, counts in of_listener.items():
                total.setdefault(key, Counts()).absorb(counts)
        return total


@dataclass(slots=True)
class _FrameCounts:
    """The counts of a frame; ``topic`` stores its messages, and is None for a frame without any for the log."""

    end: int
    epoch: str
    topic: str | None
    counts_by_origin: CountsByOrigin
    lost: tuple[LostCounts, ...]


@dataclass(slots=True)
class _BufferedFrames:
    """The parsed frames between positions ``begin`` and ``end`` of one log buffer file."""

    identity: int
    begin: int
    end: int
    frames: deque[_FrameCounts] = field(default_factory=deque)
    repeating: deque[_FrameCounts] = field(default_factory=deque)
    """The frames that repeat counts of lost ones."""
    totals: dict[SourceBucket, Counts] = field(default_factory=dict)
    documents: dict[tuple[bytes, bytes], CountsByOrigin] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    """The topics that store the frames."""

    def without_stored(self, listener: str, stored_position: StoredPosition) -> dict[SourceBucket, Counts]:
        """Return the totals without the frames that ``topics`` have stored, and without counts entered before."""
        total = {key: Counts(counts) for key, counts in self.totals.items()}
        reached = 0
        for frame in self._stored_frames(listener, stored_position):
            reached = frame.end
            for key, counts in frame.counts_by_origin.items():
                total[key].subtract(counts)
        for frame in self.repeating:
            # No frame with counts of dropped ones is passed over: the log stores it before it stores a later one.
            if frame.end > reached:
                for bucket, counts in by_bucket(0, entered_counts(frame.lost, listener, stored_position)).items():
                    total[listener, bucket].subtract(counts)
        return {key: counts for key, counts in total.items() if any(counts.values())}

    def _stored_frames(self, listener: str, stored_position: StoredPosition) -> Iterator[_FrameCounts]:
        reached: dict[str, dict[str, int]] = {}
        for frame in self.frames:
            if not frame.counts_by_origin:
                continue  # it is damaged, and its epoch unreadable
            if (by_topic := reached.get(frame.epoch)) is None:
                buffer = f"{listener}.{frame.epoch}"
                by_topic = reached[frame.epoch] = {topic: stored_position(topic, buffer) for topic in self.topics}
            # Fast path: no frame behind the last stored one is looked at.
            if frame.end > max(by_topic.values()):
                return
            # The counts of messages that are refused or too large go to the receipts without them.
            if frame.end <= max(by_topic[RECEIPTS], by_topic.get(frame.topic or RECEIPTS, 0)):
                yield frame

    def drop_before(self, position: int) -> None:
        """Forget the frames before ``position``: the reader has passed them."""
        self.begin = position
        self.end = max(self.end, position)
        while self.repeating and self.repeating[0].end <= position:
            self.repeating.popleft()
        while self.frames and self.frames[0].end <= position:
            for key, counts in self.frames.popleft().counts_by_origin.items():
                self.totals[key].subtract(counts)
                if not any(self.totals[key].values()):
                    del self.totals[key]

    def read_new_frames(self, subscription: Subscription, routes: TopicByPosition | None) -> None:
        """Parse the frames up to the tail. One poll ends with its term, so polls repeat until nothing moves."""
        subscription.position, previous = self.end, -1
        while subscription.position > previous:
            previous = subscription.position
            try:
                frames = subscription.poll()
            except Lapped:
                break  # the log took these frames and the receiver reused their term
            for frame in frames:
                topic = routes.topic(frame.begin) if routes is not None else None
                self._enter(frame, topic, routes is None or topic is not None)
        self.end = subscription.position

    def _enter(self, frame: Frame, topic: str | None, routed: bool) -> None:
        epoch, counts_by_origin, lost = self._parse_counts(frame)
        if not routed:
            counts_by_origin = {key: _not_routed(counts) for key, counts in counts_by_origin.items()}
        has_messages = any(counts[Name.ACCEPTED] for counts in counts_by_origin.values())
        self.frames.append(_FrameCounts(frame.end, epoch, topic if has_messages else None, counts_by_origin, lost))
        if lost:
            self.repeating.append(self.frames[-1])
        for key, counts in counts_by_origin.items():
            self.totals.setdefault(key, Counts()).absorb(counts)

    def _parse_counts(self, frame: Frame) -> tuple[str, CountsByOrigin, tuple[LostCounts, ...]]:
        """Return a frame's epoch, its counts, and the counts that it repeats for lost frames.

        Most frames repeat the document of another one, which is parsed once.
        """
        # Fast path: a search in the first bytes of a frame replaces the parsing of its Arrow metadata.
        data = bytes(frame.data[:DOCUMENT_BYTES])
        document = _DOCUMENT.search(data)
        cache_key = (document[1], document[2] or b"") if document else None
        if cache_key and b"@" in cache_key[1]:
            cache_key = None  # it carries counts of dropped frames, and may repeat them for lost ones
        epoch = _EPOCH.search(data, document.end()) if document else None
        if cache_key and epoch and (cached := self.documents.get(cache_key)) is not None:
            return epoch[1].decode(), cached, ()
        try:
            metadata = read_frame_metadata(frame.data)
        except BadBatch:
            return "", {}, ()  # the log counts the frame as corrupt when it reads it
        origin = metadata.origin
        parts = by_bucket(origin.bucket, origin.counts)
        counts_by_origin = {(origin.source, bucket): counts for bucket, counts in parts.items()}
        if cache_key:
            if len(self.documents) >= MAX_CACHED_DOCUMENTS:
                # Limit: cleared as a whole. A document that is still in use is parsed again.
                self.documents.clear()
            self.documents[cache_key] = counts_by_origin
        return metadata.epoch, counts_by_origin, metadata.lost_counts


def _not_routed(counts: Counts) -> Counts:
    """Return the counts of a frame whose messages do not go to the log."""
    return Counts({**counts, f"{Name.NOT_ROUTED}{LOG}": counts[Name.ACCEPTED]})


def waiting_for(folder: Path, listener: str, position: int) -> dict[SourceBucket, Counts]:
    """Return the counts of frames in the log buffer of ``listener`` from ``position`` on, by source and bucket."""
    path = buffer_file(folder, listener)
    if not path.exists():
        return {}
    with Subscription(path, position, in_order=True) as subscription:
        counts_by_origin = _BufferedFrames(0, position, position)
        counts_by_origin.read_new_frames(subscription, None)
    return counts_by_origin.totals
