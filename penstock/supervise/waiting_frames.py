"""Drops and counts the frames in a log buffer that wait for removed handlers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from penstock.handover.buffer import HandlerPosition, newest_frame_metadata
from penstock.handover.dropped_frames import DroppedFrameCounts, Move, dropped, last_move
from penstock.handover.missed_frames import missed_counts
from penstock.handover.paths import added_file, buffer_file, handlers_in, position_file, state_file
from penstock.handover.positions.accounts import Accounts
from penstock.handover.positions.lost_position import restore_floor
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, LogBufferError, Subscription

_LOGGER = logging.getLogger(__name__)


def drop_waiting_frames(folder: Path, listener: str, handlers: list[str]) -> None:
    """Count the messages that wait for ``handlers`` of a listener as dropped, and log each handler."""
    page = StatePage(state_file(folder, listener))
    try:
        newest = newest_frame_metadata(folder, listener)
        drop_counts = DroppedFrameCounts(page, newest.missed if newest else 0, _floors(folder, listener))
        for handler in handlers:
            with contextlib.suppress(LogBufferError, OSError):  # a damaged file was reported when it was found
                waiting = _end_reader(folder, listener, handler, drop_counts, page)
                text = "listener %r: handler %r is removed; %d messages for it are dropped"
                _LOGGER.warning(text, listener, handler, waiting)
    finally:
        page.close()


def _end_reader(folder: Path, listener: str, handler: str, drop_counts: DroppedFrameCounts, page: StatePage) -> int:
    """Move the reader to the end, close its account, and return the number of messages that waited."""
    path = position_file(folder, listener, handler)
    with ReaderPosition(path) as position:
        move = last_move(page, handler)
        # Crash: a power failure took the floor of a move that is counted already.
        restore_floor(position, move.to, move.mark)
        reader = HandlerPosition(handler, True, position)
        begin = reader.reached
        frames, end = _remaining_frames(buffer_file(folder, listener), begin)
        counts, mark, _ = missed_counts(frames, reader)
        # Order: skip, floor, confirmation. Crash: in between, the recorded skip tells the next start which counts
        # belong to it.
        drop_counts.skip(handler, Move(begin, end, mark), counts)
        position.floor_mark, position.floor = mark, end
        drop_counts.confirm_skip()
        _end_account(Accounts(folder, listener, handler), position, mark, dropped(page, handler, 0))
    # Order: the account first. Crash: with the position file, the next start settles the handler again and finds
    # nothing waiting.
    added_file(folder, listener, handler).unlink(missing_ok=True)
    path.unlink()
    return sum(counts.values())


def _end_account(
    accounts: Accounts, position: ReaderPosition, mark: int, missed: tuple[int, Mapping[str, int]]
) -> None:
    account = accounts.read()
    if account.in_flight and position.claim != account.end:
        account = account.withdraw()
    if account.base is None:
        account = account.start_route(position, missed)
    elif account.left and position.mark > account.mark:
        # The handler was configured again, and its forwarder did not start. Crash: not so once this is the end.
        account = account.resume_route(position.mark, position.stored)
    # Both copies in the file get the end, so that one damaged copy does not continue a route that has ended.
    accounts.write(accounts.write(account.end_route(mark if mark != UNKNOWN else account.mark)))
    accounts.close()


def _remaining_frames(path: Path, position: int) -> tuple[list[Frame], int]:
    """Return all frames from ``position`` on, and the position behind the last."""
    frames: list[Frame] = []
    with Subscription(path, position, in_order=True) as subscription:
        previous = -1
        while subscription.position > previous:
            previous = subscription.position
            try:
                frames += subscription.poll()
            except Lapped:
                # The writer has reused the term: its frames are counted as dropped by the writer already.
                subscription.position = subscription.oldest() or subscription.position
        return frames, subscription.position


def _floors(folder: Path, listener: str) -> dict[str, int]:
    floors = {}
    for handler in handlers_in(folder, listener):
        with (
            contextlib.suppress(LogBufferError, OSError),
            ReaderPosition(position_file(folder, listener, handler)) as position,
        ):
            floors[handler] = position.floor
    return floors
