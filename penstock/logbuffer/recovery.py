"""Going on with a log buffer after its writer ended in any way: killed, power cut, bytes gone.

What a writer leaves behind when it is killed is simple: whole frames up to a point, and perhaps one
frame half written between that point and the tail, which was stored first. After a power cut any page
may be older than its neighbours. So the frames themselves are walked, each proved by its header, and a
range without a frame becomes padding: positions never go back, readers pass over it, and it is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import NotALogBuffer
from penstock.logbuffer.frame_search import newest_by_frames, next_frame
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.reshape import derived, rebuild, resize


class Reason(StrEnum):
    """Why a range was skipped."""

    ZERO_LENGTH = "zero length"
    """Room was taken at the tail, and nothing written yet."""
    NEGATIVE_LENGTH = "negative length"
    """A frame was being written."""
    TORN_HEADER = "torn header"
    """There is a length, but not the rest of the header that belongs to this place."""
    UNFINISHED_MESSAGE = "unfinished message"
    """Whole frames that begin a message whose last frame is missing."""
    BEYOND_TAIL = "beyond the tail"
    """Bytes behind the last whole frame to which no tail and no header leads; they were zeroed."""
    OVERWRITTEN = "overwritten"
    """A reader had not come so far, and newer terms stand there."""


@dataclass(frozen=True)
class Skipped:
    """The positions [begin, end) hold no message any more."""

    begin: int
    end: int
    reason: Reason


@dataclass(frozen=True)
class Recovered:
    """Where a publication goes on, and what it found."""

    position: int
    cleaned: int
    """Before it everything is zero."""
    last: int | None = None
    """Where the last frame that is no padding begins."""
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    """What was wrong with the file beside frames: its size, its metadata."""


def recover(path: Path, readers: Sequence[int], expected: d.Parameters | None) -> tuple[LogFile, Recovered]:
    """Maps the file, finds out what is in it, and makes it whole. See Publication.open."""
    notes: tuple[str, ...] = ()
    try:
        log = LogFile(path, writable=True)
    except NotALogBuffer as error:
        if not resize(path):
            rebuild(path, expected or derived(path), error)
        log, notes = LogFile(path, writable=True), (str(error),)
    if expected and log.term_length == expected.term_length and log.parameters.mtu != expected.mtu:
        notes = (*notes, f"{path} says an MTU of {log.parameters.mtu}, which was {expected.mtu}")
        log.store(d.MTU_LENGTH, expected.mtu)
        log.close()
        log = LogFile(path, writable=True)
    try:
        recovered = examine(log, readers, notes)
        if recovered.last is None and recovered.skipped:
            log, recovered = _under_its_own_name(log, recovered, readers)
        repair(log, recovered, readers)
    except BaseException:
        log.close()
        raise
    return log, recovered


def _under_its_own_name(log: LogFile, recovered: Recovered, readers: Sequence[int]) -> tuple[LogFile, Recovered]:
    """Where no frame is of the stream that the metadata name, it may be they that are wrong."""
    named, wanted = log.parameters, derived(log.path)
    if wanted is None or (wanted.session_id, wanted.stream_id) == (named.session_id, named.stream_id):
        return log, recovered
    note = NotALogBuffer(f"{log.path} holds frames of another stream than its metadata name")
    try:
        rebuild(log.path, wanted, note)
    except NotALogBuffer:
        return log, recovered  # they are nobody's
    log.close()
    log = LogFile(log.path, writable=True)
    return log, examine(log, readers, (*recovered.notes, str(note)))


def examine(log: LogFile, readers: Sequence[int] = (), notes: tuple[str, ...] = ()) -> Recovered:
    """What is in the file; nothing is changed. Raises NotALogBuffer when nothing tells where its end is."""
    if log.parameters.kind is d.Kind.IMAGE:
        raise NotALogBuffer(f"{log.path} is the log buffer of an image: nothing is published in it")
    readers = [d.align(position) for position in readers]
    tail = _tail_by_metadata(log)
    if tail is None:
        notes = (*notes, "the tail counters contradict each other")
        tail = _tail_by_frames(log)
    if tail is None and not readers:
        raise NotALogBuffer(f"{log.path} is not a log buffer: its tail counters are garbage and it has no frame")
    tail = max(tail or 0, *readers, 0)
    walk = _Walk(log, tail, min(readers) if readers else None)
    walk.run()
    cleaned = _first_dirty(log, walk.position)
    return Recovered(walk.position, cleaned, walk.last, (*walk.skipped, *_beyond(log, walk.position)), notes)


def repair(log: LogFile, recovered: Recovered, readers: Sequence[int] = ()) -> None:
    """Padding over what was skipped, zeros behind the end, and then the tails: data first, then what points to it.

    The padding is cut at ``readers``, so that each of them finds a frame where it goes on.
    """
    position = recovered.position
    for skipped in recovered.skipped:
        if skipped.reason in (Reason.ZERO_LENGTH, Reason.NEGATIVE_LENGTH, Reason.TORN_HEADER):
            pad(log, skipped.begin, skipped.end, readers)
    if position < d.max_position(log.term_length) and _any(log, position):
        log.fill_zero(log.offset_of(position), log.term_end(position) - position)
    count, offset = log.tail_at(position)
    for ahead in (1, 2):
        _seat(log, count + ahead - d.PARTITIONS)
    log.store(d.TAIL_COUNTERS[count % d.PARTITIONS], d.pack_tail(log.initial_term_id + count, offset))
    log.store(d.ACTIVE_TERM_COUNT, count)
    log.store(d.END_OF_STREAM_POSITION, d.LONG_MAX)


class _Walk:
    """From frame to frame: from one term before the lowest reader (for the last frame's sake) to the end."""

    def __init__(self, log: LogFile, tail: int, floor: int | None) -> None:
        self.position = _start(log, tail, floor)
        self.last: int | None = None
        self.skipped: list[Skipped] = []
        self._log = log
        self._tail = tail
        self._floor = floor
        self._seen = False
        self._message: int | None = None
        if floor is not None and floor < self.position:
            self.skipped.append(Skipped(floor, self.position, Reason.OVERWRITTEN))

    def run(self) -> None:
        while True:
            length, flags, kind = self._log.whole_frame(self.position)
            if length:
                self._take(d.align(length), flags, kind)
                continue
            resume = self._resume()
            if resume == self.position:
                break
            self._skip(resume)

    def _take(self, length: int, flags: int, kind: int) -> None:
        self._seen = True
        if kind == d.PAD:
            self._message = None
        else:
            self.last = self.position
            begun = self.position if flags & d.BEGIN else self._message
            self._message = None if flags & d.END else begun
        self.position += length

    def _resume(self) -> int:
        """Where to go on when no frame begins here: the next frame of the term, the next term, or the tail."""
        begin, end = self.position, self._log.term_end(self.position)
        limit = min(self._tail, end)
        runs = _unpublished(self._log, begin, limit)
        while begin < end:
            found = next_frame(self._log, begin)
            if found is None:
                return max(self.position, limit)
            behind = [stop for start, stop in runs if start < found < stop]
            if not behind:
                return found
            begin = max(behind)
        return end

    def _skip(self, resume: int) -> None:
        begin, self.position = self.position, resume
        if self._floor is not None:
            begin = max(begin, min(self._floor, resume))  # what was read may have been cleaned
        elif not self._seen:
            begin = self._first_unknown(begin, resume)
        if begin == resume:
            return
        if self._message is not None:
            self.skipped.append(Skipped(self._message, begin, Reason.UNFINISHED_MESSAGE))
            self._message = None
        self.skipped.append(Skipped(begin, resume, _reason(self._log, begin)))

    def _first_unknown(self, begin: int, resume: int) -> int:
        """Where no reader is named and no frame was met yet, zeros are taken for cleaned, except up to the tail."""
        if resume < self._tail or resume == self._log.term_begin(self._tail):
            return resume
        words = np.frombuffer(self._log.bytes, np.int64, (resume - begin) // 8, self._log.offset_of(begin))
        return begin + ((8 * int(np.argmax(words != 0))) & -d.FRAME_ALIGNMENT)


def _unpublished(log: LogFile, begin: int, limit: int) -> list[tuple[int, int]]:
    """Where a length is still negative, which tells how far a frame, or a run of frames, was to go.

    Frames of such a run may be whole already, but none of them was published. At ``begin`` the rest of the
    header may be missing; elsewhere it has to be one for its place.
    """
    if begin >= limit:
        return []
    slots, p = log.headers(begin, limit), log.parameters
    lengths, starts = slots["length"].astype(np.int64), np.arange(begin, limit, d.FRAME_ALIGNMENT)
    known = (slots["term_offset"] == starts - log.term_begin(begin)) & (slots["term_id"] == log.term_id(begin))
    known &= (slots["session_id"] == p.session_id) & (slots["stream_id"] == p.stream_id)
    known[0] = True
    stops = starts + ((d.FRAME_ALIGNMENT - 1 - lengths) & -d.FRAME_ALIGNMENT)
    known &= (lengths < 0) & (stops <= limit)
    return list(zip(starts[known].tolist(), stops[known].tolist(), strict=True))


def _start(log: LogFile, tail: int, floor: int | None) -> int:
    """Further back than three terms nothing can be."""
    wanted = log.term_begin(tail if floor is None else min(floor, tail)) - log.term_length
    return max(wanted, log.term_begin(tail) - (d.PARTITIONS - 1) * log.term_length, 0)


def _tail_by_metadata(log: LogFile) -> int | None:
    count = log.load(d.ACTIVE_TERM_COUNT)
    raw = log.load(d.TAIL_COUNTERS[count % d.PARTITIONS])
    if count < 0 or d.tail_term_id(raw) != d.int32(log.initial_term_id + count):
        return None
    return count * log.term_length + d.align(d.tail_offset(raw, log.term_length))


def _tail_by_frames(log: LogFile) -> int | None:
    """The begin of the newest term that has a frame."""
    count = newest_by_frames(log)
    return None if count < 0 else count * log.term_length


def _reason(log: LogFile, position: int) -> Reason:
    length = log.ints[log.offset_of(position) >> 2]
    if length == 0:
        return Reason.ZERO_LENGTH
    return Reason.NEGATIVE_LENGTH if length < 0 else Reason.TORN_HEADER


def _beyond(log: LogFile, position: int) -> list[Skipped]:
    if position == log.term_begin(position):
        return []  # an older term's rest
    used = np.flatnonzero(_words(log, position))
    if not len(used):
        return []
    end = position + d.align(8 * (int(used[-1]) + 1))
    return [Skipped(position, end, Reason.BEYOND_TAIL)]


def _any(log: LogFile, position: int) -> bool:
    return bool(_words(log, position).any())


def _words(log: LogFile, position: int) -> np.ndarray:
    """The rest of the term from ``position`` on, as 8-byte words."""
    return np.frombuffer(log.bytes, np.int64, (log.term_end(position) - position) // 8, log.offset_of(position))


def _first_dirty(log: LogFile, position: int) -> int:
    """The first position of the two terms before and this one whose bytes are not zero."""
    for begin in range(log.term_begin(position) - 2 * log.term_length, position, log.term_length):
        words = _words(log, begin)
        index = int(np.argmax(words != 0))
        if words[index]:
            return min(position, (begin + 8 * index) & -d.FRAME_ALIGNMENT)
    return position


def pad(log: LogFile, begin: int, end: int, readers: Sequence[int] = ()) -> None:
    """Padding frames from ``begin`` to ``end``, none over the end of a term or over a reader's position."""
    cuts = sorted({d.align(position) for position in readers if begin < position < end} | {end})
    for cut in cuts:
        while begin < cut:
            stop = min(cut, log.term_end(begin))
            log.blank(begin, stop - begin)
            begin = stop


def _seat(log: LogFile, count: int) -> None:
    """The tail of a partition that is not active says which term it held last."""
    field = d.TAIL_COUNTERS[count % d.PARTITIONS]
    term_id = d.int32(log.initial_term_id + count)
    if d.tail_term_id(log.load(field)) != term_id:
        log.store(field, d.pack_tail(term_id, 0))
