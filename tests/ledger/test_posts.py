"""Posts are parsed, or refused with a reason."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Counts
from penstock.ledger.posts import (
    AuditPost,
    BadPost,
    ClientPost,
    EventPost,
    LandedPost,
    Post,
    SenderPost,
    SenderTotals,
    dump,
    parse,
)

LANDED = LandedPost("events", 3, 100, {("events-udp", 60): Counts({"landed.event": 9, "duplicate": 1})})
UUIDS = {("events-udp", 60): Counts({"rows.landed.event": 9, "sum.landed.event": (1 << 64) - 1})}
HASHED = replace(LANDED, uuids=UUIDS)
BACKFILL = LandedPost("events", 3, 0, {("events-udp", 60): Counts({"landed.event": 9})}, 0, {}, 2, ((4, 9), (12, 16)))
CLIENT = ClientPost("events-udp", "me", 1, Counts({"datagrams": 5}))
AUDIT = AuditPost("kafka", "shop", "1f", 2, {("events", 60): Counts({"attempt": 3, "success": 2, "failure": 1})})
SENDERS = SenderPost("in", "1f", 2, {"192.0.2.1": SenderTotals(5, 9, Counts({"accepted": 3, "hole": -1}))})
EVENT = EventPost("r in", 2, "loss", 9_000, 9_400, place="in", during="r", losses=Counts({"kernel_dropped": 5}))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["tier", "topic", "counts", "through", "incarnation", "source", "x"]), inner)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "post", [LANDED, HASHED, BACKFILL, CLIENT, AUDIT, EVENT, SENDERS, EventPost("x", 0, "start", 0)]
)
def test_post_is_parsed_back_unchanged(post: Post) -> None:
    assert parse(json.loads(dump(post))) == post


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"tier": "sunk"}, "unknown tier 'sunk'"),
        ({"through": -1}, "-1 is not a count"),
        ({"through": None}, "None is not a count"),
        ({"topic": 7}, "7 is not a text"),
        ({"counts": [{"source": "a", "counts": {}}]}, "needs 'bucket'"),
        ({"counts": [{"source": "a", "bucket": 0, "counts": {"x": "1"}}]}, "'1' is not a count"),
    ],
)
def test_bad_post_is_refused_with_its_reason(change: dict[str, Any], error_text: str) -> None:
    with pytest.raises(BadPost) as caught:
        parse({**json.loads(dump(LANDED)), **change})
    assert error_text in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"senders": {str(number): {} for number in range(1001)}}, "1001 senders are more than 1000"),
        ({"senders": {"a": {"first": -1, "last": 0, "counts": {}}}}, "-1 is not a count"),
        ({"senders": {"a": {"first": 1, "last": 0, "counts": {"x": 1.5}}}}, "1.5 is not a count"),
        ({"senders": {"a" * 1025: {"first": 1, "last": 0, "counts": {}}}}, "a name of 1025 characters"),
        ({"senders": []}, "[] is not an object"),
        ({"senders": {"a": {"first": 1, "counts": {}}}}, "needs 'last'"),
    ],
)
def test_bad_post_of_senders_is_refused_with_its_reason(change: dict[str, Any], error_text: str) -> None:
    with pytest.raises(BadPost) as caught:
        parse({**json.loads(dump(SENDERS)), **change})
    assert error_text in str(caught.value)


@given(JSON)
def test_any_document_is_parsed_or_refused(document: Any) -> None:
    with contextlib.suppress(BadPost):
        parse(document)


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"tier": "logged"}, "an auditor's tier"),
        ({"tier": "Kafka"}, "an auditor's tier"),
        ({"tier": ["kafka"]}, "an auditor's tier"),
        ({"source": None}, "None is not a text"),
        ({"source": "x" * 2000}, "2000 characters"),
        ({"counts": [{"bucket": 0, "counts": {}}]}, "needs 'topic'"),
        ({"counts": [{"topic": "a", "bucket": 0, "counts": {"attempt": -1}}]}, "-1 is not a count"),
    ],
)
def test_bad_post_of_an_auditor_is_refused_with_its_reason(change: dict[str, Any], error_text: str) -> None:
    with pytest.raises(BadPost) as caught:
        parse({**json.loads(dump(AUDIT)), **change})
    assert error_text in str(caught.value)


def test_sums_of_hashes_have_a_larger_bound_than_counts() -> None:
    def landed(total: int) -> dict[str, Any]:
        entry = {"source": "u", "bucket": 0, "counts": {"landed.event": 3}, "uuids": {"rows.e": 3, "sum.e": total}}
        return {"tier": "landed", "topic": "t", "version": 1, "through": 3, "counts": [entry]}

    parse(landed(5 << 64))
    with pytest.raises(BadPost, match="is not a count"):
        parse(landed((1 << 128) + 1))


@pytest.mark.parametrize(
    ("change", "error_text"),
    [
        ({"kind": "party"}, "unknown kind of event 'party'"),
        ({"at": -1}, "-1 is not a count"),
        ({"cause": "x" * 5000}, "a name of 5000 characters"),
        ({"lost": {"a": "b"}}, "'b' is not a count"),
        ({"id": None}, "None is not a text"),
    ],
)
def test_invalid_event_is_refused(change: dict[str, Any], error_text: str) -> None:
    with pytest.raises(BadPost, match=error_text):
        parse(EVENT.document() | change)


def test_half_of_a_surrogate_pair_is_replaced_in_texts() -> None:
    event = {
        "tier": "event",
        "id": "e\ud800",
        "version": 0,
        "kind": "restart",
        "at": 1,
        "what": "a\udfff",
        "cause": "\U0001f600",
    }
    post = parse(event)
    assert isinstance(post, EventPost)
    assert (post.id, post.what, post.cause) == ("e\ufffd", "a\ufffd", "\U0001f600")
    assert json.loads(dump(post).decode())["what"] == "a\ufffd"
