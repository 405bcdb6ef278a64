"""The receipt: one sum of terms that exclude each other, and one number of lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ledger.receipt import PARTS, losses_of, receipt


def listener(name: str = "in", sent: dict[str, int] | None = None, **counts: int) -> dict[str, Any]:
    lost = sent["datagrams"] - counts.get("taken", 0) if sent else None
    return {"name": name, "counts": counts, "sent": sent, "network_lost": lost, "books": []}


def route(
    source: str = "in", handler: str = "log", accepted: int = 0, in_buffer: int = 0, **lost: int
) -> dict[str, Any]:
    delivered = accepted - in_buffer - sum(lost.values())
    terms = {"policy_drop": 0, "handler_failed": 0, "corrupt": 0, **lost}
    return {
        "source": source,
        "handler": handler,
        "accepted": accepted,
        "in_buffer": in_buffer,
        "delivered": delivered,
    } | terms


def topic(name: str = "events", logged: int = 0, pending: int = 0, read: bool = True, **fates: int) -> dict[str, Any]:
    told = {fate.replace("__", "."): n for fate, n in fates.items() if n}
    book = {"topic": name, "logged": logged, "end": logged, "pending": pending, "fates": told, "unaccounted": 0}
    return book | {"read_by_pipeline": read}


def balance(listeners: list[Any], routes: list[Any], topics: list[Any], unaccounted: int = 0) -> dict[str, Any]:
    return {"listeners": listeners, "routes": routes, "topics": topics, "unaccounted": unaccounted, "pending": 0}


def of(told: Any) -> dict[str, int]:
    return {name: n for name, n in told.parts.items() if n}


def test_what_was_sent_is_the_sum_of_what_became_of_it() -> None:
    book = balance(
        [listener(taken=100, kernel_dropped=7, **{"invalid.header": 3, "incomplete.crash": 1})],
        [route(accepted=90, in_buffer=5, policy_drop=2), route("grpc", accepted=10)],
        [topic(logged=93, pending=3, landed__event=70, quarantined__bad_json=8, duplicate=2, gap__corrupt=10)],
    )
    book["listeners"][0]["counts"]["policy_drop.log"] = 2
    told = receipt(book)
    assert of(told) == {"landed": 70, "quarantined": 8, "duplicate": 2, "lost": 23, "on_the_way": 8}
    assert told.sent == sum(told.parts.values()) == 90 + 10 + 7 + 3 + 1
    assert told.losses["in"] == {"kernel_dropped": 7, "invalid.header": 3, "incomplete.crash": 1, "policy_drop.log": 2}
    assert told.losses["events"] == {"gap.corrupt": 10}
    assert set(told.parts) == set(PARTS)


def test_what_a_transformation_dropped_has_a_part_and_what_it_changed_has_landed() -> None:
    fates = {"landed__event": 6, "transformed__dropped": 4, "transformed__redacted": 5}
    for read in (True, False):
        told = receipt(balance([], [route(accepted=10)], [topic(logged=10, read=read, **fates)]))
        assert of(told) == {"landed": 6, "dropped": 4}
        assert told.sent == 10


counts = st.integers(0, 50)


@given(
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(("landed", "bad", "twice", "gone", "read", "waits"), counts)), max_size=3
    )
)
def test_nothing_is_counted_twice_or_left_out_of_the_sum(topics: list[dict[str, int]]) -> None:
    books = [
        topic(
            f"t{number}",
            sum(one.values()),
            one["waits"],
            landed__event=one["landed"],
            quarantined__no_uuid=one["bad"],
            duplicate=one["twice"],
            gap__expired_unread=one["gone"],
            gap__expired_read=one["read"],
        )
        for number, one in enumerate(topics)
    ]
    logged = sum(one["logged"] for one in books)
    told = receipt(balance([listener(kernel_dropped=4)], [route(accepted=logged + 6, in_buffer=6)], books))
    assert told.sent == logged + 6 + 4
    assert told.lost == 4 + sum(one["gone"] for one in topics) == sum(c.total() for c in told.losses.values())


def test_deleted_topic_is_deleted_and_not_lost() -> None:
    told = receipt(balance([], [], [topic(logged=9, landed__event=3, gap__deleted=4, deleted__asked=2)]))
    assert of(told) == {"landed": 3, "deleted": 6}


def test_receipt_counts_refused_requests_outside_the_sum() -> None:
    refused = {"request_refused.busy": 2, "request_refused.syntax": 1}
    told = receipt(balance([listener(**refused)], [route(accepted=1)], [topic(logged=1, landed__event=1)]))
    assert (told.refused_requests, told.sent) == (3, 1)


def test_what_all_had_read_before_it_expired_is_not_lost() -> None:
    told = receipt(balance([], [], [topic(logged=9, read=False, gap__expired_read=4, gap__expired_unread=2)]))
    assert of(told) == {"kept": 3, "expired": 4, "lost": 2}


def test_a_message_with_several_handlers_counts_once_and_what_others_missed_is_beside_it() -> None:
    routes = [route(handler="console", accepted=10, policy_drop=4), route(accepted=10)]
    told = receipt(balance([listener(taken=10)], routes, [topic(logged=10, landed__message=10)]))
    assert (of(told), told.missed) == ({"landed": 10}, {"in to console": {"policy_drop.console": 4}})


def test_a_listener_without_the_log_hands_its_messages_on() -> None:
    routes = [route(handler="site", accepted=10, in_buffer=1, handler_failed=2)]
    told = receipt(balance([listener(taken=10, **{"not_routed.log": 10})], routes, []))
    assert (of(told), told.sent) == ({"handed_on": 7, "lost": 2, "on_the_way": 1}, 10)
    assert told.losses == {"in": {"handler_failed.site": 2}}


def test_what_comes_back_from_kafka_is_not_counted_again() -> None:
    routes = [route(handler="kafka", accepted=10), route("kafka", accepted=10)]
    topics = [topic("events/0", logged=12, landed__event=10, segment=2)]
    told = receipt(balance([listener(taken=10, **{"not_routed.log": 10})], routes, topics))
    assert (of(told), told.sent) == ({"landed": 10}, 10)


def test_messages_that_wait_for_fragments_are_on_the_way() -> None:
    assert of(receipt(balance([listener(open=3), listener("other", open=-2)], [], []))) == {"on_the_way": 3}


def test_who_reports_and_who_does_not_is_said() -> None:
    told = receipt(balance([listener(sent={"datagrams": 12}, taken=10), listener("other")], [], []))
    assert (told.network, told.unreported) == ({"in": 2}, ["other"])


@pytest.mark.parametrize("name", ["policy_drop", "handler_failed", "corrupt"])
def test_what_an_api_lost_is_lost_too(name: str) -> None:
    losses = losses_of(balance([], [route("grpc", accepted=3, **{name: 1})], []))
    assert sum(counts.total() for counts in losses.values()) == 1


def test_it_is_json_with_the_same_numbers() -> None:
    overlong = {"line.overlong": 1, "skipped_bytes": 70}
    assert receipt(balance([listener(**overlong)], [], [])).document()["skipped_bytes"] == 70
    assert receipt(balance([listener(**overlong)], [], [])).lost == 1
    told = receipt(balance([listener(kernel_dropped=2)], [], [])).document()
    assert (told["sent"], told["parts"]["lost"], told["losses"]) == (2, 2, {"in": {"kernel_dropped": 2}})
