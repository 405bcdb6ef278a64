"""Splunk's HTTP event collector, as its clients know it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.hec import HecProtocol
from penstock.wire.requests import Received, Refused
from tests.fuzzed import json_texts
from tests.wire.sample_requests import EXACT, asked, refused, rows, taken_or_refused, told

EVENT = "/services/collector/event"


@pytest.mark.parametrize("between", [b"", b"\n", b" \r\n"])
@pytest.mark.parametrize("path", ["/services/collector", EVENT, f"{EVENT}/1.0"])
def test_events_one_behind_the_other_are_messages(path: str, between: bytes) -> None:
    body = b'{"event":"one","time":1.5,"host":"h","fields":{"n":1}}' + between + b'{"event":{"k": "v"},"index":"main"}'
    received = HecProtocol().receive(asked(path, body))
    assert rows(received) == [
        (b"one", {"time": "1.5", "host": "h", "fields.n": "1"}),
        (b'{"k":"v"}', {"index": "main"}),
    ]
    assert told(received) == {"text": "Success", "code": 0}


def test_raw_lines_are_messages_and_the_query_says_the_rest() -> None:
    received = HecProtocol().receive(asked("/services/collector/raw?host=h&sourcetype=s", b"one\ntwo\r\n\nthree"))
    said = {"host": "h", "sourcetype": "s"}
    assert rows(received) == [(b"one", said), (b"two", said), (b"three", said)]


def test_a_channel_gets_ids_that_are_acknowledged_and_differ() -> None:
    protocol, channel = HecProtocol(), {"x-splunk-request-channel": "c"}
    first, second = (told(protocol.receive(asked(EVENT, b'{"event":1}', channel)))["ackId"] for _ in range(2))
    assert first != second
    answer = protocol.receive(asked("/services/collector/ack?channel=c", b'{"acks":[%d,%d]}' % (first, second)))
    assert told(answer) == {"acks": {str(first): True, str(second): True}}


@pytest.mark.parametrize(
    ("body", "code", "number"),
    [
        (b"", 5, None),
        (b"nope", 6, 0),
        (b'{"event":', 6, 0),
        (b'{"other":1}', 12, 0),
        (b'{"event":""}', 13, 0),
        (b'{"event":NaN}{"event":-Infinity}', 6, 0),
        (b"[1]", 6, 0),
    ],
)
def test_requests_without_any_event_are_refused_with_its_number(body: bytes, code: int, number: int | None) -> None:
    answer = refused(HecProtocol(), asked(EVENT, body))
    said = told(answer)
    assert (answer.status, said["code"], said.get("invalid-event-number")) == (400, code, number)


@pytest.mark.parametrize(
    ("why", "status", "code"),
    [(Refused(503, "busy", ""), 503, 9), (Refused(401, "token", ""), 401, 2), (Refused(403, "token", ""), 403, 4)],
)
def test_refusals_have_splunks_codes(why: Refused, status: int, code: int) -> None:
    answer = HecProtocol().refusal(why, asked(EVENT))
    assert (answer.status, told(answer)["code"]) == (status, code)


def test_an_event_that_is_too_large_is_said() -> None:
    answer = refused(HecProtocol(), asked(EVENT, b'{"event":"' + b"x" * 200 + b'"}', most=100))
    assert (answer.status, told(answer)["code"]) == (413, 27)


def test_ids_that_were_not_given_are_not_acknowledged() -> None:
    protocol = HecProtocol()
    given = told(protocol.receive(asked(EVENT, b'{"event":1}', {"x-splunk-request-channel": "c"})))["ackId"]
    unknown = [given + 1, 0, -1, 1 << 60]
    answer = protocol.receive(
        asked("/services/collector/ack?channel=c", b'{"acks":%s}' % repr([given, *unknown]).encode())
    )
    assert told(answer) == {"acks": {str(given): True, **{str(ack): False for ack in unknown}}}
    assert told(refused(protocol, asked("/services/collector/ack?channel=c", b'{"acks":[true]}')))["code"] == 6


NESTED = ['{"a":{"b":1}}', '{"a":[{"b":1}]}', '{"a":1.10,"b":{}}', "[1]", '"x"', '{"a":[[1]]}']


@pytest.mark.parametrize("fields", NESTED)
def test_nested_fields_are_refused_as_splunk_does(fields: str) -> None:
    flat = '{"event":"a","fields":{"x":"y","l":["1","2"]}}'
    body = f'{flat}{{"event":"b","fields":{fields}}}{{"event":"c","fields":null}}'
    received = HecProtocol().receive(asked(EVENT, body.encode()))
    assert rows(received) == [(b"a", {"fields.x": "y", "fields.l": '["1","2"]'}), (b"c", {})]
    assert told(received) == {"text": "Error in handling indexed fields", "code": 15, "invalid-event-number": 1}


def test_acknowledgements_need_a_channel_and_ids() -> None:
    assert told(refused(HecProtocol(), asked("/services/collector/ack", b'{"acks":[1]}')))["code"] == 10
    assert told(refused(HecProtocol(), asked("/services/collector/ack?channel=c", b'{"acks":1}')))["code"] == 6


def test_it_says_that_it_is_healthy() -> None:
    protocol = HecProtocol()
    assert protocol.takes("GET", "/services/collector/health")
    assert told(protocol.receive(asked("/services/collector/health", method="GET")))["code"] == 17


@given(
    st.lists(json_texts("event", "time", "host", "fields"), max_size=4).map(b"".join),
    st.sampled_from([EVENT, "/services/collector/raw", "/services/collector/ack?channel=c"]),
)
def test_any_bytes_are_events_or_refused(data: bytes, path: str) -> None:
    taken_or_refused(HecProtocol(), asked(path, data))


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b'{"event":NaN}', 6),
        (b'{"event":{"a":[1,Infinity]}}', 6),
        (b'{"event":"cut off', 6),
        (b'{"event":' + b"[" * 1100 + b"]" * 1100 + b"}", 6),
        (b'{"event":"\xff"}', 6),
        (b'{"other":1}', 12),
        (b'{"event":null}', 13),
        (b'"text"', 6),
    ],
)
@pytest.mark.parametrize("form", ["lines", "list"])
def test_a_bad_event_is_numbered_and_the_others_are_taken(bad: bytes, code: int, form: str) -> None:
    events = [b'{"event":"first"}', bad, b'{"event":{"n":1.10}}', bad, b'{"event":"last"}']
    if form == "list":
        if code == 6 and bad in (b'{"event":"cut off', b'{"event":"\xff"}'):
            return  # no list can be told apart behind these
        body = b"[" + b",".join(events) + b"]"
    else:
        body = b"\n".join(events)
    received = HecProtocol().receive(asked(EVENT, body))
    assert isinstance(received, Received)
    assert [payload for payload, _ in rows(received)] == [b"first", b'{"n":1.10}', b"last"]
    assert (received.answer.status, told(received)["code"], told(received)["invalid-event-number"]) == (400, code, 1)
    assert received.counts == {"seen": 5, "accepted": 3, "refused.syntax": 2}


def test_an_event_too_large_does_not_refuse_the_others() -> None:
    body = b'{"event":"a"}{"event":"%s"}{"event":"b"}' % (b"x" * 100)
    received = HecProtocol().receive(asked(EVENT, body, most=50))
    assert [payload for payload, _ in rows(received)] == [b"a", b"b"]
    assert isinstance(received, Received)
    assert (received.answer.status, told(received)["invalid-event-number"]) == (413, 1)
    assert received.counts["refused.oversize"] == 1


@pytest.mark.parametrize("text", EXACT)
def test_events_and_their_metadata_are_stored_as_sent(text: str) -> None:
    field = '"n"' if text.startswith("{") else text  # Splunk refuses fields with objects
    body = f'{{"time": 1764115200.10, "event": {text}, "fields": {{"n": {field}, "t": "\\ud83d"}}}}'.encode()
    ((payload, said),) = rows(HecProtocol().receive(asked(EVENT, body)))
    assert payload.decode() == text
    assert said == {"time": "1764115200.10", "fields.n": field.strip('"'), "fields.t": "\ufffd"}


def test_half_of_a_surrogate_pair_is_read_as_go_and_java_do() -> None:
    received = HecProtocol().receive(asked(EVENT, b'{"event":"a\\ud83d"}{"event":1}'))
    assert [payload for payload, _ in rows(received)] == ["a\ufffd".encode(), b"1"]
