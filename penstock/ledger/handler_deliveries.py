"""The routes to handlers that are processes of their own, by their accounts and what the writer dropped for them.

Nothing is walked: the listener's running total says how many messages there were, the reader's marks say how
many of them it has come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.counts import Counts, Name, SourceBucket, by_bucket
from penstock.handover.accounts import CORRUPT, DELIVERED, DROPPED, FAILED, Account, read_account
from penstock.handover.buffer import newest_frame_metadata
from penstock.handover.dropped_frames import MAX_BUCKETS, dropped
from penstock.handover.paths import LOG, accounts_in, handlers_in, position_file, state_file
from penstock.handover.position import UNKNOWN, ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.ledger.balance import Route, Within, inside
from penstock.ledger.daily_rollup import roll_counts, widened
from penstock.ledger.in_buffer import waiting_for
from penstock.logbuffer import LogBufferError

_Missed = tuple[int, Mapping[str, int]]
LOOKS = 20
"""How often is looked again while the writer moves a reader on."""


@dataclass(frozen=True, slots=True)
class HandlerDelivery:
    """How a handler stands with one listener: ``accepted`` = ``fates`` + ``in_buffer``.

    ``fates`` are counts by bucket and fate. ``through``: position behind the last frame that is in its hands, or done;
    ``taken``: messages in its hands by bucket. ``whole``: it has been there from the listener's first message on.
    Up to the bucket ``folded`` minutes are not told apart.
    """

    listener: str
    handler: str
    accepted: int
    fates: Mapping[int, Counts]
    in_buffer: int
    through: int
    taken: Mapping[int, Counts]
    whole: bool
    folded: int = -1

    def rolled(self, before: int) -> HandlerDelivery:
        """The same with what is older than ``before`` by day, and with what its account has folded itself."""
        folded = min(self.fates) if len(self.fates) >= MAX_BUCKETS else self.folded
        return replace(self, fates=_by_day(self.fates, before), taken=_by_day(self.taken, before), folded=folded)

    def route(self) -> Route:
        """The whole route."""
        total = Counts()
        for counts in self.fates.values():
            total.absorb(counts)
        return _route(self, self.accepted, total, self.in_buffer)

    def route_in(self, bucket: int, accepted: int, in_buffer: int) -> Route | None:
        """The route of one minute; None where that is not known apart from others.

        ``accepted`` is what the listener accepted in it, ``in_buffer`` what of it is before the reader.
        """
        if bucket <= self.folded:
            return None
        fates = self.fates.get(bucket, Counts())
        waits = in_buffer + self.taken.get(bucket, Counts()).total()
        return _route(self, accepted if self.whole else fates.total() + waits, fates, waits)


def _route(standing: HandlerDelivery, accepted: int, fates: Counts, in_buffer: int) -> Route:
    terms = (fates[DELIVERED], fates[DROPPED], fates[FAILED], fates[CORRUPT])
    return Route(standing.listener, standing.handler, accepted, *terms, in_buffer)


def routes(
    folder: Path,
    standings: Iterable[HandlerDelivery],
    accepted: Mapping[SourceBucket, int],
    within: Within,
    rolled: int = 0,
) -> list[Route]:
    """The routes of all forwarders, of the buckets ``within`` alone where given; ``accepted`` by source and bucket.

    What is older than ``rolled`` is there by day, also in ``accepted``.
    """
    if within is None:
        return [standing.route() for standing in standings]
    found, within = [], widened(within, rolled)
    for standing in (one.rolled(rolled) for one in standings):
        waits = roll_counts(waiting_for(folder, standing.listener, standing.through), rolled)
        keys = {*accepted, *waits, *((standing.listener, bucket) for bucket in {*standing.fates, *standing.taken})}
        buckets = {bucket for source, bucket in keys if source == standing.listener and inside(bucket, within)}
        parts = [
            standing.route_in(b, accepted.get(key, 0), waits.get(key, Counts())[Name.ACCEPTED])
            for b in sorted(buckets | ({within} if isinstance(within, int) else set()))
            for key in [(standing.listener, b)]
        ]
        known = [part for part in parts if part is not None]
        found += [_added(known)] if known and len(known) == len(parts) else []
    return found


def _added(parts: Sequence[Route]) -> Route:
    """The sum of parts of one route."""
    terms = ("accepted", "delivered", "policy_drop", "handler_failed", "corrupt", "in_buffer")
    return replace(parts[0], **{term: sum(getattr(part, term) for part in parts) for term in terms})


def standings(folder: Path, listeners: Iterable[str]) -> list[HandlerDelivery]:
    """All forwarders of ``listeners`` that there are or were."""
    found = []
    for listener in listeners:
        for handler in _handlers(folder, listener):
            standing = _standing(folder, listener, handler)
            found += [standing] if standing else []
    return found


def _handlers(folder: Path, listener: str) -> list[str]:
    return sorted({*accounts_in(folder, listener), *handlers_in(folder, listener)} - {LOG})


def _standing(folder: Path, listener: str, handler: str) -> HandlerDelivery | None:
    state = state_file(folder, listener)
    if not state.exists():
        return None
    seen = _Seen.now(folder, listener, handler, state)
    if seen.account.base == UNKNOWN:
        return None
    total = seen.account.mark if seen.account.left else max(_total(folder, listener), seen.reached)
    return HandlerDelivery(
        listener,
        handler,
        accepted=total - seen.account.base,
        fates=_by_bucket(seen.account.fates, seen.missed),
        in_buffer=total - seen.reached + seen.held - seen.account.mark,
        through=max(seen.place, seen.floor),
        taken=_by_bucket({name: n for name, n in seen.account.taken.items() if seen.held != seen.account.mark}),
        whole=seen.account.base == 0,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A reader as of one moment: its account, what the writer dropped for it, and how far it was moved on.

    ``place`` and ``held`` are position and total behind what is in its hands, ``reached`` the total where it goes on.
    """

    account: Account
    missed: Mapping[str, int]
    floor: int
    place: int
    held: int
    reached: int

    @classmethod
    def now(cls, folder: Path, listener: str, handler: str, state: Path) -> _Seen:
        """As it is now: looked at again if the writer moves it on meanwhile."""
        page = StatePage(state)
        try:
            for _ in range(LOOKS):
                account, place = read_account(folder, listener, handler), position_file(folder, listener, handler)
                account, claim, floor, missed = _placed(account, place, page, handler)
                if missed == dropped(page, handler, floor):
                    break
        finally:
            page.close()
        in_hand = account.in_hand and claim == account.end
        at, held = (account.end, account.end_mark) if in_hand else (account.done, account.mark)
        reached = max(held, missed[0]) if floor > at and not account.left else held
        return cls(account, missed[1], floor, at, held, reached)


def _placed(account: Account, path: Path, page: StatePage, handler: str) -> tuple[Account, int, int, _Missed]:
    """The account, with where the route begins if its forwarder has not begun; the reader's claim and floor; what it
    missed.
    """
    if not path.exists():
        return account, account.end, 0, dropped(page, handler, 0)
    with ReaderPosition(path) as position:
        floor = position.floor
        missed = dropped(page, handler, floor)
        if account.base == UNKNOWN and position.mark != UNKNOWN and position.claim <= position.position:
            account = account.start_route(position, sum(missed[1].values()))
        return account, position.claim, floor, missed


def _by_bucket(*many: Mapping[str, int]) -> dict[int, Counts]:
    total: dict[int, Counts] = {}
    for counts in many:
        for bucket, named in by_bucket(0, counts).items():
            total.setdefault(bucket, Counts()).absorb(named)
    return total


def _by_day(counts: Mapping[int, Counts], before: int) -> dict[int, Counts]:
    return {bucket: of for (_, bucket), of in roll_counts({("", b): c for b, c in counts.items()}, before).items()}


def _total(folder: Path, listener: str) -> int:
    """The listener's running total, by the newest frame in its log buffer; as its writer said where that is damaged."""
    newest = newest_frame_metadata(folder, listener)
    if newest:
        return newest.total
    try:
        with ReaderPosition(position_file(folder, listener, LOG)) as position:
            return position.total
    except (OSError, LogBufferError):
        return 0
