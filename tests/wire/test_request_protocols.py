"""Table of the request protocols: each request belongs to at most one of them."""

from __future__ import annotations

import pytest

from penstock.wire import requests
from penstock.wire.request_protocols import PATHS, REQUEST_PROTOCOLS
from penstock.wire.requests import Answer, Refused, find_protocol
from tests.wire.sample_requests import make_request


@pytest.mark.parametrize(
    ("method", "path", "codec"),
    [
        ("POST", "/v1/logs", "otlp"),
        ("POST", "/services/collector", "hec"),
        ("POST", "/services/collector/raw", "hec"),
        ("GET", "/services/collector/health", "hec"),
        ("POST", "/_bulk", "bulk"),
        ("PUT", "/logs/_bulk", "bulk"),
        ("GET", "/", "bulk"),
        ("POST", "/loki/api/v1/push", "loki"),
        ("GET", "/ready", "loki"),
        ("POST", "/", "json"),
    ],
)
def test_each_path_belongs_to_one_protocol(method: str, path: str, codec: str) -> None:
    taking = [protocol.codec for make in REQUEST_PROTOCOLS if (protocol := make()).takes(method, path)]
    assert taking == [codec]


@pytest.mark.parametrize(("method", "path"), [("POST", "/elsewhere"), ("GET", "/v1/logs"), ("POST", "/a/b/c/_bulk")])
def test_other_paths_belong_to_no_protocol(method: str, path: str) -> None:
    assert find_protocol([make() for make in REQUEST_PROTOCOLS], method, path) is None


def refusal_text(path: str, body: bytes, **limits: int) -> str:
    """Return the answer to a refused request, alone or with the messages that are accepted."""
    request = make_request(path, body, {"content-type": "application/json"}, **limits)
    protocol = find_protocol([make() for make in REQUEST_PROTOCOLS], "POST", path)
    assert protocol is not None
    try:
        received = protocol.receive(request)
    except Refused as error:
        return protocol.refusal(error, request).body.decode()
    return (received if isinstance(received, Answer) else received.answer).body.decode()


CUT = b'{"event":"x","fields":'
PUSH = b'{"streams":[{"stream":{"a":"b"},"values":[["1700000000000000000","LINE"]]}]}'
RECORD = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"LINE"}}]}]}]}'


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/", CUT, "not valid JSON at column 23: expecting value"),
        ("/", b'{"a":1}\n{"a":tru}', "not valid JSON at column 6: expecting value"),
        ("/", b'[{"a":1},{"a" 1}]', "not valid JSON at column 15: expecting ':' delimiter"),
        ("/", b"NaN", "not valid JSON: NaN"),
        ("/services/collector", CUT, "not valid JSON at column 23: expecting value"),
        ("/services/collector", b'{"event":"\xff"}', "it is not UTF-8"),
        ("/_bulk", b'{"index":{"_index":"i"}}\n{"a":}\n', "not valid JSON at column 6: expecting value"),
        ("/_bulk", b'{"index":{"_index"}}\n{}\n', "not valid JSON at column 19: expecting ':' delimiter"),
        ("/i/_doc", b'{"a":1,}', "not valid JSON at column 8: "),
        ("/loki/api/v1/push", PUSH[:-1], "not valid JSON at column 76: expecting ',' delimiter"),
        ("/v1/logs", RECORD[:-2], "not valid JSON at column "),
        ("/v1/logs", b"\n\n{]", "not valid JSON at line 3 column 2: "),
    ],
)
def test_refused_json_is_named_with_position_and_reason(path: str, body: bytes, text: str) -> None:
    assert text in refusal_text(path, body).replace('\\"', '"')


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", b'"LINE"'),
        ("/services/collector", b'{"event":"LINE"}'),
        ("/services/collector/raw", b"LINE"),
        ("/_bulk", b'{"index":{"_index":"i"}}\n{"a":"LINE"}\n'),
        ("/i/_doc", b'{"a":"LINE"}'),
        ("/loki/api/v1/push", PUSH),
        ("/v1/logs", RECORD),
    ],
)
def test_refused_message_is_named_with_size_limit_and_key(path: str, body: bytes) -> None:
    text = refusal_text(path, body.replace(b"LINE", b"x" * 2000), max_message_bytes=1000)
    assert "max_line (1000 bytes)" in text
    assert "a message of 20" in text


LISTS = b",".join([b"[]"] * 300)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", b'[{"a":[LINE]}]'),
        ("/services/collector", b'{"event":\n{"a":[LINE]}}'),
        ("/loki/api/v1/push", PUSH.replace(b'["17', b'[LINE],["17').replace(b'"LINE"', b'"x"')),
        ("/v1/logs", RECORD.replace(b'{"stringValue":"LINE"}', b'{"arrayValue":{"values":[LINE]}}')),
    ],
)
def test_limit_of_values_follows_the_largest_body(path: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MIN_VALUES", 100)
    texts = [
        refusal_text(path, body.replace(b"LINE", LISTS), max_body_bytes=limit) for limit in (16 * 1000, 16 * 300, 0)
    ]
    assert "JSON values" not in texts[0]
    assert "300 JSON values" in texts[1]
    assert "100 JSON values" in texts[2]


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_errors_name_exist(path: str) -> None:
    assert find_protocol([make() for make in REQUEST_PROTOCOLS], "POST", path.replace("INDEX", "i")) is not None
