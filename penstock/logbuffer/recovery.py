"""Continue a log buffer after its writer ended in any way: killed, power cut, bytes lost.

Crash: a killed writer leaves whole frames up to a point, and at most one half-written frame between that point and the
tail, which is stored first. After a power cut any page may be older than its neighbours. So recovery walks the frames
themselves, each verified by its header, and turns a range without a frame into padding. Invariant: positions never go
back; readers skip the padding, and each skipped range is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from penstock.logbuffer import descriptor
from penstock.logbuffer.errors import NotALogBuffer
from penstock.logbuffer.frame_search import first_used, newest_by_frames, next_frame
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.reshape import derive_parameters, rebuild, resize


class Reason(StrEnum):
    """Reason for which a range was skipped."""

    ZERO_LENGTH = "zero length"
    """Room was taken at the tail, but nothing was written."""
    NEGATIVE_LENGTH = "negative length"
    """A frame was being written."""
    TORN_HEADER = "torn header"
    """The length is set, but the rest of the header does not belong to this position."""
    UNFINISHED_MESSAGE = "unfinished message"
    """Whole frames that begin a message whose last frame is missing."""
    BEYOND_TAIL = "beyond the tail"
    """Bytes behind the last whole frame that no tail and no header covers; they were zeroed."""
    OVERWRITTEN = "overwritten"
    """Newer terms replaced frames that a reader had not reached."""


@dataclass(frozen=True)
class Skipped:
    """A range of positions [begin, end) that no longer holds a message."""

    begin: int
    end: int
    reason: Reason


@dataclass(frozen=True)
class Recovered:
    """The state from which a publication continues, and the findings of recovery."""

    position: int
    cleaned: int
    """All bytes before this position are zero."""
    last: int | None = None
    """Position of the last data frame."""
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    """Problems of the file other than frames: its size, its metadata."""


def recover(path: Path, readers: Sequence[int], expected: descriptor.Parameters | None) -> tuple[LogFile, Recovered]:
    """Map the file, examine and repair it; see ``Publication.open``."""
    notes: tuple[str, ...] = ()
    try:
        log = LogFile(path, writable=True)
    except NotALogBuffer as error:
        if not resize(path):
            rebuild(path, expected or derive_parameters(path), error)
        log, notes = LogFile(path, writable=True), (str(error),)
    if expected and log.term_length == expected.term_length and log.parameters.mtu != expected.mtu:
        notes = (*notes, f"{path}: metadata have an MTU of {log.parameters.mtu}, corrected to {expected.mtu}")
        log.store(descriptor.MTU_LENGTH, expected.mtu)
        log.close()
        log = LogFile(path, writable=True)
    try:
        recovered = examine(log, readers, notes)
        if recovered.last is None and recovered.skipped:
            log, recovered = _correct_owner(log, recovered, readers)
        repair(log, recovered, readers)
    except BaseException:
        log.close()
        raise
    return log, recovered


def _correct_owner(log: LogFile, recovered: Recovered, readers: Sequence[int]) -> tuple[LogFile, Recovered]:
    """Rebuild metadata that name a stream of which the file has no frame, if its frames name another."""
    parameters, derived_parameters = log.parameters, derive_parameters(log.path)
    if derived_parameters is None or (derived_parameters.session_id, derived_parameters.stream_id) == (
        parameters.session_id,
        parameters.stream_id,
    ):
        return log, recovered
    note = NotALogBuffer(f"{log.path} has frames of another stream than its metadata")
    try:
        rebuild(log.path, derived_parameters, note)
    except NotALogBuffer:
        # The frames belong to no known stream, so the metadata may be right.
        return log, recovered
    log.close()
    log = LogFile(log.path, writable=True)
    return log, examine(log, readers, (*recovered.notes, str(note)))


def examine(log: LogFile, readers: Sequence[int] = (), notes: tuple[str, ...] = ()) -> Recovered:
    """Return the contents of a file without changing it. Raises NotALogBuffer if its end cannot be determined."""
    if log.parameters.kind is descriptor.Kind.IMAGE:
        raise NotALogBuffer(f"{log.path} is the log buffer of an image: it has no publication")
    readers = [descriptor.align(position) for position in readers]
    tail = _tail_by_metadata(log)
    if tail is None:
        notes = (*notes, "the tail counters are contradictory")
        tail = _tail_by_frames(log)
    if tail is None and not readers:
        raise NotALogBuffer(f"{log.path} is not a log buffer: its tail counters are invalid and it has no frame")
    # Invariant: positions never go back. A reader is never ahead of what was written, so it proves a higher tail.
    tail = max(tail or 0, *readers, 0)
    walk = _Walk(log, tail, min(readers) if readers else None)
    walk.run()
    cleaned = _first_dirty(log, walk.position)
    return Recovered(walk.position, cleaned, walk.last, (*walk.skipped, *_beyond_tail(log, walk.position)), notes)


def repair(log: LogFile, recovered: Recovered, readers: Sequence[int] = ()) -> None:
    """Pad skipped ranges, zero bytes behind the end, and correct the tails.

    Padding is cut at ``readers``, so that each reader finds a frame at its position.
    """
    position = recovered.position
    # Order: data first, then the tails that point to it. Crash: a repair that is interrupted starts again from the
    # frames.
    for skipped in recovered.skipped:
        if skipped.reason in (Reason.ZERO_LENGTH, Reason.NEGATIVE_LENGTH, Reason.TORN_HEADER):
            pad(log, skipped.begin, skipped.end, readers)
    if position < descriptor.max_position(log.term_length) and _has_bytes(log, position):
        log.fill_zero(log.offset_of(position), log.term_end(position) - position)
    count, offset = log.tail_at(position)
    for ahead in (1, 2):
        _correct_inactive_tail(log, count + ahead - descriptor.PARTITIONS)
    log.store(
        descriptor.TAIL_COUNTERS[count % descriptor.PARTITIONS],
        descriptor.pack_tail(log.initial_term_id + count, offset),
    )
    log.store(descriptor.ACTIVE_TERM_COUNT, count)
    log.store(descriptor.END_OF_STREAM_POSITION, descriptor.LONG_MAX)


class _Walk:
    """A walk from frame to frame, from one term before the lowest reader (to find the last frame) to the end."""

    def __init__(self, log: LogFile, tail: int, floor: int | None) -> None:
        self.position = _walk_start(log, tail, floor)
        self.last: int | None = None
        self.skipped: list[Skipped] = []
        self._log = log
        self._tail = tail
        self._floor = floor
        self._has_met_frame = False
        self._open_message: int | None = None
        if floor is not None and floor < self.position:
            self.skipped.append(Skipped(floor, self.position, Reason.OVERWRITTEN))

    def run(self) -> None:
        while True:
            length, flags, kind = self._log.whole_frame(self.position)
            if length:
                self._pass_frame(descriptor.align(length), flags, kind)
                continue
            resume = self._find_resume_position()
            if resume == self.position:
                break
            self._skip_to(resume)

    def _pass_frame(self, length: int, flags: int, kind: int) -> None:
        self._has_met_frame = True
        if kind == descriptor.PAD:
            self._open_message = None
        else:
            self.last = self.position
            message_begin = self.position if flags & descriptor.BEGIN else self._open_message
            self._open_message = None if flags & descriptor.END else message_begin
        self.position += length

    def _find_resume_position(self) -> int:
        """Return the next frame of the term, the next term, or the tail, if no frame begins here."""
        begin, end = self.position, self._log.term_end(self.position)
        limit = min(self._tail, end)
        # Fast path: most of a term that has no frame here is cleaned.
        used = begin = first_used(self._log, begin, end)
        while begin < end:
            candidate = next_frame(self._log, begin)
            if candidate is None:
                break
            runs = _unpublished_ranges(self._log, used, min(candidate, limit), limit, may_be_torn=used == self.position)
            covering_ends = [stop for start, stop in runs if start < candidate < stop]
            if not covering_ends:
                return candidate
            begin = max(covering_ends)
        return max(self.position, limit)

    def _skip_to(self, resume: int) -> None:
        begin, self.position = self.position, resume
        if self._floor is not None:
            # Bytes before the lowest reader may have been cleaned: they are not a loss.
            begin = max(begin, min(self._floor, resume))
        elif not self._has_met_frame:
            begin = self._first_unread_byte(begin, resume)
        if begin == resume:
            return
        if self._open_message is not None:
            self.skipped.append(Skipped(self._open_message, begin, Reason.UNFINISHED_MESSAGE))
            self._open_message = None
        self.skipped.append(Skipped(begin, resume, _skip_reason(self._log, begin)))

    def _first_unread_byte(self, begin: int, resume: int) -> int:
        """Return the first byte that is not cleaned: without readers and frames, zeros before the tail's term count
        as cleaned.
        """
        if resume < self._tail or resume == self._log.term_begin(self._tail):
            return resume
        words = np.frombuffer(self._log.bytes, np.int64, (resume - begin) // 8, self._log.offset_of(begin))
        return begin + ((8 * int(np.argmax(words != 0))) & -descriptor.FRAME_ALIGNMENT)


def _unpublished_ranges(log: LogFile, begin: int, end: int, limit: int, *, may_be_torn: bool) -> list[tuple[int, int]]:
    """Return the ranges that begin before ``end`` and are covered by negative lengths up to ``limit``: a frame, or a
    run of frames, that was not published.

    Frames within such a run may be complete, but none was published. With ``may_be_torn`` the rest of the header
    at ``begin`` may be missing; elsewhere it must match its position.
    """
    if begin >= end:
        return []
    slots, p = log.headers(begin, end), log.parameters
    lengths, starts = slots["length"].astype(np.int64), np.arange(begin, end, descriptor.FRAME_ALIGNMENT)
    is_unpublished = (slots["term_offset"] == starts - log.term_begin(begin)) & (slots["term_id"] == log.term_id(begin))
    is_unpublished &= (slots["session_id"] == p.session_id) & (slots["stream_id"] == p.stream_id)
    is_unpublished[0] |= may_be_torn
    stops = starts + ((descriptor.FRAME_ALIGNMENT - 1 - lengths) & -descriptor.FRAME_ALIGNMENT)
    is_unpublished &= (lengths < 0) & (stops <= limit)
    return list(zip(starts[is_unpublished].tolist(), stops[is_unpublished].tolist(), strict=True))


def _walk_start(log: LogFile, tail: int, floor: int | None) -> int:
    start = log.term_begin(tail if floor is None else min(floor, tail)) - log.term_length
    # The file has three terms, so nothing older can be in it.
    return max(start, log.term_begin(tail) - (descriptor.PARTITIONS - 1) * log.term_length, 0)


def _tail_by_metadata(log: LogFile) -> int | None:
    count = log.load(descriptor.ACTIVE_TERM_COUNT)
    raw = log.load(descriptor.TAIL_COUNTERS[count % descriptor.PARTITIONS])
    if count < 0 or descriptor.tail_term_id(raw) != descriptor.int32(log.initial_term_id + count):
        return None
    return count * log.term_length + descriptor.align(descriptor.tail_offset(raw, log.term_length))


def _tail_by_frames(log: LogFile) -> int | None:
    """Return the begin of the newest term that has a frame."""
    count = newest_by_frames(log)
    return None if count < 0 else count * log.term_length


def _skip_reason(log: LogFile, position: int) -> Reason:
    length = log.ints[log.offset_of(position) >> 2]
    if length == 0:
        return Reason.ZERO_LENGTH
    return Reason.NEGATIVE_LENGTH if length < 0 else Reason.TORN_HEADER


def _beyond_tail(log: LogFile, position: int) -> list[Skipped]:
    if position == log.term_begin(position):
        # At the begin of a term its partition still holds an older one.
        return []
    used = np.flatnonzero(_words_to_term_end(log, position))
    if not len(used):
        return []
    end = position + descriptor.align(8 * (int(used[-1]) + 1))
    return [Skipped(position, end, Reason.BEYOND_TAIL)]


def _has_bytes(log: LogFile, position: int) -> bool:
    return bool(_words_to_term_end(log, position).any())


def _words_to_term_end(log: LogFile, position: int) -> np.ndarray:
    """Return the rest of the term from ``position`` on as 8-byte words."""
    return np.frombuffer(log.bytes, np.int64, (log.term_end(position) - position) // 8, log.offset_of(position))


def _first_dirty(log: LogFile, position: int) -> int:
    """Return the first position with a byte that is not zero, in this term and the two before."""
    for begin in range(log.term_begin(position) - 2 * log.term_length, position, log.term_length):
        end = log.term_end(begin)
        if (used := first_used(log, begin, end)) < end:
            return min(position, used)
    return position


def pad(log: LogFile, begin: int, end: int, readers: Sequence[int] = ()) -> None:
    """Write padding frames from ``begin`` to ``end``, none across the end of a term or a reader's position."""
    cuts = sorted({descriptor.align(position) for position in readers if begin < position < end} | {end})
    for cut in cuts:
        while begin < cut:
            stop = min(cut, log.term_end(begin))
            log.blank(begin, stop - begin)
            begin = stop


def _correct_inactive_tail(log: LogFile, count: int) -> None:
    """Set the tail of an inactive partition to the term that it held last."""
    field = descriptor.TAIL_COUNTERS[count % descriptor.PARTITIONS]
    term_id = descriptor.int32(log.initial_term_id + count)
    if descriptor.tail_term_id(log.load(field)) != term_id:
        log.store(field, descriptor.pack_tail(term_id, 0))
