"""A forwarder's account: its position in the log buffer and its counts, as one text.

Invariant: the text is replaced atomically (``StatePage``), so a forwarder that is killed leaves a position and counts
that belong together. Counts are totals over the handler's life, by bucket.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from penstock.counts import bucket_of, prefix_with_bucket, summed
from penstock.handover.dropped_frames import fold
from penstock.handover.paths import account_file
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.handover.state_page import StatePage

ACCOUNT, STATISTICS = 0, 1
"""Numbers of the texts: the account and the handler's statistics."""
DELIVERED, FAILED, DROPPED, CORRUPT = "delivered", "handler_failed", "policy_drop", "corrupt"
"""Fates of a message on a forwarder's route (docs/accounting.md, section 4)."""
TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Account:
    """``fates`` are counts by ``bucket@fate`` of the messages up to position ``done``.

    ``mark`` is the listener's total of messages there, ``base`` the total at the start of the route, or None before it:
    ``mark - base`` messages have a fate here or were dropped by the writer. ``base`` is negative if the listener counts
    from a smaller total since a power failure. While the handler works on frames up to ``end``,
    ``end_mark`` is the total there, ``taken`` the counts of these frames (messages under ``taken``), and ``attempts``
    the number of deliveries. ``left``: the handler was removed from the configuration.
    """

    incarnation: str = ""
    version: int = 0
    base: int | None = None
    done: int = 0
    mark: int = UNKNOWN
    end: int = 0
    end_mark: int = UNKNOWN
    attempts: int = 0
    left: bool = False
    taken: Mapping[str, int] = field(default_factory=dict)
    fates: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_flight(self) -> bool:
        """The handler is working on frames."""
        return self.end > self.done

    @property
    def messages(self) -> int:
        """The number of messages in the frames in progress."""
        return sum(count for name, count in self.taken.items() if name.endswith(f"@{TAKEN}"))

    def start_route(self, position: ReaderPosition, drops: tuple[int, Mapping[str, int]]) -> Account:
        """Start the route at the reader's position; messages that were dropped before are part of it (``dropped``)."""
        mark, stored = position.mark, position.stored
        floor_mark, missed = drops[0], sum(drops[1].values())
        # The writer's drops are part of the route, so that mark - base covers them as well.
        reached_mark = max(mark, floor_mark) if position.was_advanced else mark
        base = max(reached_mark - missed, 0) if mark != UNKNOWN else None
        return replace(self, base=base, mark=mark, end_mark=mark, done=stored, end=stored)

    def resume(self, position: ReaderPosition, drops: tuple[int, Mapping[str, int]]) -> Account:
        """Return the account with which a forwarder continues at ``position``; ``drops`` as for ``start_route``.

        The route closes, also after a power failure. Call it under the lock of ``position`` to store the result.
        """
        account = self.withdraw() if self.in_flight and position.claim != self.end else self
        # Crash: a power failure may have taken the newest account and spared the position. Messages in between are
        # corrupt, so that they count also if the writer moves this reader before its next frame. The mark is that of
        # the position only while nothing is claimed.
        is_behind = account.done < position.stored and position.claim <= position.stored
        if is_behind and account.base is not None and not account.in_flight and position.mark != UNKNOWN:
            account = account.move_to(position.stored, position.mark)
        return account.with_lost_counts(position, drops)

    def with_lost_counts(self, position: ReaderPosition, drops: tuple[int, Mapping[str, int]]) -> Account:
        """Return the account with messages as corrupt whose fates a power failure took, dropped ones or others."""
        if self.base is None or (self.in_flight and position.floor > self.done):
            return self
        reached_mark = self.reached_mark(position.floor, drops[0])
        lost = reached_mark - self.base - sum(self.fates.values()) - sum(drops[1].values())
        return self.enter(prefix_with_bucket(bucket_of(time.time()), {CORRUPT: lost})) if lost > 0 else self

    def reached_mark(self, floor: int, floor_mark: int) -> int:
        """Return the total where the forwarder continues; UNKNOWN if it cannot know.

        ``floor_mark`` is the total at the last move that is counted. Crash: not the position's. A killed writer may
        have changed that one and not the floor.
        """
        return self.mark if floor <= self.done or self.mark == UNKNOWN else max(self.mark, floor_mark)

    def resume_route(self, mark: int, position: int) -> Account:
        """Continue with a handler that is configured again, after ``mark`` messages."""
        base = None if self.base is None else self.base + mark - self.mark
        return replace(self, base=base, mark=mark, end_mark=mark, done=position, end=position, left=False)

    def end_route(self, mark: int) -> Account:
        """End the route of a removed handler; the writer dropped its unclaimed messages up to ``mark``."""
        account = self.fail() if self.in_flight else self
        return replace(account, mark=mark, end_mark=mark, left=True)

    def claim_frames(
        self, begin: int, end: int, marks: tuple[int, int], contents: Mapping[str, int], shift: int = 0
    ) -> Account:
        """Enter that the handler is about to work on frames from ``begin`` to ``end``; ``marks`` are the totals there.

        ``shift`` is the change of the listener's total that no frame explains.
        """
        base = None if self.base is None else self.base + shift
        mark, end_mark = marks
        return replace(
            self, done=begin, end=end, mark=mark, end_mark=end_mark, base=base, taken=dict(contents), attempts=0
        )

    def move_to(self, position: int, mark: int) -> Account:
        """Continue at ``position``, after ``mark`` messages."""
        return replace(self, done=position, end=position, mark=mark, end_mark=mark)

    def withdraw(self) -> Account:
        """Revert ``claim_frames`` for frames that could not be claimed."""
        return replace(self, end=self.done, end_mark=self.mark, taken={}, attempts=0)

    def retry(self) -> Account:
        """Count another delivery of the same frames."""
        return replace(self, attempts=self.attempts + 1)

    def finish(self, fates: Mapping[str, int]) -> Account:
        """Enter the ``fates`` of the frames in progress."""
        return replace(self.enter(fates), done=self.end, mark=self.end_mark, taken={}, attempts=0)

    def enter(self, fates: Mapping[str, int]) -> Account:
        """Add to the fates."""
        return replace(self, fates=fold(summed([self.fates, fates])).pruned())

    def fail(self) -> Account:
        """Enter the frames in progress as failed."""
        return self.finish({name.replace(f"@{TAKEN}", f"@{FAILED}"): n for name, n in self.taken.items()})


class Accounts:
    """The account of one forwarder in its file. One process writes, any process may read.

    ``claim``: this process is the forwarder (``StatePage``).
    """

    def __init__(self, folder: Path, listener: str, handler: str, *, claim: bool = False) -> None:
        self._page = StatePage(account_file(folder, listener, handler), texts=2, claim=claim)

    def read(self) -> Account:
        """Return the account as last written, or an empty one."""
        document = self._page.read(ACCOUNT)
        if not document:
            return Account(incarnation=f"{time.time_ns():x}")
        # Compatibility: the text has -1 for no base, which is also a base, of a route whose total is known.
        if document["base"] == UNKNOWN and (document["mark"] == UNKNOWN or document["left"]):
            document["base"] = None
        return Account(**document)

    def write(self, account: Account) -> Account:
        """Store ``account`` as a new version and return it."""
        account = replace(account, version=account.version + 1)
        document = {name: getattr(account, name) for name in Account.__slots__}
        self._page.write(ACCOUNT, document | {"base": UNKNOWN if account.base is None else account.base})
        return account

    def write_statistics(self, statistics: Mapping[str, Any]) -> None:
        """Store the handler's statistics."""
        self._page.write(STATISTICS, statistics)

    def close(self) -> None:
        self._page.close()


def read_account(folder: Path, listener: str, handler: str) -> Account:
    """Return the account as last written, or an empty one."""
    if not account_file(folder, listener, handler).exists():
        return Account()
    accounts = Accounts(folder, listener, handler)
    try:
        return accounts.read()
    finally:
        accounts.close()


def lock_account(folder: Path, listener: str, handler: str) -> IO[bytes]:
    """Wait until no other process writes the account; the lock is held while the file is open."""
    path = account_file(folder, listener, handler)
    path.touch(0o600)
    file = path.open("rb")
    # A predecessor may still be dying: two writers would count the same frames twice.
    fcntl.flock(file, fcntl.LOCK_EX)
    return file
