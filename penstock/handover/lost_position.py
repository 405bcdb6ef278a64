"""Where a reader stands whose position file was put aside: by its account, and by what the writer dropped for it.

Nothing that was dropped for it comes to it then, and nothing that it has done is dropped.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from penstock.handover.accounts import Account, read_account
from penstock.handover.dropped_frames import Move, dropped, last_move, moved_readers
from penstock.handover.held_frames import keep_frames, kept_frames
from penstock.handover.paths import LOG, accounts_in, held_file, position_file, state_file
from penstock.handover.position import UNKNOWN, make_position
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, Publication, Subscription

_LOGGER = logging.getLogger(__name__)


class Told(NamedTuple):
    """How far readers have been, and how many messages there were at least: by accounts, and by what was dropped."""

    position: int = 0
    total: int = 0


def told_in(folder: Path, listener: str) -> Told:
    """What is known of all handlers that there ever were, where the log buffer itself is lost."""
    page = StatePage(state_file(folder, listener))
    readers = {*accounts_in(folder, listener), *moved_readers(page)}
    found = [_told(page, read_account(folder, listener, reader), reader) for reader in readers]
    page.close()
    return Told(max((one.position for one in found), default=0), max((one.total for one in found), default=0))


def _told(page: StatePage, account: Account, reader: str) -> Told:
    move = last_move(page, reader)
    met = sum(dropped(page, reader, move.to)[1].values()) + sum(account.fates.values())
    begin = account.base if account.base != UNKNOWN else 0  # less than nothing where the total began anew
    return Told(max(move.to, account.end), max(move.mark, account.end_mark, begin + met, 0))


def restore_lost(folder: Path, listener: str, reader: str, publication: Publication, total: int) -> None:
    """Make the position file of ``reader`` again, if it is gone because it was put aside; before anything is written.

    ``total``: the listener's total of messages. Raises OSError.
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
        _restore_forwarder(file, missed, publication, read_account(folder, listener, reader))


def _restore_log(file: Path, held: Path, missed: Move, publication: Publication, total: int) -> None:
    """All that it may not have stored is kept aside for it: of that it skips what it has."""
    end = publication.position
    frames = {frame.begin: frame for frame in [*kept_frames(held)[0], *_frames(publication, missed.to)]}
    try:
        keep_frames(held, [frames[begin] for begin in sorted(frames)], total)
    except OSError as error:
        _LOGGER.warning("what the log daemon may not have stored cannot be kept aside: %s; it reads it again", error)
        begin = two_terms_before(end, publication.parameters.term_length)
        make_position(file, begin, missed.to, UNKNOWN, begin, missed.mark)
        return
    make_position(file, min(frames, default=end), end, UNKNOWN, end, total)


def _frames(publication: Publication, begin: int) -> list[Frame]:
    """The frames that are still there, from ``begin`` on."""
    begin = max(begin, two_terms_before(publication.position, publication.parameters.term_length))
    found: list[Frame] = []
    with Subscription(publication.path, begin, in_order=True) as frames:
        before = -1
        while before < frames.position < publication.position:
            before = frames.position
            try:
                found += [one._replace(data=memoryview(bytes(one.data))) for one in frames.poll()]
            except Lapped:
                frames.position = frames.oldest() or publication.position
    return found


def _restore_forwarder(file: Path, missed: Move, publication: Publication, account: Account) -> None:
    if account.left:  # it comes back: its route begins again at the end
        return
    if account.base == UNKNOWN or account.end > publication.position:
        begin = two_terms_before(publication.position, publication.parameters.term_length)
        make_position(file, begin, missed.to, UNKNOWN, begin, missed.mark)
        return
    in_hand = missed.begin == account.end if missed.to > account.done else account.attempts > 0
    claim, mark = (account.end, account.end_mark) if in_hand else (account.done, account.mark)
    make_position(file, account.done, missed.to, mark, claim, missed.mark)


def two_terms_before(position: int, term_length: int) -> int:
    """Where the oldest frame may be."""
    return max(position // term_length - 2, 0) * term_length
