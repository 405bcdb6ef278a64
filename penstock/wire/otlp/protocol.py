"""OTLP's logs: ``/v1/logs`` in protobuf or JSON, and the same request over gRPC (``ingest.requests.otlp_grpc``)."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from penstock.wire.otlp.few_records import read_few
from penstock.wire.otlp.json_requests import as_protobuf
from penstock.wire.otlp.records import Logs, read_logs
from penstock.wire.protobuf import Malformed, TooManyFields
from penstock.wire.requests import JSON, MAX_MESSAGES, OVERSIZE, SYNTAX, Answer, Received, Refused, Request

PROTOBUF = "application/x-protobuf"
PATH = "/v1/logs"
_CODES = {400: 3, 401: 16, 403: 7, 413: 8, 415: 3, 429: 14, 503: 14}
"""gRPC's status codes by HTTP's."""
_UNKNOWN = 2


class OtlpProtocol:
    """OTLP over HTTP; answers have the encoding of the request."""

    codec = "otlp"
    json_cost = 8
    """Work of JSON in units of that of protobuf of the same size."""

    def takes(self, method: str, path: str) -> bool:
        """Return whether a request is POST /v1/logs."""
        return path == PATH and method == "POST"

    def receive(self, request: Request) -> Received:
        """Return the records of a request. Raises Refused."""
        if not _is_json(request):
            logs = logs_of(request.body, request.max_message_bytes, request.max_messages)
            answer = Answer(200, response(logs).SerializeToString(), PROTOBUF)
            return Received(logs.body, logs.refused, answer)
        translated = as_protobuf(request.text, request.max_messages, request.max_values)
        logs = logs_of(translated.request.SerializeToString(), request.max_message_bytes, request.max_messages)
        if translated.refused:
            logs = replace(
                logs, refused={**logs.refused, SYNTAX: translated.refused}, first_error=translated.first_error
            )
        answer_text = json_format.MessageToJson(response(logs))
        return Received(logs.body, logs.refused, Answer(200, answer_text.encode()))

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal as a Status, with the time to retry if the sender may."""
        status = status_of(error)
        headers = error.retry_header
        if request.content_type == JSON:
            return Answer(error.status, json_format.MessageToJson(status).encode(), JSON, headers)
        return Answer(error.status, status.SerializeToString(), PROTOBUF, headers)


def logs_of(data: bytes, max_message_bytes: int, max_messages: int = MAX_MESSAGES) -> Logs:
    """Decode a request in protobuf. Raises Refused."""
    try:
        few = read_few(data, max_message_bytes, max_messages)
        return few or read_logs(data, max_message_bytes, max_messages)
    except TooManyFields as error:
        raise Refused(413, OVERSIZE, f"the request has {error}") from None
    except Malformed as error:
        raise Refused(400, SYNTAX, f"the body is not an ExportLogsServiceRequest: {error}") from None


def status_of(error: Refused) -> Status:
    """Return a refusal as a Status with gRPC's code."""
    return Status(code=_CODES.get(error.status, _UNKNOWN), message=str(error))


def response(logs: Logs) -> ExportLogsServiceResponse:
    """Return the answer to an accepted request: the number of rejected records, and why.

    Malformed ids are a warning: an error text without rejected records.
    """
    answer = ExportLogsServiceResponse()
    reasons = {OVERSIZE: logs.oversize_text, SYNTAX: logs.first_error}
    texts = [f"{count} {reason}: {reasons.get(reason, reason)}" for reason, count in logs.refused.items() if count]
    if logs.malformed_ids:
        texts.append(f"{logs.malformed_ids} malformed trace_id or span_id left out: 16 and 8 bytes are expected")
    if texts:
        # As OTLP specifies: a sender must not retry records that partial_success rejects.
        answer.partial_success.rejected_log_records = sum(logs.refused.values())
        answer.partial_success.error_message = "; ".join(texts)
    return answer


def _is_json(request: Request) -> bool:
    kind = request.content_type
    if kind in (PROTOBUF, "application/protobuf", ""):
        return False
    if kind == JSON:
        return True
    raise Refused(415, "encoding", f"{kind} is neither {PROTOBUF} nor {JSON}")
