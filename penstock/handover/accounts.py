"""What a forwarder has done with a listener's messages: its place in the log buffer and its counts, as one text.

The text moves in one piece (``StatePage``), so that a forwarder killed at any moment leaves place and counts
that fit together. Counts are absolute over the handler's life, by bucket.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from penstock.counts import Counts
from penstock.handover.dropped_frames import fold
from penstock.handover.paths import account_file
from penstock.handover.position import UNKNOWN, ReaderPosition
from penstock.handover.state_page import StatePage

ACCOUNT, STATISTICS = 0, 1
"""Numbers of the texts: the account, and what the handler says of itself."""
DELIVERED, FAILED, DROPPED, CORRUPT = "delivered", "handler_failed", "policy_drop", "corrupt"
"""Fates of a message on the way to a forwarder's handler (balance, section 4)."""
TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Account:
    """``fates`` are counts by ``bucket@fate`` of the messages up to position ``done``.

    ``mark`` is the listener's total of messages there, ``base`` that total where the route begins, so that
    ``mark - base`` messages have a fate here or were dropped by the writer. While frames up to ``end`` are in the
    handler's hands, ``end_mark`` is the total there and ``taken`` says what they hold (as ``fates``, the
    messages under the name ``taken``), ``attempts`` how often they were given to it. ``left``: the handler was
    taken out of the configuration.
    """

    incarnation: str = ""
    version: int = 0
    base: int = UNKNOWN
    done: int = 0
    mark: int = UNKNOWN
    end: int = 0
    end_mark: int = UNKNOWN
    attempts: int = 0
    left: bool = False
    taken: Mapping[str, int] = field(default_factory=dict)
    fates: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_hand(self) -> bool:
        """Whether the handler is working on frames."""
        return self.end > self.done

    @property
    def messages(self) -> int:
        """Messages in the frames that it is working on."""
        return sum(count for name, count in self.taken.items() if name.endswith(f"@{TAKEN}"))

    def begun(self, position: ReaderPosition, missed: int) -> Account:
        """The route begins where the reader is; all ``missed`` messages that were ever dropped for it count."""
        mark, at = position.mark, position.stored
        base = max(position.reached_mark - missed, 0) if mark != UNKNOWN else UNKNOWN
        return replace(self, base=base, mark=mark, end_mark=mark, done=at, end=at)

    def returned(self, mark: int, position: int) -> Account:
        """The handler is in the configuration again, after ``mark`` messages."""
        base = self.base + mark - self.mark
        return replace(self, base=base, mark=mark, end_mark=mark, done=position, end=position, left=False)

    def gone(self, mark: int) -> Account:
        """It is taken out of the configuration; up to ``mark`` the writer has dropped what it had not taken."""
        done = self.failed() if self.in_hand else self
        return replace(done, mark=mark, end_mark=mark, left=True)

    def took(self, begin: int, end: int, marks: tuple[int, int], taken: Mapping[str, int], shift: int = 0) -> Account:
        """Frames from ``begin`` to ``end`` are about to be in its hands; ``marks`` are the totals there.

        ``shift``: by how much the listener's total has changed of itself.
        """
        place = {"done": begin, "end": end, "mark": marks[0], "end_mark": marks[1]}
        return replace(self, **place, base=self.base + shift, taken=dict(taken), attempts=0)  # type: ignore[arg-type]

    def withdrawn(self) -> Account:
        """They were about to be in its hands, and were not claimed."""
        return replace(self, end=self.done, end_mark=self.mark, taken={}, attempts=0)

    def tried(self) -> Account:
        """They are given to it once more."""
        return replace(self, attempts=self.attempts + 1)

    def finished(self, fates: Mapping[str, int]) -> Account:
        """They have met their ``fates``."""
        total = Counts(self.fates)
        total.absorb(fates)
        return replace(self, done=self.end, mark=self.end_mark, taken={}, attempts=0, fates=fold(total).pruned())

    def failed(self) -> Account:
        """They are given up."""
        return self.finished({name.replace(f"@{TAKEN}", f"@{FAILED}"): n for name, n in self.taken.items()})


class Accounts:
    """The account of one forwarder in its file; one writes, anybody reads."""

    def __init__(self, folder: Path, listener: str, handler: str) -> None:
        self._page = StatePage(account_file(folder, listener, handler), texts=2)

    def read(self) -> Account:
        """The account as last written; an empty one where there is none."""
        found = self._page.read(ACCOUNT)
        return Account(**found) if found else Account(incarnation=f"{time.time_ns():x}")

    def write(self, account: Account) -> Account:
        """Leave ``account`` as a new version; returns that."""
        account = replace(account, version=account.version + 1)
        self._page.write(ACCOUNT, {name: getattr(account, name) for name in Account.__slots__})
        return account

    def write_statistics(self, statistics: Mapping[str, Any]) -> None:
        """Leaves what the handler says of itself."""
        self._page.write(STATISTICS, statistics)

    def close(self) -> None:
        """Unmap."""
        self._page.close()


def read_account(folder: Path, listener: str, handler: str) -> Account:
    """The account as last written; an empty one where there is none."""
    if not account_file(folder, listener, handler).exists():
        return Account()
    accounts = Accounts(folder, listener, handler)
    try:
        return accounts.read()
    finally:
        accounts.close()


def own(folder: Path, listener: str, handler: str) -> IO[bytes]:
    """Wait until no other process writes the account; the right lasts as long as the file is open."""
    path = account_file(folder, listener, handler)
    path.touch(0o600)
    file = path.open("rb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file
