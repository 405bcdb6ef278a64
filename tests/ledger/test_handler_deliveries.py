"""The routes of forwarders in a stretch of time are the sum of their minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.counts import Counts
from penstock.handover.dropped_frames import MAX_BUCKETS, DroppedFrameCounts, Move
from penstock.handover.paths import state_file
from penstock.handover.positions.accounts import Account, Accounts
from penstock.handover.state_page import StatePage
from penstock.ledger.handler_deliveries import HandlerDelivery, handler_deliveries, routes

FATES = {minute * 60: Counts({"delivered": minute, "policy_drop": 1}) for minute in range(1, 5)}
ACCEPTED = {("events", minute * 60): minute + 1 for minute in range(1, 5)}
STANDING = HandlerDelivery("events", "mine", 14, FATES, 0, 0, {}, True)


def test_stretch_has_only_the_counts_of_its_minutes(tmp_path: Path) -> None:
    counts = {**ACCEPTED, ("other", 120): 9}
    minutes = [routes(tmp_path, [STANDING], counts, minute)[0] for minute in (120, 180)]
    (both,) = routes(tmp_path, [STANDING], counts, range(120, 240))
    assert (both.accepted, both.unaccounted) == (sum(minute_route.accepted for minute_route in minutes), 0) == (7, 0)
    assert both.delivered == sum(minute_route.delivered for minute_route in minutes)
    (total,) = routes(tmp_path, [STANDING], counts, range(1 << 40))
    assert total == routes(tmp_path, [STANDING], counts, None)[0]


def test_stretch_without_messages_has_no_route(tmp_path: Path) -> None:
    assert routes(tmp_path, [STANDING], ACCEPTED, range(600, 1200)) == []


def test_counts_without_a_minute_are_left_out_of_a_stretch(tmp_path: Path) -> None:
    account = Account(base=0, mark=40, fates={f"{60 * minute}@delivered": 1 for minute in range(MAX_BUCKETS)})
    (full,) = deliveries(tmp_path, account, {"2460@policy_drop": 2})
    assert routes(tmp_path, [full], ACCEPTED, range(600)) == []
    (last,) = routes(tmp_path, [full], {("events", 2460): 2}, range(2400, 2520))
    assert (last.policy_drop, last.unaccounted) == (2, 0)


def test_drops_of_a_writer_with_few_minutes_leave_the_minutes_of_the_account(tmp_path: Path) -> None:
    fates = {f"{60 * minute}@delivered": 1 for minute in range(30, 60)}
    drops = {f"{60 * minute}@policy_drop": 1 for minute in range(15)}
    (delivery,) = deliveries(tmp_path, Account(base=0, mark=30, fates=fates), drops)
    accepted = {("events", 60 * minute): 1 for minute in [*range(15), *range(30, 60)]}
    (route,) = routes(tmp_path, [delivery], accepted, 0)
    assert (route.accepted, route.policy_drop, route.unaccounted) == (1, 1, 0)


def deliveries(folder: Path, account: Account, drops: Mapping[str, int]) -> list[HandlerDelivery]:
    """Return the delivery of a handler with an account, and with messages that the writer dropped for it."""
    page = StatePage(state_file(folder, "events"))
    writer = DroppedFrameCounts(page)
    writer.skip("mine", Move(0, 8, account.mark + sum(drops.values())), drops)
    writer.confirm_skip()
    page.close()
    accounts = Accounts(folder, "events", "mine")
    accounts.write(account)
    accounts.close()
    return handler_deliveries(folder, ["events"])
