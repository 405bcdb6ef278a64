"""OTLP's answers: in the encoding of the request, with the refused records, and the time to retry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from hypothesis import given
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from penstock.wire.otlp import json_requests
from penstock.wire.otlp.protocol import PROTOBUF, OtlpProtocol
from penstock.wire.requests import JSON, Received, Refused, Request
from tests.fuzzed import json_texts
from tests.wire.otlp.otlp_requests import request
from tests.wire.sample_requests import assert_accepted_or_refused, rows
from tests.wire.test_protobuf import encoded


def make_request(body: bytes, kind: str = PROTOBUF, max_message_bytes: int = 1 << 20) -> Request:
    return Request("POST", "/v1/logs", body, {}, {"content-type": kind}, max_message_bytes)


def test_request_in_protobuf_is_answered_in_protobuf() -> None:
    received = OtlpProtocol().receive(make_request(request(3).SerializeToString()))
    assert received.body.num_rows == 3
    assert received.answer.content_type == PROTOBUF
    assert ExportLogsServiceResponse.FromString(received.answer.body) == ExportLogsServiceResponse()


def test_request_in_json_has_the_same_records_and_answer_in_json() -> None:
    sent = request(3)
    document = json_format.MessageToDict(sent)
    for record in document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        record |= {"traceId": bytes(range(16)).hex(), "spanId": bytes(range(1, 9)).hex()}  # hex, in OTLP's JSON
    received = OtlpProtocol().receive(make_request(json.dumps(document).encode(), JSON))
    assert rows(received) == rows(OtlpProtocol().receive(make_request(sent.SerializeToString())))
    assert (received.answer.content_type, json.loads(received.answer.body)) == (JSON, {})


def test_refused_records_are_reported() -> None:
    sent = request(3)
    sent.resource_logs[0].scope_logs[0].log_records[0].body.string_value = "x" * 3000
    received = OtlpProtocol().receive(make_request(sent.SerializeToString(), max_message_bytes=2000))
    partial_success = ExportLogsServiceResponse.FromString(received.answer.body).partial_success
    assert partial_success.rejected_log_records == 1
    assert "oversize" in partial_success.error_message
    assert received.counts == {"seen": 3, "accepted": 2, "refused.oversize": 1}


def test_retryable_refusal_names_the_delay() -> None:
    answer = OtlpProtocol().refusal(Refused(503, "busy", "later"), make_request(b""))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert Status.FromString(answer.body) == Status(code=14, message="later")


def test_other_content_type_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        OtlpProtocol().receive(make_request(b"x", "text/plain"))
    assert refused.value.status == 415


@given(json_texts("resourceLogs", "scopeLogs", "logRecords", "traceId"))
def test_any_json_is_a_request_or_refused(data: bytes) -> None:
    assert_accepted_or_refused(OtlpProtocol(), make_request(data, JSON))


def records_in_json(*records: str) -> bytes:
    listed = ",".join(records)
    return f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{listed}]}}]}}]}}'.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"doubleValue":1.10}', "1.10"),
        ('{"doubleValue":1E5}', "1E5"),
        ('{"doubleValue":1e400}', "1e400"),
        ('{"doubleValue":"NaN"}', "nan"),
        ('{"intValue":18446744073709551616}', "18446744073709551616"),
        ('{"intValue":"-5"}', "-5"),
        ('{"intValue":' + "9" * 660 + "}", "9" * 660),
        ('{"stringValue":"a\\ud83d"}', "a\ufffd"),
        ('{"boolValue":true}', "true"),
        ('{"kvlistValue":{"values":[{"key":"a","value":{"doubleValue":1.10}},{"key":"a"}]}}', '{"a":1.10,"a":null}'),
        ('{"arrayValue":{"values":[{"stringValue":"x"},{"intValue":"7"},{}]}}', '["x",7,null]'),
        ('{"arrayValue":{}}', "[]"),
        ('{"kvlistValue":{}}', "{}"),
        ("null", ""),
        ("{}", ""),
    ],
)
def test_values_in_json_are_stored_as_sent(value: str, text: str) -> None:
    record = f'{{"body":{value},"attributes":[{{"key":"k","value":{value}}}]}}'
    ((payload, annotations),) = rows(OtlpProtocol().receive(make_request(records_in_json(record), JSON)))
    assert payload.decode() == text
    assert annotations == {"attributes.k": text}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("1764360000123456789", "1764360000123456789"),
        ('"1764360000123456789"', "1764360000123456789"),
        ("1764360000123456789.0", "1764360000123456789"),
        ("1.764360000123456789e18", "1764360000123456789"),
        ('"1.764360000123e+18"', "1764360000123000000"),
    ],
)
@pytest.mark.parametrize(
    ("name", "annotation"), [("timeUnixNano", "time"), ("observed_time_unix_nano", "observed_time")]
)
def test_time_in_json_keeps_its_digits(name: str, annotation: str, sent: str, stored: str) -> None:
    ((_, annotations),) = rows(OtlpProtocol().receive(make_request(records_in_json(f'{{"{name}":{sent}}}'), JSON)))
    assert annotations == {annotation: stored}


@pytest.mark.parametrize(
    "bad",
    [
        '{"attributes":[{"key":"k","value":{"doubleValue":NaN}}]}',
        '{"attributes":[{"key":"k","value":{"intValue":"x"}}]}',
        '{"attributes":[{"key":"k","value":{"doubleValue":"1,5"}}]}',
        '{"attributes":[7]}',
        '{"attributes":7}',
        '{"body":"text"}',
        '{"traceId":"zz"}',
        '{"timeUnixNano":1e400}',
        '{"severityNumber":[]}',
        '{"severityNumber":"INFO"}',
        '{"timeUnixNano":"1.5"}',
        '{"timeUnixNano":1e999999999}',
        '{"timeUnixNano":1e9999999999999999999}',
        '{"timeUnixNano":-9e-9999999999999999999}',
        '{"severityNumber":1e400}',
        "null",
        "7",
        '{"body":' + '{"arrayValue":{"values":[' * 500 + "]}}" * 500 + "}",
    ],
)
def test_bad_record_in_json_is_named_and_refused_alone(bad: str) -> None:
    good = '{"body":{"stringValue":"good"},"traceId":null,"spanId":null,"attributes":null,"timeUnixNano":null}'
    received = OtlpProtocol().receive(make_request(records_in_json(good, bad, good), JSON))
    assert rows(received) == [(b"good", {}), (b"good", {})]
    partial_success = json.loads(received.answer.body)["partialSuccess"]
    assert partial_success["rejectedLogRecords"] == "1"
    assert partial_success["errorMessage"].startswith("1 syntax: record 2: ")
    assert received.counts == {"seen": 3, "accepted": 2, "refused.syntax": 1}


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ('"timeUnixNano":"1","time_unix_nano":"2"', "timeUnixNano"),
        ('"time_unix_nano":"1","time_unix_nano":"2"', "timeUnixNano"),
        ('"severity_text":"A","severityText":"A"', "severityText"),
        (f'"traceId":"{"01" * 16}","trace_id":"{"02" * 16}"', "traceId"),
    ],
)
def test_field_in_two_spellings_refuses_its_record_as_go_and_java_do(record: str, name: str) -> None:
    text = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{%s},{"time_unix_nano":"3","body":{"stringValue":"b"}}]}]}]}'
    received = OtlpProtocol().receive(make_request((text % record).encode(), JSON))
    assert rows(received) == [(b"b", {"time": "3"})]
    assert received.counts == {"seen": 2, "accepted": 1, "refused.syntax": 1}
    assert f"record 1: {name} occurs more than once" in received.answer.body.decode()


def test_bad_resource_in_json_refuses_its_records_alone() -> None:
    records = '"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]'
    bad = '{"resource":{"attributes":[{"key":"k","value":{"intValue":true}}]},' + records + "}"
    body = f'{{"resourceLogs":[{bad},{{{records}}}]}}'.encode()
    received = OtlpProtocol().receive(make_request(body, JSON))
    assert rows(received) == [(b"x", {})]
    assert received.refused == {"syntax": 1}


@pytest.mark.parametrize("place", ["resource", "scope"])
def test_resource_or_scope_without_any_name_of_otlp_refuses_its_records(place: str) -> None:
    scope_logs = [{"scope": {}, "logRecords": [{"body": {"stringValue": "a"}}]}]
    logs = [{"resource": {}, "scopeLogs": scope_logs}, {"scopeLogs": scope_logs}]
    bad = {"resource": {}, "scopeLogs": [{**scope_logs[0], "scope": {}}]}
    (bad if place == "resource" else bad["scopeLogs"][0])[place] = {"Attributes": []}  # type: ignore[index]
    body = json.dumps({"resourceLogs": [*logs, bad]})
    received = OtlpProtocol().receive(make_request(body.encode(), JSON))
    assert received.counts == {"seen": 3, "accepted": 2, "refused.syntax": 1}
    assert f"'Attributes' is not a member of a {place}" in received.answer.body.decode()


def test_bad_record_in_protobuf_is_named_and_refused_alone() -> None:
    good, bad = (encoded(2, 2, encoded(5, 2, content)) for content in (encoded(1, 2, b"good"), b"\x0b"))
    received = OtlpProtocol().receive(make_request(encoded(1, 2, encoded(2, 2, good + bad + good))))
    assert rows(received) == [(b"good", {}), (b"good", {})]
    partial_success = ExportLogsServiceResponse.FromString(received.answer.body).partial_success
    assert partial_success.rejected_log_records == 1
    assert partial_success.error_message.startswith("1 syntax: record 2: ")
    assert received.counts == {"seen": 3, "accepted": 2, "refused.syntax": 1}


def test_malformed_resource_among_large_ones_is_refused_alone() -> None:
    def resource_logs(attribute: bytes) -> bytes:
        logs = encoded(2, 2, encoded(2, 2, encoded(5, 2, encoded(1, 2, b"good"))))
        return encoded(1, 2, encoded(1, 2, attribute) + logs)

    large = encoded(1, 2, encoded(1, 2, b"a") + encoded(2, 2, encoded(1, 2, b"x" * 40_000)))
    data = resource_logs(large) * 30 + resource_logs(large[:-2] + b"\x0b\x0b") + resource_logs(b"\x0b" + b"x" * 40_000)
    received = OtlpProtocol().receive(make_request(data))
    assert isinstance(received, Received)
    assert received.refused == {"syntax": 1}
    assert received.counts["accepted"] == 31


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"resourceLogs":[null,%r]}', "resourceLogs 1: an object is expected"),
        ('{"resourceLogs":[{"scopeLogs":{}},%r]}', "resourceLogs 1: scopeLogs is not a list"),
        (
            '{"resourceLogs":[{"scopeLogs":[],"scope_logs":[]},%r]}',
            "resourceLogs 1: scopeLogs or scope_logs occurs more",
        ),
        ('{"resourceLogs":[{"scopeLogs":[null,%s]}]}', "resourceLogs 1, scopeLogs 1: an object is expected"),
        ('{"resourceLogs":[{"scopeLogs":[{"logRecords":7},%s]}]}', "scopeLogs 1: logRecords is not a list"),
        ('{"resourceLogs":[{"scopeLogs":[{"logRecords":[null,{}]}]}]}', "record 1: an object is expected"),
    ],
)
def test_bad_container_in_json_is_named_and_refused_alone(body: str, error: str) -> None:
    scope = '{"logRecords":[{}]}'
    sent = body.replace("%s", scope).replace("%r", f'{{"scopeLogs":[{scope}]}}').encode()
    received = OtlpProtocol().receive(make_request(sent, JSON))
    assert rows(received) == [(b"", {})]
    assert received.counts == {"seen": 2, "accepted": 1, "refused.syntax": 1}
    partial_success = json.loads(received.answer.body)["partialSuccess"]
    assert partial_success["rejectedLogRecords"] == "1"
    assert error in partial_success["errorMessage"]


def test_records_in_json_are_counted_before_one_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}] * 3}, {"logRecords": [{}]}]}]}).encode()
    translated = list[bool]()
    parse = json_requests._parse

    def count_records(*arguments: Any, **options: Any) -> Any:
        translated.append("required" in options)
        return parse(*arguments, **options)

    monkeypatch.setattr(json_requests, "_parse", count_records)
    assert json_requests.as_protobuf(body, max_messages=4).records == 4
    translated.clear()
    for limit, before in ((3, 3), (2, 0)):
        with pytest.raises(Refused, match=f"may have {limit} messages"):
            json_requests.as_protobuf(body, max_messages=limit)
        assert sum(translated) == before
        translated.clear()


@pytest.mark.parametrize(("name", "kind"), [("resourceLogs", "resources"), ("scopeLogs", "scopes")])
@pytest.mark.parametrize("content_type", [JSON, PROTOBUF])
def test_empty_containers_are_limited_as_messages_are(name: str, kind: str, content_type: str) -> None:
    def body(count: int) -> bytes:
        containers = [{}] * count
        document = {name: containers} if name == "resourceLogs" else {"resourceLogs": [{name: containers}]}
        sent = json_format.ParseDict(document, ExportLogsServiceRequest())
        return json.dumps(document).encode() if content_type == JSON else sent.SerializeToString()

    def receive(count: int) -> Received:
        headers = {"content-type": content_type}
        return OtlpProtocol().receive(Request("POST", "/v1/logs", body(count), {}, headers, max_messages=3))

    assert receive(3).body.num_rows == 0
    with pytest.raises(Refused, match=f"may have 3 {kind}") as refused:
        receive(4)
    assert (refused.value.status, refused.value.reason) == (413, "messages")
