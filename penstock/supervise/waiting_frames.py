"""What waits in a log buffer for handlers that are gone is dropped, and counted so."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from penstock.handover.accounts import Accounts
from penstock.handover.buffer import HandlerPosition, newest_frame_metadata
from penstock.handover.dropped_frames import DroppedFrameCounts, Move, dropped
from penstock.handover.paths import buffer_file, handlers_in, position_file, state_file
from penstock.handover.position import UNKNOWN, ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.handover.writer import missed_counts
from penstock.logbuffer import Frame, Lapped, LogBufferError, Subscription

_LOGGER = logging.getLogger(__name__)


def see_off(folder: Path, listener: str, handlers: list[str]) -> None:
    """Count what waits for ``handlers`` of a listener as dropped, and report each of them."""
    page = StatePage(state_file(folder, listener))
    try:
        newest = newest_frame_metadata(folder, listener)
        missed = DroppedFrameCounts(page, newest.missed if newest else 0, _floors(folder, listener))
        for handler in handlers:
            with contextlib.suppress(LogBufferError, OSError):  # what cannot be read was reported when it broke
                waited = _leave(folder, listener, handler, missed, page)
                text = "listener %r: handler %r is gone; %d messages for it are dropped"
                _LOGGER.warning(text, listener, handler, waited)
    finally:
        page.close()


def _leave(folder: Path, listener: str, handler: str, missed: DroppedFrameCounts, page: StatePage) -> int:
    """Move the reader to the end and close its account; how many messages waited."""
    place = position_file(folder, listener, handler)
    with ReaderPosition(place) as position:
        reader = HandlerPosition(handler, True, position)
        begin = reader.reached
        frames, end = _rest(buffer_file(folder, listener), begin)
        counts, mark = missed_counts(frames, reader)
        missed.skip(handler, Move(begin, end, mark), counts)
        position.floor_mark, position.floor = mark, end
        missed.confirm_skip()
        _close(Accounts(folder, listener, handler), position, mark, sum(dropped(page, handler, 0)[1].values()))
    place.unlink()
    return sum(counts.values())


def _close(accounts: Accounts, position: ReaderPosition, mark: int, missed: int) -> None:
    account = accounts.read()
    if account.in_hand and position.claim != account.end:
        account = account.withdraw()
    if account.base == UNKNOWN:
        account = account.start_route(position, missed)
    accounts.write(account.end_route(mark if mark != UNKNOWN else account.mark))
    accounts.close()


def _rest(path: Path, position: int) -> tuple[list[Frame], int]:
    """All frames from ``position`` on, and where the last of them ends."""
    frames: list[Frame] = []
    with Subscription(path, position, in_order=True) as subscription:
        before = -1
        while subscription.position > before:
            before = subscription.position
            try:
                frames += subscription.poll()
            except Lapped:
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
