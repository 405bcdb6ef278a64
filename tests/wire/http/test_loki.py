"""Loki's push: lines with the labels of their streams, in JSON and in protobuf compressed with snappy."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http.loki import LokiProtocol
from penstock.wire.requests import Answer, Received, Refused
from tests.fuzzed import RAW, json_texts
from tests.wire.sample_requests import EXACT, assert_accepted_or_refused, make_request, refusal_of, rows
from tests.wire.test_protobuf import encoded

PUSH = "/loki/api/v1/push"
JSON = {"content-type": "application/json; charset=utf-8"}
PROTOBUF = {"content-type": "application/x-protobuf"}


def field(number: int, *parts: bytes) -> bytes:
    return encoded(number, 2, b"".join(parts))


def entry(seconds: int, nanos: int, line: bytes, *pairs: tuple[bytes, bytes]) -> bytes:
    stamp = field(1, encoded(1, 0, seconds), encoded(2, 0, nanos))
    return field(2, stamp, field(2, line), *(field(3, field(1, name), field(2, value)) for name, value in pairs))


def packed(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="snappy", asbytes=True))


def test_lines_in_json_are_messages_with_their_labels() -> None:
    streams = [
        {"stream": {"job": "app"}, "values": [["17", "one"], ["18", "two", {"trace": "t"}]]},
        {"stream": {"job": "other", "level": "info"}, "values": [["19", "three"]]},
    ]
    received = LokiProtocol().receive(make_request(PUSH, json.dumps({"streams": streams}).encode(), JSON))
    assert rows(received) == [
        (b"one", {"time": "17", "labels.job": "app"}),
        (b"two", {"time": "18", "labels.job": "app", "metadata.trace": "t"}),
        (b"three", {"time": "19", "labels.job": "other", "labels.level": "info"}),
    ]
    assert not isinstance(received, Answer)
    assert received.answer.status == 204


@pytest.mark.parametrize(("seconds", "nanos"), [(-62135596800, 0), (253402300799, 999999999), (-1, 999999999)])
def test_time_in_protobuf_may_be_any(seconds: int, nanos: int) -> None:
    """linkedin/goavro#208, MainfluxLabs/mainflux#1217: nanoseconds of Go's zero time, or of 2262, overflow 64 bits."""
    stream = field(1, field(1, b'{job="app"}'), entry(seconds % 2**64, nanos, b"x"), entry(1, 0, b"y"))
    received = LokiProtocol().receive(make_request(PUSH, packed(stream), PROTOBUF))
    assert [annotations["time"] for _, annotations in rows(received)] == [str(seconds * 10**9 + nanos), "1000000000"]


def test_lines_in_protobuf_are_the_same_messages() -> None:
    first = field(
        1, field(1, b'{job="app", quoted="a \\"b\\"\\n"}'), entry(1, 5, b"one"), entry(2, 0, b"two", (b"k", b"v"))
    )
    second = field(1, field(1, b'{job="other"}'), entry(3, 0, b"three"))
    received = LokiProtocol().receive(make_request(PUSH, packed(first + second), PROTOBUF))
    labels = {"labels.job": "app", "labels.quoted": 'a "b"\n'}
    assert rows(received) == [
        (b"one", {"time": "1000000005", **labels}),
        (b"two", {"time": "2000000000", **labels, "metadata.k": "v"}),
        (b"three", {"time": "3000000000", "labels.job": "other"}),
    ]


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"streams":1}', b'{"streams":[{"stream":{},"values":[["x","line"]]}]}', b"nope"]
)
def test_body_that_is_no_push_is_refused(body: bytes) -> None:
    assert refusal_of(LokiProtocol(), make_request(PUSH, body, JSON)).status == 400
    assert (
        refusal_of(
            LokiProtocol(), make_request(PUSH, packed(field(1, field(1, b"job"), entry(1, 1, b"x"))), PROTOBUF)
        ).status
        == 400
    )


def test_body_that_announces_a_large_size_is_not_decompressed() -> None:
    bomb = packed(bytes(40 << 20))
    assert len(bomb) < 2 << 20
    assert refusal_of(LokiProtocol(), make_request(PUSH, bomb, PROTOBUF)).status == 413
    assert refusal_of(LokiProtocol(), make_request(PUSH, b"\xff\xff\xff\x07", PROTOBUF)).status == 413


def test_labels_do_not_make_a_request_grow_without_bounds() -> None:
    stream = {"stream": {"job": "x" * 100_000}, "values": [["1", "l"]] * 5000}
    received = LokiProtocol().receive(make_request(PUSH, json.dumps({"streams": [stream]}).encode(), JSON))
    assert not isinstance(received, Answer)
    assert received.body.nbytes < 8 << 20
    assert received.refused["oversize"] + received.body.num_rows == 5000
    assert received.answer.status == 400


def test_ready_needs_nothing_and_busy_names_the_delay() -> None:
    assert LokiProtocol().receive(make_request("/ready", method="GET")) == Answer(200, b"ready\n", "text/plain")
    assert LokiProtocol().refusal(Refused(503, "busy", "later"), make_request(PUSH)).headers == {"retry-after": "1"}


@given(json_texts("streams", "stream", "values"))
def test_any_json_is_a_push_or_refused(data: bytes) -> None:
    assert_accepted_or_refused(LokiProtocol(), make_request(PUSH, data, JSON))


@given(
    RAW | RAW.map(packed) | st.lists(RAW, max_size=4).map(lambda lines: packed(field(1, *(field(2, x) for x in lines))))
)
def test_any_bytes_are_a_push_or_refused(data: bytes) -> None:
    assert_accepted_or_refused(LokiProtocol(), make_request(PUSH, data, PROTOBUF))


@pytest.mark.parametrize("text", EXACT)
def test_labels_and_metadata_are_stored_as_sent(text: str) -> None:
    body = f'{{"streams":[{{"stream":{{"n":{text}}},"values":[["1","line",{{"m":{text}}}]]}}]}}'
    ((_, annotations),) = rows(LokiProtocol().receive(make_request(PUSH, body.encode(), JSON)))
    expected = text.replace("\\u00e9\\/", "é/").replace("\\ud83d", "\ufffd")
    assert annotations == {"time": "1", "labels.n": expected, "metadata.m": expected}


def test_repeated_labels_are_joined() -> None:
    body = b'{"streams":[{"stream":{"a":"1","a":"2"},"values":[["1","line"]]}]}'
    ((_, annotations),) = rows(LokiProtocol().receive(make_request(PUSH, body, JSON)))
    assert annotations["labels.a"] == "1\0002"


@pytest.mark.parametrize(
    "bad",
    [
        '["x","line"]',
        "[1,2]",
        '["1"]',
        '["1",null]',
        "7",
        '["1","line",{"m":NaN}]',
        '["1","line",{"m":' + "[" * 1100 + "]" * 1100 + "}]",
        '["' + "9" * 5000 + '","line"]',
    ],
)
def test_bad_entry_is_named_and_refused_alone(bad: str) -> None:
    body = f'{{"streams":[{{"stream":{{"a":"b"}},"values":[["1","one"],{bad},["2","two\\ud83d"]]}}]}}'
    received = LokiProtocol().receive(make_request(PUSH, body.encode(), JSON))
    assert [payload.decode() for payload, _ in rows(received)] == ["one", "two\ufffd"]
    assert isinstance(received, Received)
    assert received.answer.status == 400
    assert b"stream 1, entry 2" in received.answer.body
    assert b"Error" not in received.answer.body
    assert received.counts == {"seen": 3, "accepted": 2, "refused.syntax": 1}


@pytest.mark.parametrize(
    ("quoted", "unquoted"),
    [
        (rb"lala \uf04a", "lala \uf04a"),
        (rb"\x01\a\b\f\v\n\r\t", "\x01\a\b\f\v\n\r\t"),
        (rb"\xc3\xa9\303\251", "éé"),
        (rb"\u200b\U000e0001", "\u200b\U000e0001"),
        (rb"\xff\ud83d", "\ufffd\ufffd"),
        (rb"a\\b\"c", 'a\\b"c'),
    ],
)
def test_labels_are_unquoted_as_go_quotes_them(quoted: bytes, unquoted: str) -> None:
    labels = b'{job="x", msg="%b"}' % quoted
    body = packed(field(1, field(1, labels) + entry(1, 1, b"line")))
    ((_, annotations),) = rows(LokiProtocol().receive(make_request(PUSH, body, PROTOBUF)))
    assert annotations["labels.msg"] == unquoted


def test_labels_have_each_of_the_quotes_of_prometheus() -> None:
    labels = rb"""{raw=`C:\new "x" '1', y="z"`, single='it\'s \x41', empty='', none=``, double="`'"}"""
    body = packed(field(1, field(1, labels) + entry(1, 1, b"line")))
    ((_, annotations),) = rows(LokiProtocol().receive(make_request(PUSH, body, PROTOBUF)))
    expected = {"raw": 'C:\\new "x" \'1\', y="z"', "single": "it's A", "empty": "", "none": "", "double": "`'"}
    assert {name: annotations.get(f"labels.{name}") for name in expected} == expected


@pytest.mark.parametrize("name", ["ts", "timestamp"])
def test_legacy_form_of_a_push_is_accepted(name: str) -> None:
    entry = {name: "2018-12-18T08:28:06.801064-04:00", "line": "baz"}
    body = json.dumps({"streams": [{"labels": '{foo="bar"}', "entries": [entry]}]}).encode()
    received = LokiProtocol().receive(make_request("/api/prom/push", body, JSON))
    assert rows(received) == [(b"baz", {"time": "1545136086801064000", "labels.foo": "bar"})]
    assert isinstance(received, Received)
    assert received.answer.status == 204


def test_lines_have_their_tenant() -> None:
    tenant = {"x-scope-orgid": "t-1"}
    pushes = [
        make_request(PUSH, b'{"streams":[{"stream":{"tenant":"l"},"values":[["3000000000","x"]]}]}', JSON | tenant),
        make_request(PUSH, packed(field(1, field(1, b'{tenant="l"}'), entry(3, 0, b"x"))), PROTOBUF | tenant),
    ]
    for push in pushes:
        line = {"time": "3000000000", "labels.tenant": "l", "tenant": "t-1"}
        assert rows(LokiProtocol().receive(push)) == [(b"x", line)]


def test_legacy_entry_has_its_structured_metadata() -> None:
    """Loki's own test of /api/prom/push has the first two entries. Metadata in other forms are left out."""
    entries = [
        {"ts": "2019-09-13T18:32:22Z", "line": "a", "structuredMetadata": {"a": "1", "b": "2"}},
        {"ts": "2019-09-13T18:32:23Z", "line": "b", "structuredMetadata": None},
        {"ts": "2019-09-13T18:32:24Z", "line": "c", "structuredMetadata": "x"},
    ]
    body = json.dumps({"streams": [{"labels": '{test="test"}', "entries": entries}]}).encode()
    received = LokiProtocol().receive(make_request("/api/prom/push", body, JSON))
    label = {"labels.test": "test"}
    first = {"time": "1568399542000000000", "metadata.a": "1", "metadata.b": "2", **label}
    others = [(text, {"time": f"15683995{second}000000000", **label}) for text, second in ((b"b", 43), (b"c", 44))]
    assert rows(received) == [(b"a", first), *others]


def test_bad_labels_in_protobuf_are_named_and_refuse_their_stream_alone() -> None:
    bad = field(1, field(1, b"job=app"), entry(1, 0, b"one"), entry(2, 0, b"two"))
    good = field(1, field(1, b'{job="app"}'), entry(3, 0, b"three"))
    received = LokiProtocol().receive(make_request(PUSH, packed(bad + good), PROTOBUF))
    assert rows(received) == [(b"three", {"time": "3000000000", "labels.job": "app"})]
    assert isinstance(received, Received)
    assert received.answer.status == 400
    assert b"stream 1: its labels" in received.answer.body
    assert received.counts == {"seen": 3, "accepted": 1, "refused.syntax": 2}


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("null", "stream 1 has no list of values"),
        ("[]", "stream 1 has no list of values"),
        ('{"stream":{},"values":null}', "stream 1 has no list of values"),
        ('{"stream":{},"values":{}}', "stream 1 has no list of values"),
        ('{"stream":{},"values":[],"entries":[]}', "stream 1 values or entries occurs more than once"),
        ('{"stream":null,"values":[["1","x"]]}', "stream 1: its labels: labels are not an object"),
        ('{"stream":{},"values":[null]}', "stream 1, entry 1: a list of a time and a line is expected"),
    ],
)
def test_bad_stream_is_named_and_refused_alone(bad: str, error: str) -> None:
    body = f'{{"streams":[{bad},{{"stream":{{}},"values":[["2","good"]]}}]}}'.encode()
    received = LokiProtocol().receive(make_request(PUSH, body, JSON))
    assert isinstance(received, Received)
    assert rows(received) == [(b"good", {"time": "2"})]
    assert received.refused == {"syntax": 1}
    assert received.answer.status == 400
    assert received.answer.body.decode().endswith(f"; {error}\n")


@pytest.mark.parametrize("headers", [JSON, PROTOBUF])
def test_empty_streams_are_limited_as_messages_are(headers: dict[str, str]) -> None:
    def body(count: int) -> bytes:
        stream = b'{"stream":{},"values":[]}'
        text = b'{"streams":[%b]}' % b",".join([stream] * count)
        return text if headers is JSON else packed(field(1, field(1, b"{}")) * count)

    assert isinstance(LokiProtocol().receive(make_request(PUSH, body(3), headers, max_messages=3)), Received)
    with pytest.raises(Refused, match="may have 3 streams"):
        LokiProtocol().receive(make_request(PUSH, body(4), headers, max_messages=3))
