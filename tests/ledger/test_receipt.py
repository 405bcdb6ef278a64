"""The receipt: one sum of disjoint terms, and one number of lost messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Counts
from penstock.ledger.posts import EventPost
from penstock.ledger.receipt import PARTS, losses_of, receipt, unwritten_losses


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
    nonzero_fates = {fate.replace("__", "."): n for fate, n in fates.items() if n}
    book = {
        "topic": name,
        "logged": logged,
        "end": logged,
        "pending": pending,
        "fates": nonzero_fates,
        "unaccounted": 0,
    }
    return book | {"read_by_pipeline": read}


def balance(listeners: list[Any], routes: list[Any], topics: list[Any], unaccounted: int = 0) -> dict[str, Any]:
    return {"listeners": listeners, "routes": routes, "topics": topics, "unaccounted": unaccounted, "pending": 0}


def nonzero_parts(summary: Any) -> dict[str, int]:
    return {name: n for name, n in summary.parts.items() if n}


def test_sent_is_the_sum_of_all_parts() -> None:
    book = balance(
        [listener(taken=100, kernel_dropped=7, **{"invalid.header": 3, "incomplete.crash": 1})],
        [route(accepted=90, in_buffer=5, policy_drop=2), route("grpc", accepted=10)],
        [topic(logged=93, pending=3, landed__event=70, quarantined__bad_json=8, duplicate=2, gap__corrupt=10)],
    )
    book["listeners"][0]["counts"]["policy_drop.log"] = 2
    summary = receipt(book)
    assert nonzero_parts(summary) == {"landed": 70, "quarantined": 8, "duplicate": 2, "lost": 23, "on_the_way": 8}
    assert summary.sent == sum(summary.parts.values()) == 90 + 10 + 7 + 3 + 1
    assert summary.losses["in"] == {
        "kernel_dropped": 7,
        "invalid.header": 3,
        "incomplete.crash": 1,
        "policy_drop.log": 2,
    }
    assert summary.losses["events"] == {"gap.corrupt": 10}
    assert set(summary.parts) == set(PARTS)


def test_rows_dropped_by_a_transformation_are_a_part_and_changed_rows_have_landed() -> None:
    fates = {"landed__event": 6, "transformed__dropped": 4, "transformed__redacted": 5}
    for read in (True, False):
        summary = receipt(balance([], [route(accepted=10)], [topic(logged=10, read=read, **fates)]))
        assert nonzero_parts(summary) == {"landed": 6, "dropped": 4}
        assert summary.sent == 10


counts = st.integers(0, 50)


@given(
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(("landed", "bad", "twice", "gone", "read", "waits"), counts)), max_size=3
    )
)
def test_each_message_is_counted_once_in_the_sum(topics: list[dict[str, int]]) -> None:
    books = [
        topic(
            f"t{number}",
            sum(rows.values()),
            rows["waits"],
            landed__event=rows["landed"],
            quarantined__no_uuid=rows["bad"],
            duplicate=rows["twice"],
            gap__expired_unread=rows["gone"],
            gap__expired_read=rows["read"],
        )
        for number, rows in enumerate(topics)
    ]
    logged = sum(rows["logged"] for rows in books)
    summary = receipt(balance([listener(kernel_dropped=4)], [route(accepted=logged + 6, in_buffer=6)], books))
    assert summary.sent == logged + 6 + 4
    assert summary.lost == 4 + sum(rows["gone"] for rows in topics) == sum(c.total() for c in summary.losses.values())


def test_deleted_topic_is_deleted_and_not_lost() -> None:
    summary = receipt(balance([], [], [topic(logged=9, landed__event=3, gap__deleted=4, deleted__asked=2)]))
    assert nonzero_parts(summary) == {"landed": 3, "deleted": 6}


def test_receipt_counts_refused_requests_outside_the_sum() -> None:
    refused = {"request_refused.busy": 2, "request_refused.syntax": 1}
    summary = receipt(balance([listener(**refused)], [route(accepted=1)], [topic(logged=1, landed__event=1)]))
    assert (summary.refused_requests, summary.sent) == (3, 1)


def test_rows_read_before_they_expired_are_not_lost() -> None:
    summary = receipt(balance([], [], [topic(logged=9, read=False, gap__expired_read=4, gap__expired_unread=2)]))
    assert nonzero_parts(summary) == {"kept": 3, "expired": 4, "lost": 2}


def test_message_with_several_handlers_counts_once_with_misses_listed_separately() -> None:
    routes = [route(handler="console", accepted=10, policy_drop=4), route(accepted=10)]
    summary = receipt(balance([listener(taken=10)], routes, [topic(logged=10, landed__message=10)]))
    assert (nonzero_parts(summary), summary.missed) == ({"landed": 10}, {"in to console": {"policy_drop.console": 4}})


def test_messages_of_a_listener_without_the_log_are_handed_on() -> None:
    routes = [route(handler="site", accepted=10, in_buffer=1, handler_failed=2)]
    summary = receipt(balance([listener(taken=10, **{"not_routed.log": 10})], routes, []))
    assert (nonzero_parts(summary), summary.sent) == ({"handed_on": 7, "lost": 2, "on_the_way": 1}, 10)
    assert summary.losses == {"in": {"handler_failed.site": 2}}


def test_messages_read_back_from_kafka_are_not_counted_again() -> None:
    routes = [route(handler="kafka", accepted=10), route("kafka", accepted=10)]
    topics = [topic("events/0", logged=12, landed__event=10, segment=2)]
    summary = receipt(balance([listener(taken=10, **{"not_routed.log": 10})], routes, topics))
    assert (nonzero_parts(summary), summary.sent) == ({"landed": 10}, 10)


def test_messages_that_wait_for_fragments_are_on_the_way() -> None:
    assert nonzero_parts(receipt(balance([listener(open=3), listener("other", open=-2)], [], []))) == {"on_the_way": 3}


def test_listeners_without_sender_counts_are_listed() -> None:
    summary = receipt(balance([listener(sent={"datagrams": 12}, taken=10), listener("other")], [], []))
    assert (summary.network, summary.unreported) == ({"in": 2}, ["other"])


@pytest.mark.parametrize("name", ["policy_drop", "handler_failed", "corrupt"])
def test_losses_of_an_api_are_lost(name: str) -> None:
    losses = losses_of(balance([], [route("grpc", accepted=3, **{name: 1})], []))
    assert sum(counts.total() for counts in losses.values()) == 1


def test_losses_of_a_full_disk_have_its_reason() -> None:
    full = EventPost("d", 0, "disk", 60_000, 90_000, cause="No space left on device")
    limited = EventPost("m", 0, "disk", 160_000, cause="log.max_bytes: 9 of 9 bytes are used")
    events = [
        full,
        EventPost("d in", 0, "loss", 60_000, 91_000, place="in", during="d", losses=Counts({"policy_drop.log": 7})),
        limited,
        EventPost("m in", 0, "loss", 160_000, 161_000, place="in", during="m", losses=Counts({"policy_drop.log": 2})),
        EventPost("x", 0, "loss", 160_000, 161_000, place="in", losses=Counts({"policy_drop.log": 50})),
    ]
    documents = [event.document() for event in events]
    book = balance([listener(**{"policy_drop.log": 10})], [route(accepted=10, policy_drop=10)], [])
    causes = [{}, unwritten_losses(documents), unwritten_losses(documents, until_ms=100_000)]
    assert [losses_of(book | {"unwritten": cause}) for cause in causes] == [
        {"in": {"policy_drop.log": 10}},
        {"in": {"policy_drop.log": 1, "disk_full": 7, "log_full": 2}},
        {"in": {"policy_drop.log": 3, "disk_full": 7}},
    ]
    assert (causes[1]["since"], causes[1]["until"], causes[1]["full"]) == (160_000, 0, "log")
    assert (causes[2]["since"], causes[2]["until"], causes[2]["full"]) == (60_000, 90_000, "disk")
    assert unwritten_losses(documents, since_ms=95_000, until_ms=100_000) == {}
    book["listeners"][0]["counts"]["policy_drop.log"] = 5
    assert losses_of(book | {"unwritten": causes[2]}) == {"in": {"disk_full": 5}}, "a part of the time has fewer"


def test_document_has_the_same_numbers() -> None:
    overlong = {"line.overlong": 1, "skipped_bytes": 70}
    assert receipt(balance([listener(**overlong)], [], [])).document()["skipped_bytes"] == 70
    assert receipt(balance([listener(**overlong)], [], [])).lost == 1
    document = receipt(balance([listener(kernel_dropped=2)], [], [])).document()
    assert (document["sent"], document["parts"]["lost"], document["losses"]) == (2, 2, {"in": {"kernel_dropped": 2}})


def test_offsets_of_kafka_without_a_message_are_neither_lost_nor_sent() -> None:
    fates = {"not_a_message__control": 3, "not_a_message__aborted": 30, "compacted": 7, "gap__expired_before": 2}
    partition = topic("events/0", logged=53, landed__event=10, gap__expired_unread=1, **fates)
    summary = receipt(balance([], [], [partition]))
    assert (nonzero_parts(summary), summary.sent) == ({"landed": 10, "lost": 1}, 11)
    assert summary.without_message.total() == 42
    assert summary.document()["without_message"]["not_a_message.aborted"] == 30


def test_unread_topics_wait_while_the_pipeline_starts() -> None:
    books = balance([], [], [topic(logged=9, read=False)])
    assert nonzero_parts(receipt(books)) == {"kept": 9}
    starting = receipt(books | {"pipeline_starts": True})
    assert (nonzero_parts(starting), starting.sent) == ({"on_the_way": 9}, 9)
    failing = receipt(books | {"landing_failure": {"cause": "x"}})
    assert nonzero_parts(failing) == {"on_the_way": 9}, "a pipeline that fails does not run all the time"


def test_rows_that_were_sent_back_are_not_open() -> None:
    books = balance([], [], [topic(logged=9, quarantined__bad_json=5, quarantined__no_uuid=1, landed__event=3)])
    resolved = {"events": {"quarantined.bad_json": 4, "quarantined.no_uuid": 7}, "gone": {"quarantined.bad_json": 2}}
    summary = receipt(books | {"sent_back": resolved})
    assert nonzero_parts(summary) == {"landed": 3, "quarantined": 1, "sent_back": 5}
    assert summary.quarantined == {"events": {"quarantined.bad_json": 1, "quarantined.no_uuid": 0}}
    assert summary.sent == 9
