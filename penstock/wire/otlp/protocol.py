"""The protocol for OTLP's logs: ``/v1/logs`` in protobuf or JSON, and the same request over gRPC."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from penstock.wire.otlp.json_requests import as_protobuf
from penstock.wire.otlp.records import Logs, read_logs
from penstock.wire.protobuf import Malformed
from penstock.wire.requests import JSON, MAX_MESSAGES, SYNTAX, Answer, Received, Refused, Request

PROTOBUF = "application/x-protobuf"
PATH = "/v1/logs"
_WHY = {"oversize": "larger than max_line, or than a request may become with its resource and scope at each record"}
_CODES = {400: 3, 401: 16, 403: 7, 413: 8, 415: 3, 429: 14, 503: 14}
"""gRPC's codes of HTTP's."""
_UNKNOWN = 2


class OtlpProtocol:
    """OTLP over HTTP: it is answered in the form in which it asks."""

    codec = "otlp"

    def takes(self, method: str, path: str) -> bool:
        """POST /v1/logs."""
        return path == PATH and method == "POST"

    def receive(self, request: Request) -> Received:
        """The records of a request. Raises Refused."""
        in_json = _in_json(request)
        if not in_json:
            logs = logs_of(request.body, request.max_message_bytes, request.max_messages)
            answer = Answer(200, response(logs).SerializeToString(), PROTOBUF)
            return Received(logs.body, logs.refused, answer)
        found = as_protobuf(request.body, request.max_messages)
        logs = logs_of(found.request.SerializeToString(), request.max_message_bytes, request.max_messages)
        if found.refused:
            logs = replace(logs, refused={**logs.refused, SYNTAX: found.refused})
        said = json_format.MessageToJson(response(logs, found.first_error))
        return Received(logs.body, logs.refused, Answer(200, said.encode()))

    def refusal(self, why: Refused, request: Request) -> Answer:
        """A Status; a sender that may come again is told when."""
        status = status_of(why)
        headers = {"retry-after": "1"} if why.is_retryable else {}
        if request.content_type == JSON:
            return Answer(why.status, json_format.MessageToJson(status).encode(), JSON, headers)
        return Answer(why.status, status.SerializeToString(), PROTOBUF, headers)


def logs_of(data: bytes, most: int, max_messages: int = MAX_MESSAGES) -> Logs:
    """The records of a request in protobuf. Raises Refused."""
    try:
        return read_logs(data, most, max_messages)
    except Malformed as error:
        raise Refused(400, SYNTAX, f"the body is no ExportLogsServiceRequest: {error}") from None


def status_of(why: Refused) -> Status:
    """Why a request is refused, with gRPC's code."""
    return Status(code=_CODES.get(why.status, _UNKNOWN), message=str(why))


def response(logs: Logs, first_error: str = "") -> ExportLogsServiceResponse:
    """Return the answer to a request that was taken: how many records were not, and why.

    ``first_error`` is about syntax. Malformed ids are a warning: a text without rejected records.
    """
    made = ExportLogsServiceResponse()
    reasons = {**_WHY, SYNTAX: first_error}
    texts = [f"{count} {why}: {reasons.get(why, why)}" for why, count in logs.refused.items() if count]
    if logs.malformed_ids:
        texts.append(f"{logs.malformed_ids} malformed trace_id or span_id left out: 16 and 8 bytes are expected")
    if texts:
        made.partial_success.rejected_log_records = sum(logs.refused.values())
        made.partial_success.error_message = "; ".join(texts)
    return made


def _in_json(request: Request) -> bool:
    kind = request.content_type
    if kind in (PROTOBUF, "application/protobuf", ""):
        return False
    if kind == JSON:
        return True
    raise Refused(415, "encoding", f"{kind} is neither {PROTOBUF} nor {JSON}")
