"""Where a reader stands whose position file was put aside: by its account, and by what the writer dropped for it.

Nothing that was dropped for it comes to it then, and nothing that it has done is dropped.
"""

from __future__ import annotations

from pathlib import Path

from penstock.handover.accounts import Account, Accounts
from penstock.handover.dropped_frames import Move, last_move
from penstock.handover.paths import LOG, position_file, state_file
from penstock.handover.position import UNKNOWN, make_position
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Publication


def restore_lost(folder: Path, listener: str, reader: str, publication: Publication) -> None:
    """Make the position file of ``reader`` again, if it is gone because it was put aside. Raises OSError."""
    file = position_file(folder, listener, reader)
    if file.exists() or not any(file.parent.glob(f"{file.name}.unusable-*")):
        return
    page = StatePage(state_file(folder, listener))
    missed = last_move(page, reader)
    page.close()
    if reader == LOG:
        _restore_log(file, missed, publication)
    else:
        _restore_forwarder(file, missed, publication, _account(folder, listener, reader))


def _restore_log(file: Path, missed: Move, publication: Publication) -> None:
    """It reads again what it may have stored, and skips what it has: until then all of that is in its hands."""
    begin = two_terms_before(publication.position, publication.parameters.term_length)
    make_position(file, begin, missed.to, UNKNOWN, publication.position, missed.mark)


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


def _account(folder: Path, listener: str, reader: str) -> Account:
    accounts = Accounts(folder, listener, reader)
    try:
        return accounts.read()
    finally:
        accounts.close()


def two_terms_before(position: int, term_length: int) -> int:
    """Where the oldest frame may be."""
    return max(position // term_length - 2, 0) * term_length
