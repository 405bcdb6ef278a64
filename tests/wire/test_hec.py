"""Splunk's HTTP event collector, as its clients know it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.hec import HecDoor
from penstock.wire.requests import Refused
from tests.fuzzed import json_texts
from tests.wire.doors import asked, refused, rows, taken_or_refused, told

EVENT = "/services/collector/event"


@pytest.mark.parametrize("between", [b"", b"\n", b" \r\n"])
@pytest.mark.parametrize("path", ["/services/collector", EVENT, f"{EVENT}/1.0"])
def test_events_one_behind_the_other_are_messages(path: str, between: bytes) -> None:
    body = b'{"event":"one","time":1.5,"host":"h","fields":{"n":1}}' + between + b'{"event":{"k": "v"},"index":"main"}'
    received = HecDoor().receive(asked(path, body))
    assert rows(received) == [
        (b"one", {"time": "1.5", "host": "h", "fields.n": "1"}),
        (b'{"k":"v"}', {"index": "main"}),
    ]
    assert told(received) == {"text": "Success", "code": 0}


def test_raw_lines_are_messages_and_the_query_says_the_rest() -> None:
    received = HecDoor().receive(asked("/services/collector/raw?host=h&sourcetype=s", b"one\ntwo\r\n\nthree"))
    said = {"host": "h", "sourcetype": "s"}
    assert rows(received) == [(b"one", said), (b"two", said), (b"three", said)]


def test_a_channel_gets_ids_that_are_acknowledged_and_differ() -> None:
    door, channel = HecDoor(), {"x-splunk-request-channel": "c"}
    first, second = (told(door.receive(asked(EVENT, b'{"event":1}', channel)))["ackId"] for _ in range(2))
    assert first != second
    answer = door.receive(asked("/services/collector/ack?channel=c", b'{"acks":[%d,%d]}' % (first, second)))
    assert told(answer) == {"acks": {str(first): True, str(second): True}}


@pytest.mark.parametrize(
    ("body", "code", "number"),
    [
        (b"", 5, None),
        (b"nope", 6, 0),
        (b'{"event":1}{"event":', 6, 1),
        (b'{"event":1} {"other":1}', 12, 1),
        (b'{"event":""}', 13, 0),
        (b'{"event":"\\ud800"}{"event":1}', 6, 0),
        (b"[1]", 6, 0),
    ],
)
def test_events_that_are_none_refuse_all_and_are_numbered(body: bytes, code: int, number: int | None) -> None:
    answer = refused(HecDoor(), asked(EVENT, body))
    said = told(answer)
    assert (answer.status, said["code"], said.get("invalid-event-number")) == (400, code, number)


@pytest.mark.parametrize(
    ("why", "status", "code"),
    [(Refused(503, "busy", ""), 503, 9), (Refused(401, "token", ""), 401, 2), (Refused(403, "token", ""), 403, 4)],
)
def test_refusals_have_splunks_codes(why: Refused, status: int, code: int) -> None:
    answer = HecDoor().refusal(why, asked(EVENT))
    assert (answer.status, told(answer)["code"]) == (status, code)


def test_an_event_that_is_too_large_is_said() -> None:
    answer = refused(HecDoor(), asked(EVENT, b'{"event":"' + b"x" * 200 + b'"}', most=100))
    assert (answer.status, told(answer)["code"]) == (413, 27)


def test_acknowledgements_need_a_channel_and_ids() -> None:
    assert told(refused(HecDoor(), asked("/services/collector/ack", b'{"acks":[1]}')))["code"] == 10
    assert told(refused(HecDoor(), asked("/services/collector/ack?channel=c", b'{"acks":1}')))["code"] == 6


def test_it_says_that_it_is_healthy() -> None:
    door = HecDoor()
    assert door.takes("GET", "/services/collector/health")
    assert told(door.receive(asked("/services/collector/health", method="GET")))["code"] == 17


@given(
    st.lists(json_texts("event", "time", "host", "fields"), max_size=4).map(b"".join),
    st.sampled_from([EVENT, "/services/collector/raw", "/services/collector/ack?channel=c"]),
)
def test_any_bytes_are_events_or_refused(data: bytes, path: str) -> None:
    taken_or_refused(HecDoor(), asked(path, data))
