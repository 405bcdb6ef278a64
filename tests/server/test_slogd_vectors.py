"""Requests to the real slogd, sent to Penstock and compared with the recorded answers. Permitted differences are in
DIFFERENCES, each with its reason.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import lzma
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format, text_format

from penstock.slogd import slogd_pb2 as pb
from tests.server.running import Running

RECORDED = json.loads(lzma.decompress((Path(__file__).parent / "vectors" / "slogd.json.xz").read_bytes()))["vectors"]
VECTORS = {vector["name"]: vector["steps"] for vector in RECORDED}
FIRST = {"stream_timestamp_grpc": ["get_by_timestamp"]}
"""Sequences that read what another one has appended."""

NOT_FOUND_STREAM = {
    "error": {
        "grpc_code": 5,
        "http_code": 404,
        "message": "rpc error: code = NotFound desc = Topic does not exist: unknown",
        "http_status": "Not Found",
    }
}
UNKNOWN_ANY = {"@type": "type.googleapis.com/acme.Unknown", "value": "CAE="}
DIFFERENCES: dict[tuple[str, int], dict[str, Any]] = {
    # An Any of an unknown type made the range unreadable over HTTP.
    ("append_any_unknown_type_grpc_then_read_both", 2): {
        "status": 200,
        "body_json": {"logs": [{"timestamp": "2026-11-21T01:05:57.165937641Z", "protobuf": UNKNOWN_ANY}]},
    },
    # An unknown topic was INVALID_ARGUMENT in a stream, with HTTP status 200.
    ("unknown_topics", 1): {"status": 404, "body_json": NOT_FOUND_STREAM},
    ("unknown_topics", 3): {"code": "NOT_FOUND"},
    # LATEST in a stream began up to 1,000 entries back.
    ("stream_default_earliest_latest_http", 6): {"status": 200, "body_text": ""},
    # No header came before the first entry.
    ("stream_default_earliest_latest_http", 7): {"status": 200, "body_text": ""},
}
SILENCE = 0.1
"""Seconds without an entry behind the expected ones."""
WITHOUT_STACK = "Failed to create query: Bad timestamp"
"""A text that ended in a stack trace, which we do not give."""
HEADERS = ("content-type", "location", "x-content-type-options")
"""Headers that must be as recorded; Grpc-Metadata, Trailer and chunking are the gateway's own affair."""


class Replay:
    """A replay against one server; it maps recorded timestamps to the server's own."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._stamps: dict[str, str] = {}
        self._channel = grpc.insecure_channel(server.bound.grpc)

    def close(self) -> None:
        self._channel.close()

    def step(self, request: dict[str, Any], recorded: dict[str, Any]) -> None:
        """Send one request and compare its answer."""
        if request["transport"] == "http":
            stream = "/logstream" in request["path"] and recorded.get("status") == 200
            (self._http_stream if stream else self._http)(request, recorded)
        elif request["method"].endswith("StreamLogs"):
            self._rpc_stream(request, recorded)
        else:
            self._rpc(request, recorded)

    def _http(self, request: dict[str, Any], recorded: dict[str, Any]) -> None:
        status, headers, text = self._server.request(request["method"], self._now(request["path"]), request.get("body"))
        assert status == recorded["status"]
        for name in HEADERS:
            header = {k.lower(): v for k, v in recorded.get("headers", {}).items()}.get(name)
            assert header is None or headers.get(name) == header
        if "body_json" in recorded:
            self._same_document(json.loads(text), recorded["body_json"])
        else:
            # The second line of Not Found names paths.
            assert text.splitlines()[: len(recorded["body_text"].splitlines())] == recorded["body_text"].splitlines()

    def _http_stream(self, request: dict[str, Any], recorded: dict[str, Any]) -> None:
        expected = [entry for frame in frames(recorded["body_text"]) for entry in frame["result"]["logs"]]
        with self._server.connection() as connection:
            connection.request(request["method"], self._now(request["path"]))
            answer = connection.getresponse()
            assert answer.status == recorded["status"]
            text = read_until_silence(connection, answer, len(expected))
        self._same_logs(entries_of(text), expected)

    def _rpc(self, request: dict[str, Any], recorded: dict[str, Any]) -> None:
        name = request["method"].rpartition("/")[2]
        request_type, answer_type = getattr(pb, MESSAGES[name][0]), getattr(pb, MESSAGES[name][1])
        call = self._channel.unary_unary(request["method"], request_type.SerializeToString, answer_type.FromString)
        future = call.future(self._message(request, request_type), timeout=20)
        assert future.code().name == recorded["code"]
        if "details" in recorded:
            self._same_text(future.details(), recorded["details"])
        else:
            self._same_document(document(future.result()), document(parsed(recorded["message"], answer_type)))

    def _rpc_stream(self, request: dict[str, Any], recorded: dict[str, Any]) -> None:
        call = self._channel.unary_stream(
            request["method"], pb.GetLogsRequest.SerializeToString, pb.GetLogsResponse.FromString
        )
        expected = [entry for frame in recorded["frames"] for entry in frame["logs"]]
        logs: list[dict[str, Any]] = []
        answers = call(self._message(request, pb.GetLogsRequest), timeout=60)
        cancel_timer = threading.Timer(SILENCE, answers.cancel)
        with contextlib.suppress(grpc.RpcError):
            for page in answers:
                logs += document(page)["logs"]
                if len(logs) >= len(expected) and not cancel_timer.ident:
                    cancel_timer.start()
        # Who recorded it left after a time.
        assert answers.code().name == recorded["code"].replace("DEADLINE_EXCEEDED", "CANCELLED")
        self._same_logs(logs, expected)

    def _message(self, request: dict[str, Any], kind: type) -> Any:
        message = request["message"]
        if isinstance(message, str):
            return pb.AppendRequest(topic="v22", logs=[pb.LogEntry(raw_bytes=b"x" * 4194000)])
        parsed_message = parsed(json.loads(self._now(json.dumps(message))), kind)
        # The bytes are those of a client that knows nothing of our fields.
        assert self._stamps or kind.FromString(base64.b64decode(request["message_b64"])) == parsed_message
        return parsed_message

    def _now(self, text: str) -> str:
        for recorded, ours in self._stamps.items():
            text = text.replace(recorded, ours)
        return text

    def _same_document(self, answered: dict[str, Any], recorded: dict[str, Any]) -> None:
        assert answered.keys() == recorded.keys()
        self._same_logs(answered.pop("logs", []), recorded.get("logs", []))
        if isinstance(recorded.get("error"), str):
            self._same_text(answered.pop("error"), recorded["error"])
        assert all(recorded[name] == value for name, value in answered.items())

    def _same_text(self, answered: str, recorded: str) -> None:
        assert answered == recorded or (
            recorded.startswith(WITHOUT_STACK) and answered == recorded.partition("\ngithub.com")[0]
        )

    def _same_logs(self, answered: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
        assert len(answered) == len(recorded)
        for ours, theirs in zip(answered, recorded, strict=True):
            assert without_stamp(ours) == without_stamp(theirs)
            stamp = self._stamps.setdefault(theirs["timestamp"], ours["timestamp"])
            # slogd gives all entries of a request one timestamp, ours grow.
            assert ours["timestamp"] >= stamp


MESSAGES = {
    "AppendLogs": ("AppendRequest", "AppendResponse"),
    "GetLogs": ("GetLogsRequest", "GetLogsResponse"),
    "ListTopics": ("ListTopicsRequest", "ListTopicsResponse"),
}


def parsed(message: dict[str, Any], kind: type) -> Any:
    if "_text_format" in message:
        return text_format.Parse(message["_text_format"], kind())
    return json_format.ParseDict(message, kind())


def document(message: Any) -> dict[str, Any]:
    for entry in getattr(message, "logs", []):
        if entry.protobuf.type_url.endswith("acme.Unknown"):
            entry.raw_bytes = entry.protobuf.SerializeToString()
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def without_stamp(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "timestamp"}


def frames(text: str) -> list[dict[str, Any]]:
    documents, decoder = [], json.JSONDecoder()
    while text := text.strip():
        frame, end = decoder.raw_decode(text)
        documents.append(frame)
        text = text[end:]
    return documents


def entries_of(text: str) -> list[dict[str, Any]]:
    return [entry for frame in frames(text) for entry in frame["result"]["logs"]]


def read_until_silence(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, count: int) -> str:
    """Return the answers until there are ``count`` entries, and the entries that follow at once."""
    text = ""
    with contextlib.suppress(TimeoutError):
        while not answer.isclosed():
            if len(entries_of(text)) >= count:
                connection.sock.settimeout(SILENCE)
            text += answer.read1().decode()
    return text


@pytest.mark.parametrize("name", VECTORS)
def test_answers_equal_the_recorded_ones(name: str, running: Running) -> None:
    replay = Replay(running)
    try:
        for vector in [*FIRST.get(name, []), name]:
            for number, step in enumerate(VECTORS[vector]):
                replay.step(step["request"], {**step["response"], **DIFFERENCES.get((vector, number), {})})
    finally:
        replay.close()


def test_every_difference_belongs_to_a_recorded_step() -> None:
    assert all(number < len(VECTORS[name]) for name, number in DIFFERENCES)
