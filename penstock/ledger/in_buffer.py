"""What waits in the log buffers: the counts of the frames that the log has not taken yet.

Each frame is looked at once, however often is asked: what was found is kept until the log has taken it.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.counts import Counts, Name, SourceBucket, by_bucket
from penstock.handover.buffer import TopicByPosition
from penstock.handover.frame import read_frame_metadata
from penstock.handover.paths import LOG, buffer_file, position_file, state_file
from penstock.handover.position import ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, Subscription
from penstock.records import BadBatch

HEAD = 4096
"""Bytes at the beginning of a frame in which its document usually is."""
_DOCUMENT = re.compile(rb'\{"v":1,("source":"[^"]*","bucket":\d+),[^{}]*?(?:"counts":(\{[^{}]*\})|"incarnation")')
"""The beginning of a frame's document: source and bucket, and the counts where there are any."""
MOST_KNOWN = 1000
CountsByOrigin = Mapping[SourceBucket, Counts]


class BufferedCounts:
    """The counts waiting for one reader of each log buffer in ``folder``. For several threads at once."""

    def __init__(self, folder: Path, reader: str = LOG) -> None:
        self._folder, self._reader = folder, reader
        self._lock = threading.Lock()
        self._buffers: dict[str, _Buffer] = {}

    def counts(self, listeners: Iterable[str]) -> dict[SourceBucket, Counts]:
        """By source and bucket, over the log buffers of ``listeners``."""
        total: dict[SourceBucket, Counts] = {}
        with self._lock:
            for listener in listeners:
                for key, counts in self._of(listener).items():
                    total.setdefault(key, Counts()).absorb(counts)
        return total

    def _of(self, listener: str) -> CountsByOrigin:
        place, path = position_file(self._folder, listener, self._reader), buffer_file(self._folder, listener)
        if not place.exists() or not path.exists():
            return {}
        with ReaderPosition(place) as position:
            reached = position.position
        with Subscription(path, reached, in_order=True) as subscription:
            known = self._buffers.get(listener)
            identity = path.stat().st_ino
            if known is None or known.identity != identity or known.begin > reached:
                known = self._buffers[listener] = _Buffer(identity, reached, reached)
            known.passed(reached)
            page = StatePage(state_file(self._folder, listener))
            try:
                known.look(subscription, TopicByPosition(page))
            finally:
                page.close()
        return known.totals


@dataclass(slots=True)
class _Frame:
    end: int
    found: CountsByOrigin


@dataclass(slots=True)
class _Buffer:
    """What was found between positions ``begin`` and ``end`` of one log buffer file."""

    identity: int
    begin: int
    end: int
    frames: deque[_Frame] = field(default_factory=deque)
    totals: dict[SourceBucket, Counts] = field(default_factory=dict)
    known: dict[tuple[bytes, bytes], CountsByOrigin] = field(default_factory=dict)

    def passed(self, position: int) -> None:
        """The reader has come to ``position``."""
        self.begin = position
        self.end = max(self.end, position)
        while self.frames and self.frames[0].end <= position:
            for key, counts in self.frames.popleft().found.items():
                self.totals[key].subtract(counts)
                if not any(self.totals[key].values()):
                    del self.totals[key]

    def look(self, subscription: Subscription, routes: TopicByPosition | None) -> None:
        """Look at the frames up to the tail; a poll ends with its term."""
        subscription.position, before = self.end, -1
        while subscription.position > before:
            before = subscription.position
            try:
                frames = subscription.poll()
            except Lapped:
                break  # the log has taken them meanwhile, and the receiver has gone on
            for frame in frames:
                self._enter(frame, routes is None or routes.topic(frame.begin) is not None)
        self.end = subscription.position

    def _enter(self, frame: Frame, routed: bool) -> None:
        found = self._found(frame)
        if not routed:
            found = {key: _not_routed(counts) for key, counts in found.items()}
        self.frames.append(_Frame(frame.end, found))
        for key, counts in found.items():
            self.totals.setdefault(key, Counts()).absorb(counts)

    def _found(self, frame: Frame) -> CountsByOrigin:
        """A frame's counts. Most frames say what others say too: their document is parsed once."""
        document = _DOCUMENT.search(bytes(frame.data[:HEAD]))
        said = (document[1], document[2] or b"") if document else None
        if said and (known := self.known.get(said)) is not None:
            return known
        try:
            origin = read_frame_metadata(frame.data).origin
        except BadBatch:
            return {}  # the log counts it as corrupt when it comes to it
        parts = by_bucket(origin.bucket, origin.counts)
        found = {(origin.source, bucket): counts for bucket, counts in parts.items()}
        if said:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[said] = found
        return found


def _not_routed(counts: Counts) -> Counts:
    """The counts of a frame whose messages are not for the log."""
    return Counts({**counts, f"{Name.NOT_ROUTED}{LOG}": counts[Name.ACCEPTED]})


def waiting(folder: Path, listeners: Iterable[str]) -> dict[SourceBucket, Counts]:
    """What waits for the log, by source and bucket, over the log buffers of ``listeners`` in ``folder``."""
    return BufferedCounts(folder).counts(listeners)


def waiting_for(folder: Path, listener: str, position: int) -> dict[SourceBucket, Counts]:
    """What waits in the log buffer of ``listener`` from ``position`` on, by source and bucket."""
    path = buffer_file(folder, listener)
    if not path.exists():
        return {}
    with Subscription(path, position, in_order=True) as subscription:
        found = _Buffer(0, position, position)
        found.look(subscription, None)
    return found.totals
