"""Splunk's HTTP event collector, as its clients use it."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http.hec import HecProtocol
from penstock.wire.requests import MIN_VALUES, Answer, Received, Refused
from tests.fuzzed import json_texts
from tests.wire.sample_requests import (
    EXACT,
    answer_document,
    assert_accepted_or_refused,
    make_request,
    refusal_of,
    rows,
)

EVENT = "/services/collector/event"


@pytest.mark.parametrize("between", [b"", b"\n", b" \r\n"])
@pytest.mark.parametrize("path", ["/services/collector", EVENT, f"{EVENT}/1.0"])
def test_concatenated_events_are_messages(path: str, between: bytes) -> None:
    body = b'{"event":"one","time":1.5,"host":"h","fields":{"n":1}}' + between + b'{"event":{"k": "v"},"index":"main"}'
    received = HecProtocol().receive(make_request(path, body))
    assert rows(received) == [
        (b"one", {"time": "1.5", "host": "h", "fields.n": "1"}),
        (b'{"k":"v"}', {"index": "main"}),
    ]
    assert answer_document(received) == {"text": "Success", "code": 0}


@given(st.lists(st.text('}{"\\\\ na', max_size=6), min_size=1, max_size=5), st.sampled_from(["", " ", "\n"]))
def test_texts_that_look_like_two_events_are_one(texts: list[str], between: str) -> None:
    events = [json.dumps({"event": f".{text}", "fields": {"n": text}}) for text in texts]
    received = HecProtocol().receive(make_request(EVENT, between.join(events).encode()))
    assert rows(received) == [(f".{text}".encode(), {"fields.n": text}) for text in texts]


def test_events_before_a_line_that_is_not_utf_8_are_stored() -> None:
    received = HecProtocol().receive(make_request(EVENT, b'{"event":"a}{"}{"event":"b"}\n{"event":"\xff"}'))
    assert [payload for payload, _ in rows(received)] == [b"a}{", b"b"]
    assert answer_document(received)["invalid-event-number"] == 2


def test_raw_lines_are_messages_with_the_metadata_of_the_query() -> None:
    received = HecProtocol().receive(
        make_request("/services/collector/raw?host=h&sourcetype=s", b"one\ntwo\r\n\nthree")
    )
    metadata = {"host": "h", "sourcetype": "s"}
    assert rows(received) == [(b"one", metadata), (b"two", metadata), (b"three", metadata)]


@pytest.mark.parametrize("path", ["", "/event", "/event/1.0"])
def test_metadata_of_the_query_is_that_of_events_without_it(path: str) -> None:
    query = "time=1&host=h&source=s&sourcetype=t&index=i&other=o"
    body = b'{"event":"a"}{"event":"b","host":"own","index":null,"source":"","time":2,"fields":{"x":"y"}}'
    received = HecProtocol().receive(make_request(f"/services/collector{path}?{query}", body))
    defaults = {"time": "1", "host": "h", "source": "s", "sourcetype": "t", "index": "i"}
    assert rows(received) == [(b"a", defaults), (b"b", {**defaults, "host": "own", "time": "2", "fields.x": "y"})]


@pytest.mark.parametrize("path", ["/services/collector/event", "/services/collector/raw"])
def test_equal_bodies_with_other_metadata_in_the_query_have_other_ids(path: str) -> None:
    body = b'{"event":"a","time":1}\n{"event":"%s","time":1}' % (b"x" * 100)
    ids = set()
    for metadata in ("host=a", "host=b", "source=a"):
        request = make_request(f"{path}?{metadata}&time=1", body, max_message_bytes=60)
        ids |= {annotations["uuid"] for _, annotations in rows(HecProtocol().receive(request))}
    assert len(ids) == 3, "events of two hosts and of a source, and not one event thrice"


@pytest.mark.parametrize("number", ["1", "1.10"])
def test_field_that_is_null_has_no_text(number: str) -> None:
    body = b'{"event":"a","fields":{"b":null,"c":%s,"d":"null"}}' % number.encode()
    received = HecProtocol().receive(make_request(EVENT, body))
    assert rows(received) == [(b"a", {"fields.c": number, "fields.d": "null"})]


def test_channel_gets_different_ids_that_are_acknowledged() -> None:
    protocol, channel = HecProtocol(), {"x-splunk-request-channel": "c"}
    first, second = (
        answer_document(protocol.receive(make_request(EVENT, b'{"event":1}', channel)))["ackId"] for _ in range(2)
    )
    assert first != second
    answer = protocol.receive(make_request("/services/collector/ack?channel=c", b'{"acks":[%d,%d]}' % (first, second)))
    assert answer_document(answer) == {"acks": {str(first): True, str(second): True}}


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
    answer = refusal_of(HecProtocol(), make_request(EVENT, body))
    document = answer_document(answer)
    assert (answer.status, document["code"], document.get("invalid-event-number")) == (400, code, number)


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [(Refused(503, "busy", ""), 503, 9), (Refused(401, "token", ""), 401, 2), (Refused(403, "token", ""), 403, 4)],
)
def test_refusals_have_splunks_codes(refusal: Refused, status: int, code: int) -> None:
    answer = HecProtocol().refusal(refusal, make_request(EVENT))
    assert (answer.status, answer_document(answer)["code"]) == (status, code)


def test_oversize_event_is_refused_with_code_27() -> None:
    answer = refusal_of(HecProtocol(), make_request(EVENT, b'{"event":"' + b"x" * 200 + b'"}', max_message_bytes=100))
    assert (answer.status, answer_document(answer)["code"]) == (413, 27)


def test_ids_that_were_not_issued_are_not_acknowledged() -> None:
    protocol = HecProtocol()
    issued = answer_document(protocol.receive(make_request(EVENT, b'{"event":1}', {"x-splunk-request-channel": "c"})))[
        "ackId"
    ]
    unknown = [issued + 1, 0, -1, 1 << 60]
    answer = protocol.receive(
        make_request("/services/collector/ack?channel=c", b'{"acks":%s}' % repr([issued, *unknown]).encode())
    )
    assert answer_document(answer) == {"acks": {str(issued): True, **{str(ack): False for ack in unknown}}}
    assert (
        answer_document(refusal_of(protocol, make_request("/services/collector/ack?channel=c", b'{"acks":[true]}')))[
            "code"
        ]
        == 6
    )


def rows_without_ids(received: Received | Answer) -> list[tuple[bytes, dict[str, str]]]:
    return [
        (payload, {name: text for name, text in pairs.items() if name != "uuid"}) for payload, pairs in rows(received)
    ]


NESTED = ['{"a":{"b":1}}', '{"a":[{"b":1}]}', '{"a":1.10,"b":{}}', "[1]", '"x"', '{"a":[[1]]}']


@pytest.mark.parametrize("fields", NESTED)
def test_nested_fields_are_refused_as_splunk_does(fields: str) -> None:
    flat = '{"event":"a","fields":{"x":"y","l":["1","2"]}}'
    body = f'{flat}{{"event":"b","fields":null}}{{"event":"c","fields":{fields}}}'
    received = HecProtocol().receive(make_request(EVENT, body.encode()))
    assert rows_without_ids(received) == [(b"a", {"fields.x": "y", "fields.l": '["1","2"]'}), (b"b", {})]
    assert answer_document(received) == {
        "text": "Error in handling indexed fields",
        "code": 15,
        "invalid-event-number": 2,
    }


def test_acknowledgements_need_a_channel_and_ids() -> None:
    assert (
        answer_document(refusal_of(HecProtocol(), make_request("/services/collector/ack", b'{"acks":[1]}')))["code"]
        == 10
    )
    assert (
        answer_document(refusal_of(HecProtocol(), make_request("/services/collector/ack?channel=c", b'{"acks":1}')))[
            "code"
        ]
        == 6
    )


def test_health_is_reported_with_code_17() -> None:
    protocol = HecProtocol()
    assert protocol.takes("GET", "/services/collector/health")
    assert answer_document(protocol.receive(make_request("/services/collector/health", method="GET")))["code"] == 17


@given(
    st.lists(json_texts("event", "time", "host", "fields"), max_size=4).map(b"".join),
    st.sampled_from([EVENT, "/services/collector/raw", "/services/collector/ack?channel=c"]),
)
def test_any_bytes_are_events_or_refused(data: bytes, path: str) -> None:
    assert_accepted_or_refused(HecProtocol(), make_request(path, data))


BAD_EVENTS = [
    (b'{"event":NaN}', 6),
    (b'{"event":{"a":[1,Infinity]}}', 6),
    (b'{"event":"cut off', 6),
    (b'{"event":' + b"[" * 1100 + b"]" * 1100 + b"}", 6),
    (b'{"event":"\xff"}', 6),
    (b'{"other":1}', 12),
    (b'{"event":null}', 13),
    (b'"text"', 6),
]


@pytest.mark.parametrize(("bad", "code"), BAD_EVENTS)
@pytest.mark.parametrize("form", ["lines", "list"])
def test_processing_stops_at_the_first_bad_event_as_in_splunk(bad: bytes, code: int, form: str) -> None:
    """Splunk accepts the events before it and none after it (moby/moby#35862); the sender resends from there."""
    events = [b'{"event":"first"}', b'{"event":{"n":1.10}}', bad, b'{"event":"last"}', bad]
    if form == "list" and bad in (b'{"event":"cut off', b'{"event":"\xff"}'):
        return  # the elements of such a list cannot be separated
    body = b"[" + b",".join(events) + b"]" if form == "list" else b"\n".join(events)
    received = HecProtocol().receive(make_request(EVENT, body))
    assert isinstance(received, Received)
    assert [payload for payload, _ in rows(received)] == [b"first", b'{"n":1.10}']
    document = answer_document(received)
    assert (received.answer.status, document["code"], document["invalid-event-number"]) == (400, code, 2)
    assert received.counts == {"seen": 3, "accepted": 2, "refused.syntax": 1}


@pytest.mark.parametrize(("bad", "code"), BAD_EVENTS)
def test_resending_from_the_bad_event_stores_each_event_once(bad: bytes, code: int) -> None:
    lines = [b'{"event":"first"}', bad, b'{"event":"second"}', bad, b'{"event":"last"}']
    stored = []
    while lines:
        received = HecProtocol().receive(make_request(EVENT, b"\n".join(lines)))
        stored += [payload for payload, _ in rows(received)]
        document = answer_document(received)
        lines = lines[document["invalid-event-number"] + 1 :] if document["code"] else []
    assert stored == [b"first", b"second", b"last"]


@pytest.mark.parametrize("path", [EVENT, "/services/collector/raw"])
def test_events_of_a_repeated_request_have_the_same_ids(path: str) -> None:
    body = b'{"event":"a","time":1}\n{"event":"a","time":1}\n{"event":"%s","time":1}' % (b"x" * 100)
    path += "?time=1" if path.endswith("raw") else ""
    first, repeated = (HecProtocol().receive(make_request(path, body, max_message_bytes=60)) for _ in range(2))
    ids = [annotations["uuid"] for _, annotations in rows(first)]
    assert len(set(ids)) == 2
    assert [annotations["uuid"] for _, annotations in rows(repeated)] == ids
    in_channel = HecProtocol().receive(
        make_request(path, body, {"x-splunk-request-channel": "c"}, max_message_bytes=60)
    )
    assert not set(ids) & {annotations["uuid"] for _, annotations in rows(in_channel)}


@pytest.mark.parametrize("path", [EVENT, "/services/collector/raw"])
def test_events_without_a_time_have_no_ids_because_they_may_happen_again(path: str) -> None:
    body = b'{"event":"a","time":1}\n{"event":"a"}\n{"event":"%s"}' % (b"x" * 100)
    received = HecProtocol().receive(make_request(path, body, max_message_bytes=60))
    assert [annotations.get("uuid") for _, annotations in rows(received)] == [None, None]


def test_events_of_an_accepted_request_have_no_ids() -> None:
    received = HecProtocol().receive(make_request(EVENT, b'{"event":"a"}'))
    assert rows(received) == [(b"a", {})]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (EVENT, b'{"event":"a"}{"event":"%s"}{"event":"b"}' % (b"x" * 100)),
        ("/services/collector/raw", b"a\n%s\nb" % (b"x" * 100)),
    ],
)
def test_processing_stops_at_an_event_that_is_too_large(path: str, body: bytes) -> None:
    received = HecProtocol().receive(make_request(path, body, max_message_bytes=50))
    assert [payload for payload, _ in rows(received)] == [b"a"]
    assert isinstance(received, Received)
    assert (received.answer.status, answer_document(received)["invalid-event-number"]) == (413, 1)
    assert received.counts == {"seen": 2, "accepted": 1, "refused.oversize": 1}


@pytest.mark.parametrize(("lines", "is_refused"), [(1, True), (1024, False)])
def test_values_are_counted_before_decoding_only_if_a_line_is_longer_than_an_event(
    lines: int, is_refused: bool
) -> None:
    body = b'{"event":[%s1]}\n' % (b"[]," * (MIN_VALUES // lines)) * lines
    request = make_request(EVENT, body, max_message_bytes=len(body) // 2)
    if is_refused:
        tracemalloc.start()
        with pytest.raises(Refused, match=f"may have {MIN_VALUES} JSON values"):
            HecProtocol().receive(request)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Each decoded value would take 64 bytes.
        assert peak < 4 * len(body)
    else:
        assert len(rows(HecProtocol().receive(request))) == lines


def test_lines_of_an_event_are_not_counted_as_messages() -> None:
    event = json.dumps({"event": dict.fromkeys(map(str, range(200)), 1)}, indent=1)
    received = HecProtocol().receive(make_request(EVENT, event.encode() * 3, max_messages=100))
    assert len(rows(received)) == 3


@pytest.mark.parametrize("text", EXACT)
def test_events_and_their_metadata_are_stored_as_sent(text: str) -> None:
    field = '"n"' if text.startswith("{") else text  # Splunk refuses fields with objects
    body = f'{{"time": 1764115200.10, "event": {text}, "fields": {{"n": {field}, "t": "\\ud83d"}}}}'.encode()
    ((payload, annotations),) = rows(HecProtocol().receive(make_request(EVENT, body)))
    assert payload.decode() == text
    assert annotations == {"time": "1764115200.10", "fields.n": field.strip('"'), "fields.t": "\ufffd"}


def test_unpaired_surrogate_is_replaced_as_in_go_and_java() -> None:
    received = HecProtocol().receive(make_request(EVENT, b'{"event":"a\\ud83d"}{"event":1}'))
    assert [payload for payload, _ in rows(received)] == ["a\ufffd".encode(), b"1"]
