"""Routes to handlers that run as processes of their own, from their accounts and what the writer dropped for them.

No frame is read: the listener's running total gives the number of messages, the reader's marks how many it passed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.counts import Counts, Name, SourceBucket, by_bucket
from penstock.handover.buffer import newest_frame_metadata
from penstock.handover.dropped_frames import MAX_BUCKETS, dropped
from penstock.handover.paths import LOG, accounts_in, handlers_in, position_file, state_file
from penstock.handover.positions.accounts import CORRUPT, DELIVERED, DROPPED, FAILED, Account, read_account
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.ledger.balance import Route, Within, inside
from penstock.ledger.book.daily_rollup import roll_counts, widened
from penstock.ledger.in_buffer import waiting_for
from penstock.logbuffer import LogBufferError

_Dropped = tuple[int, Mapping[str, int]]
"""Frames that the writer dropped for a reader: the total at which it continues, and counts by bucket and reason."""
MAX_ATTEMPTS = 20
"""Limit for reads that are repeated because the writer advanced the reader in between."""


@dataclass(frozen=True, slots=True)
class HandlerDelivery:
    """The deliveries of one handler for one listener. Invariant: ``accepted`` = ``fates`` + ``in_buffer``.

    ``fates`` are counts by bucket and fate. ``through`` is the position after the last frame that is in flight or
    done; ``in_flight`` are the messages in flight by bucket. ``since_start`` is true if the handler exists since
    the listener's first message. The counts of bucket ``folded`` include older buckets, and earlier ones have a part.
    """

    listener: str
    handler: str
    accepted: int
    fates: Mapping[int, Counts]
    in_buffer: int
    through: int
    in_flight: Mapping[int, Counts]
    since_start: bool
    folded: int = -1

    def rolled(self, before: int) -> HandlerDelivery:
        """Return the deliveries with buckets older than ``before`` summed by day."""
        return replace(self, fates=_by_day(self.fates, before), in_flight=_by_day(self.in_flight, before))

    def route(self) -> Route:
        """Return the route over all buckets."""
        total = Counts()
        for counts in self.fates.values():
            total.absorb(counts)
        return _route(self, self.accepted, total, self.in_buffer)

    def route_in(self, bucket: int, accepted: int, in_buffer: int) -> Route | None:
        """Return the route of one bucket; None if that bucket is not known separately.

        ``accepted`` is what the listener accepted in it, ``in_buffer`` the part of it that the reader has not reached.
        """
        if bucket <= self.folded:
            return None
        fates = self.fates.get(bucket, Counts())
        waiting = in_buffer + self.in_flight.get(bucket, Counts()).total()
        return _route(self, accepted if self.since_start else fates.total() + waiting, fates, waiting)


def _route(delivery: HandlerDelivery, accepted: int, fates: Counts, in_buffer: int) -> Route:
    terms = (fates[DELIVERED], fates[DROPPED], fates[FAILED], fates[CORRUPT])
    return Route(delivery.listener, delivery.handler, accepted, *terms, in_buffer)


def routes(
    folder: Path,
    handler_deliveries: Iterable[HandlerDelivery],
    accepted: Mapping[SourceBucket, int],
    within: Within,
    rolled: int = 0,
) -> list[Route]:
    """Return the routes of all forwarders, limited to the buckets ``within`` if given; ``accepted`` by source and
    bucket.

    Buckets older than ``rolled`` are summed by day, in ``accepted`` as well.
    """
    if within is None:
        return [delivery.route() for delivery in handler_deliveries]
    summed_routes, within = [], widened(within, rolled)
    for delivery in (unrolled.rolled(rolled) for unrolled in handler_deliveries):
        try:
            waiting = roll_counts(waiting_for(folder, delivery.listener, delivery.through), rolled)
        except (OSError, LogBufferError):
            # The minutes of waiting messages are unknown, so the route would not close.
            continue
        keys = {
            *accepted,
            *waiting,
            *((delivery.listener, bucket) for bucket in {*delivery.fates, *delivery.in_flight}),
        }
        buckets = {bucket for source, bucket in keys if source == delivery.listener and inside(bucket, within)}
        parts = [
            delivery.route_in(start, accepted.get(key, 0), waiting.get(key, Counts())[Name.ACCEPTED])
            for start in sorted(buckets | ({within} if isinstance(within, int) else set()))
            for key in [(delivery.listener, start)]
        ]
        known_parts = [part for part in parts if part is not None]
        # A route of which one bucket is unknown would not close, so it is left out as a whole.
        summed_routes += [_sum_routes(known_parts)] if known_parts and len(known_parts) == len(parts) else []
    return summed_routes


def _sum_routes(parts: Sequence[Route]) -> Route:
    terms = ("accepted", "delivered", "policy_drop", "handler_failed", "corrupt", "in_buffer")
    return replace(parts[0], **{term: sum(getattr(part, term) for part in parts) for term in terms})


def handler_deliveries(folder: Path, listeners: Iterable[str]) -> list[HandlerDelivery]:
    """Return the deliveries of all forwarders of ``listeners``, past ones included."""
    deliveries = []
    for listener in listeners:
        for handler in _handler_names(folder, listener):
            delivery = _delivery(folder, listener, handler)
            deliveries += [delivery] if delivery else []
    return deliveries


def _handler_names(folder: Path, listener: str) -> list[str]:
    return sorted({*accounts_in(folder, listener), *handlers_in(folder, listener)} - {LOG})


def _delivery(folder: Path, listener: str, handler: str) -> HandlerDelivery | None:
    state = state_file(folder, listener)
    if not state.is_file():
        return None
    reader = _ReaderState.read(folder, listener, handler, state)
    account = reader.account
    if account.base is None:
        return None
    total = account.mark if account.left else max(_total(folder, listener), reader.reached)
    has_messages_in_flight = reader.total_in_flight != account.mark
    return HandlerDelivery(
        listener,
        handler,
        accepted=total - account.base,
        fates=_by_bucket(account.fates, reader.missed),
        in_buffer=total - reader.reached + reader.total_in_flight - account.mark,
        through=max(reader.position, reader.floor),
        in_flight=_by_bucket(account.taken if has_messages_in_flight else {}),
        since_start=account.base == 0,
        folded=max(_folded(account.fates), _folded(reader.missed)),
    )


@dataclass(frozen=True, slots=True)
class _ReaderState:
    """A reader as of one moment: its account, what the writer dropped for it, and how far it was advanced.

    ``position`` and ``total_in_flight`` are position and total after the messages in flight, ``reached`` is the total
    at which it continues.
    """

    account: Account
    missed: Mapping[str, int]
    floor: int
    position: int
    total_in_flight: int
    reached: int

    @classmethod
    def read(cls, folder: Path, listener: str, handler: str, state: Path) -> _ReaderState:
        """Read the state; repeat if the writer advances the reader in between."""
        page = StatePage(state)
        try:
            for _ in range(MAX_ATTEMPTS):
                account, path = read_account(folder, listener, handler), position_file(folder, listener, handler)
                version = account.version
                account, claim, floor, missed = _read_reader(account, path, page, handler)
                # The writer changes floor and drop counts in two steps, the forwarder account and position: equal ones
                # before and after show that they belong together.
                is_unchanged = read_account(folder, listener, handler).version == version
                if is_unchanged and missed == dropped(page, handler, floor):
                    break
        finally:
            page.close()
        in_flight = account.in_flight and claim == account.end
        position, total_held = (account.end, account.end_mark) if in_flight else (account.done, account.mark)
        reached = max(total_held, missed[0]) if floor > position and not account.left else total_held
        return cls(account, missed[1], floor, position, total_held, reached)


def _read_reader(account: Account, path: Path, page: StatePage, handler: str) -> tuple[Account, int, int, _Dropped]:
    """Return account, claim, floor and drop counts of a reader, the account as its forwarder continues it."""
    position = None
    # A missing file would be created. The receiver restores a damaged one from the account when it starts.
    with contextlib.suppress(OSError, LogBufferError):
        position = ReaderPosition(path) if path.exists() else None
    if position is None:
        return account, account.end, 0, dropped(page, handler, 0)
    with position:
        floor = position.floor
        missed = dropped(page, handler, floor)
        if account.base is None and position.mark != UNKNOWN and position.claim <= position.position:
            account = account.start_route(position, missed)
        # After a power failure the account does not fit the floor until the forwarder has started.
        return account if account.left else account.resume(position, missed), position.claim, floor, missed


def _by_bucket(*mappings: Mapping[str, int]) -> dict[int, Counts]:
    total: dict[int, Counts] = {}
    for counts in mappings:
        for bucket, bucket_counts in by_bucket(0, counts).items():
            total.setdefault(bucket, Counts()).absorb(bucket_counts)
    return total


def _folded(counts: Mapping[str, int]) -> int:
    """Return the bucket that has the counts of all older ones, too; -1 if no buckets were summed."""
    buckets = by_bucket(0, counts)
    # The account and the writer's drops each sum their oldest buckets once they have `MAX_BUCKETS`.
    return min(buckets) if len(buckets) >= MAX_BUCKETS else -1


def _by_day(counts: Mapping[int, Counts], before: int) -> dict[int, Counts]:
    return {
        bucket: summed for (_, bucket), summed in roll_counts({("", b): c for b, c in counts.items()}, before).items()
    }


def _total(folder: Path, listener: str) -> int:
    """Return the listener's running total from its newest frame; from its writer's position if the frame is damaged."""
    newest = newest_frame_metadata(folder, listener)
    if newest:
        return newest.total
    try:
        with ReaderPosition(position_file(folder, listener, LOG)) as position:
            return position.total
    except (OSError, LogBufferError):
        return 0
