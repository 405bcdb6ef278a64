"""Restores the lost position of a reader from its account and from the writer's record of dropped frames.

Invariant: dropped frames are not delivered later, and handled frames are not dropped.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from penstock.handover.dropped_frames import Move, dropped, last_move, moved_readers
from penstock.handover.frames.frame import intact_metadata
from penstock.handover.held_frames import PassedFrames, read_held_frames, write_held_frames
from penstock.handover.paths import LOG, accounts_in, added_file, handlers_in, held_file, position_file, state_file
from penstock.handover.positions.accounts import Account, read_account
from penstock.handover.positions.position import UNKNOWN, NotAReaderPosition, ReaderPosition, create_position
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, Publication, Subscription

POLL_BYTES = 1 << 20
_LOGGER = logging.getLogger(__name__)


class LastKnown(NamedTuple):
    """A lower bound of the readers' positions and of the number of messages: from accounts, moves and marks."""

    position: int = 0
    total: int = 0


def last_known_of_all(folder: Path, listener: str) -> LastKnown:
    """Return the bound over all handlers that ever existed, for a buffer that is lost itself."""
    page = StatePage(state_file(folder, listener))
    readers = {*accounts_in(folder, listener), *moved_readers(page)}
    bounds = [_last_known(page, read_account(folder, listener, reader), reader) for reader in readers]
    page.close()
    marks = [_least_mark(folder, listener, reader) for reader in handlers_in(folder, listener)]
    return LastKnown(max((b.position for b in bounds), default=0), max([0, *(b.total for b in bounds), *marks]))


def _last_known(page: StatePage, account: Account, reader: str) -> LastKnown:
    move = last_move(page, reader)
    counted = sum(dropped(page, reader, move.to)[1].values()) + sum(account.fates.values())
    begin = account.base or 0  # negative after a restart of the total
    return LastKnown(max(move.to, account.end), max(move.mark, account.end_mark, begin + counted, 0))


def _least_mark(folder: Path, listener: str, reader: str) -> int:
    """Return a lower bound of the total by the position of ``reader``; UNKNOWN if it has none."""
    with (
        # Also a file that cannot be opened: it may be that of a handler that nobody uses any more.
        contextlib.suppress(NotAReaderPosition, OSError),
        ReaderPosition(position_file(folder, listener, reader)) as position,
    ):
        return position.least_mark
    return UNKNOWN


def restore_lost(folder: Path, listener: str, reader: str, publication: Publication, total: int) -> None:
    """Create the position file of ``reader`` if it was renamed because of damage; call it before anything is written.

    ``total`` is the listener's total of messages. Raises OSError.
    """
    file = position_file(folder, listener, reader)
    if file.exists() or not any(file.parent.glob(f"{file.name}.unusable-*")):
        return
    page = StatePage(state_file(folder, listener))
    missed = last_move(page, reader)
    page.close()
    if reader == LOG:
        _restore_log(file, held_file(folder, listener), missed, publication, total)
    else:
        account = read_account(folder, listener, reader)
        if account.left:
            _restore_added(file, added_file(folder, listener, reader), missed)
        else:
            _restore_forwarder(file, missed, publication, account)


def _restore_log(file: Path, held: Path, missed: Move, publication: Publication, total: int) -> None:
    """Save all frames that the log may not have stored; the log skips the stored ones by their position."""
    end = publication.position
    first = next((frame.begin for frame in uncertain_frames(held, publication, missed.to, end)), end)
    try:
        _write(held, publication, missed.to, end, total, UNKNOWN, missed.mark)
    except OSError as error:
        _LOGGER.warning("frames of the log daemon cannot be saved: %s; it reads them again", error)
        begin = two_terms_before(end, publication.parameters.term_length)
        create_position(file, begin, missed.to, UNKNOWN, begin, missed.mark)
        return
    create_position(file, first, end, UNKNOWN, end, total)


def save_frames(held: Path, publication: Publication, begin: int, end: int, position: ReaderPosition) -> int:
    """Add the frames that begin in [begin, end) to the file ``held``; ``begin`` is the reader's position.

    Returns the total after the last readable frame. Raises OSError.
    """
    # Limit: the frames may be a whole buffer, so they are read several times and never in memory together.
    total = position.reached_mark
    for frame in uncertain_frames(held, publication, begin, end):
        if isinstance(frame, Frame) and frame.begin >= begin and (metadata := intact_metadata(frame)):
            total = metadata.total
    _write(held, publication, begin, end, total, position.mark, position.reached_mark)
    return total


def _write(
    held: Path, publication: Publication, begin: int, end: int, total: int, mark: int, reached_mark: int
) -> None:
    """Write the uncertain frames, and what was passed before ``begin``, where the total is ``reached_mark``.

    Without this entry, messages that were dropped would be corrupt as well.
    """
    frames = uncertain_frames(held, publication, begin, end)
    saved, number = read_held_frames(held)
    passed, last_total = 0, UNKNOWN
    for frame in saved:
        if isinstance(frame, PassedFrames):
            passed += frame.messages
        elif metadata := intact_metadata(frame):
            last_total = metadata.total
    saved_total = last_total if number == UNKNOWN else number + passed
    is_first = saved_total == UNKNOWN
    before = mark if is_first else saved_total
    if before != UNKNOWN and (reached_mark > before or is_first):
        passed += reached_mark - before
        frames = heapq.merge([PassedFrames(begin, before, reached_mark, is_first)], frames, key=_order_key)
    write_held_frames(held, frames, UNKNOWN if total == UNKNOWN else total - passed)


def uncertain_frames(held: Path, publication: Publication, begin: int, end: int) -> Iterator[Frame | PassedFrames]:
    """Yield the entries of the file ``held`` and the frames in the buffer that begin in [begin, end), by position."""
    # A frame that is in both is taken from the buffer, which comes first here.
    frames = heapq.merge(frames_between(publication, begin, end), read_held_frames(held)[0], key=_order_key)
    return (next(copies) for _, copies in groupby(frames, _order_key))


def _order_key(entry: Frame | PassedFrames) -> tuple[int, bool]:
    return entry.begin, isinstance(entry, Frame)


def frames_between(publication: Publication, begin: int, end: int) -> Iterator[Frame]:
    """Yield the frames that begin in [begin, end) and that the buffer still has, without a copy."""
    begin = max(begin, two_terms_before(publication.position, publication.parameters.term_length))
    return frames_in_file(publication.path, begin, end)


def frames_in_file(path: Path, begin: int, end: int = sys.maxsize) -> Iterator[Frame]:
    """Yield the frames in the log buffer ``path`` that begin in [begin, end), without a copy."""
    with Subscription(path, begin, in_order=True) as frames:
        before = -1
        while before < frames.position < end:
            before = frames.position
            try:
                yield from (frame for frame in frames.poll(POLL_BYTES) if frame.begin < end)
            except Lapped:
                frames.position = frames.oldest() or end
            frames.release()


def carried_floor(held: Path, frames: Iterable[Frame]) -> tuple[int, int]:
    """Return the last floor, and the total there, of frames that carry counts of missed frames; (0, 0) without one.

    ``frames`` are in the log buffer. Crash: a power failure may spare only the copy in the file ``held``.
    """
    floor = _last_floor(frames)
    with contextlib.suppress(OSError):
        floor = max(floor, _last_floor(entry for entry in read_held_frames(held)[0] if isinstance(entry, Frame)))
    return floor


def _last_floor(frames: Iterable[Frame]) -> tuple[int, int]:
    carriers = (metadata for frame in frames if (metadata := intact_metadata(frame)))
    return max(((metadata.floor, metadata.floor_mark) for metadata in carriers), default=(0, 0))


def restore_floor(position: ReaderPosition, floor: int, mark: int) -> None:
    """Move a reader again that a power failure has moved back: the frames that it missed are counted."""
    if floor > position.floor:
        # Lock: the reader takes position, mark and claim together.
        with position.lock():
            position.floor_mark, position.floor = mark, floor


def note_added(folder: Path, listener: str, reader: str, publication: Publication, total: int) -> None:
    """Note the end of the buffer as the place where a removed handler is configured again. Raises OSError.

    Its account ends with the removal until its forwarder starts: a damaged position is restored from this note.
    """
    # Order: the note before the position file. Crash: in between, the next start notes its own end.
    if not position_file(folder, listener, reader).exists() and read_account(folder, listener, reader).left:
        added_file(folder, listener, reader).unlink(missing_ok=True)
        create_position(added_file(folder, listener, reader), publication.position, mark=total)


def _restore_added(file: Path, added: Path, missed: Move) -> None:
    """Let a handler that is configured again, and whose forwarder has not started, begin where it was added."""
    if not added.exists():  # it is added now: an earlier position was damaged before the handler was removed
        return
    with contextlib.suppress(NotAReaderPosition), ReaderPosition(added) as place:
        create_position(file, place.stored, missed.to, place.mark, place.stored, missed.mark)


def _restore_forwarder(file: Path, missed: Move, publication: Publication, account: Account) -> None:
    if account.base is None or account.end > publication.position:
        begin = two_terms_before(publication.position, publication.parameters.term_length)
        create_position(file, begin, missed.to, UNKNOWN, begin, missed.mark)
        return
    in_flight = missed.begin == account.end if missed.to > account.done else account.attempts > 0
    claim, mark = (account.end, account.end_mark) if in_flight else (account.done, account.mark)
    create_position(file, account.done, missed.to, mark, claim, missed.mark)


def two_terms_before(position: int, term_length: int) -> int:
    """Return the position of the oldest frame that may exist."""
    return max(position // term_length - 2, 0) * term_length
