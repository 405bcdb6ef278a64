"""OTLP's answers: in the form of the question, with what was refused, and when to come again."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from hypothesis import given
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from penstock.wire.otlp.door import PROTOBUF, OtlpDoor
from penstock.wire.requests import JSON, Refused, Request
from tests.fuzzed import json_texts
from tests.wire.doors import taken_or_refused
from tests.wire.otlp.otlp_requests import request


def asked(body: bytes, kind: str = PROTOBUF, most: int = 1 << 20) -> Request:
    return Request("POST", "/v1/logs", body, {}, {"content-type": kind}, most)


def test_a_request_in_protobuf_is_answered_in_protobuf() -> None:
    received = OtlpDoor().receive(asked(request(3).SerializeToString()))
    assert received.body.num_rows == 3
    assert received.answer.content_type == PROTOBUF
    assert ExportLogsServiceResponse.FromString(received.answer.body) == ExportLogsServiceResponse()


def test_a_request_in_json_says_the_same_and_is_answered_in_json() -> None:
    made = request(3)
    document = json_format.MessageToDict(made)
    for record in document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        record |= {"traceId": bytes(range(16)).hex(), "spanId": bytes(range(1, 9)).hex()}  # hex, in OTLP's JSON
    received = OtlpDoor().receive(asked(json.dumps(document).encode(), JSON))
    assert received.body.to_pylist() == OtlpDoor().receive(asked(made.SerializeToString())).body.to_pylist()
    assert (received.answer.content_type, json.loads(received.answer.body)) == (JSON, {})


def test_what_is_refused_is_said() -> None:
    made = request(3)
    made.resource_logs[0].scope_logs[0].log_records[0].body.string_value = "x" * 3000
    received = OtlpDoor().receive(asked(made.SerializeToString(), most=2000))
    said = ExportLogsServiceResponse.FromString(received.answer.body).partial_success
    assert said.rejected_log_records == 1
    assert "oversize" in said.error_message
    assert received.counts == {"seen": 3, "accepted": 2, "refused.oversize": 1}


def test_who_may_come_again_is_told_when() -> None:
    answer = OtlpDoor().refusal(Refused(503, "busy", "later"), asked(b""))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert Status.FromString(answer.body) == Status(code=14, message="later")


def test_another_type_of_content_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        OtlpDoor().receive(asked(b"x", "text/plain"))
    assert refused.value.status == 415


@given(json_texts("resourceLogs", "scopeLogs", "logRecords", "traceId"))
def test_any_json_is_a_request_or_refused(data: bytes) -> None:
    taken_or_refused(OtlpDoor(), asked(data, JSON))
