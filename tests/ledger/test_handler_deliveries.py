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
    full = replace(STANDING, fates={minute * 60: Counts({"delivered": 1}) for minute in range(MAX_BUCKETS)})
    assert routes(tmp_path, [full], ACCEPTED, range(600)) == []
