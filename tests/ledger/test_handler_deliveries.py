"""The routes of forwarders in a stretch of time are the sum of their minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.counts import Counts
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.ledger.handler_deliveries import HandlerDelivery, routes

FATES = {minute * 60: Counts({"delivered": minute, "policy_drop": 1}) for minute in range(1, 5)}
ACCEPTED = {("events", minute * 60): minute + 1 for minute in range(1, 5)}
STANDING = HandlerDelivery("events", "mine", 14, FATES, 0, 0, {}, True)


def test_a_stretch_has_its_minutes_alone(tmp_path: Path) -> None:
    others = {**ACCEPTED, ("other", 120): 9}
    minutes = [routes(tmp_path, [STANDING], others, minute)[0] for minute in (120, 180)]
    (both,) = routes(tmp_path, [STANDING], others, range(120, 240))
    assert (both.accepted, both.unaccounted) == (sum(one.accepted for one in minutes), 0) == (7, 0)
    assert both.delivered == sum(one.delivered for one in minutes)
    (whole,) = routes(tmp_path, [STANDING], others, range(1 << 40))
    assert whole == routes(tmp_path, [STANDING], others, None)[0]


def test_a_stretch_without_any_messages_has_no_route(tmp_path: Path) -> None:
    assert routes(tmp_path, [STANDING], ACCEPTED, range(600, 1200)) == []


def test_what_is_not_known_by_the_minute_is_not_claimed(tmp_path: Path) -> None:
    full = replace(STANDING, fates={minute * 60: Counts({"delivered": 1}) for minute in range(MAX_BUCKETS)})
    assert routes(tmp_path, [full], ACCEPTED, range(600)) == []
