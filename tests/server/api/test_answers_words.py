"""Texts of answers: they reveal no class, traceback or path of the server, in any protocol."""

from __future__ import annotations

import errno
import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from penstock.records import SCHEMA, body
from penstock.slogd import slogd_pb2 as pb
from tests.server.running import Running

INSIDE = re.compile(
    r"Traceback|\.pyx?\b|/topics/|site-packages|Exception|[a-z]Error\b|NoneType|object has no|object is not|'str'|Errno"
)
ONE = {"logs": [{"raw_bytes": "eA=="}]}
GARBAGE = b"\xff\xff\xff"


def test_grpc_call_with_garbage_is_refused(running: Running) -> None:
    with grpc.insecure_channel(running.bound.grpc) as channel:
        for method in pb.DESCRIPTOR.services_by_name["StructuredLog"].methods:
            ways = ["stream" if many else "unary" for many in (method.client_streaming, method.server_streaming)]
            call = getattr(channel, "_".join(ways))(f"/slogd.StructuredLog/{method.name}")
            code, text = outcome(call, GARBAGE, method)
            assert code == grpc.StatusCode.INVALID_ARGUMENT.value[0], method.name
            assert not INSIDE.search(text), method.name


def outcome(call: Any, data: bytes, method: Any) -> tuple[int, str]:
    """Return code and text of an answer; AppendStream has them in its messages."""
    try:
        answer = call(iter([data]) if method.client_streaming else data, timeout=20)
        error = pb.AppendResponse.FromString(next(answer) if method.server_streaming else answer).error
    except grpc.RpcError as failed:
        return failed.code().value[0], failed.details()
    return error.code, error.message


def put_batch(client: Any, name: str, batch: pa.RecordBatch) -> None:
    writer, answers = client.do_put(flight.FlightDescriptor.for_path(name), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    answers.read()
    writer.close()


FLIGHT: dict[str, Callable[[Any], Any]] = {
    "no topic": lambda client: client.do_get(flight.Ticket(b'{"topic": "nope"}')).read_all(),
    "bad ticket": lambda client: client.do_get(flight.Ticket(b"\xff")).read_all(),
    "no info": lambda client: client.get_flight_info(flight.FlightDescriptor.for_path("nope")),
    "long path": lambda client: client.get_flight_info(flight.FlightDescriptor.for_path("a", "b")),
    "no action": lambda client: list(client.do_action(flight.Action("x", b""))),
    "action of none": lambda client: list(client.do_action(flight.Action("gaps", b'{"topic": "nope"}'))),
    "wrong columns": lambda client: put_batch(client, "t", pa.record_batch({"x": [1]})),
    "wrong types": lambda client: put_batch(client, "t", pa.record_batch({"payload": [1.5]})),
    "internal": lambda client: put_batch(client, "_ledger", body([b"x"])),
    "too large": lambda client: put_batch(client, "t", body([b"x" * (17 << 20)])),
    "exchange": lambda client: client.do_exchange(flight.FlightDescriptor.for_path("t"))[1].read_all(),
}


@pytest.mark.parametrize("call", FLIGHT)
def test_failing_flight_call_names_its_reason(running: Running, call: str) -> None:
    with flight.connect(f"grpc://{running.bound.flight}") as client:
        with pytest.raises(pa.ArrowException) as caught:
            FLIGHT[call](client)
        assert not INSIDE.search(str(caught.value).replace("Flight error:", ""))


def test_internal_error_of_flight_call_has_no_details(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.api.topics, "readable", None)
    ticket = flight.Ticket(b'{"topic": "t"}')
    with (
        flight.connect(f"grpc://{running.bound.flight}") as client,
        pytest.raises(flight.FlightInternalError, match="Internal error") as caught,
    ):
        client.do_get(ticket).read_all()
    assert not INSIDE.search(str(caught.value))


def test_schema_of_missing_topic_has_all_columns(running: Running) -> None:
    with flight.connect(f"grpc://{running.bound.flight}") as client:
        put_batch(client, "t", body([b"x"]))
        path = flight.FlightDescriptor.for_path("t")
        assert client.get_schema(path).schema.equals(client.get_flight_info(path).schema)
        ticket = flight.FlightDescriptor.for_command(b'{"topic": "t", "columns": ["payload"]}')
        assert client.get_schema(ticket).schema.names == ["payload"]
        for descriptor in (flight.FlightDescriptor.for_path("later"), flight.FlightDescriptor.for_command(GARBAGE)):
            assert client.get_schema(descriptor).schema.equals(SCHEMA)


@pytest.mark.parametrize(
    ("method", "path", "body", "reason"),
    [
        ("POST", "/transactions", {"timeout": 5}, 'timeout: must be a text such as "30s"'),
        ("POST", "/transactions", {"timeout": "x"}, "timeout: "),
        ("POST", "/transactions", [], "The body must be a JSON object"),
        ("PUT", "/topics/new", {"message_size_limit": 0}, "message_size_limit: "),
        ("PUT", "/topics/new", {"segment_size_limit": 0}, "segment_size_limit: "),
        ("PUT", "/topics/new", {"retain_bytes": True}, "retain_bytes: true and false are not sizes"),
        ("PUT", "/topics/new", {"readers": None}, "readers: "),
        ("PUT", "/topics/new", {"nothing": 1}, "nothing: "),
        ("PUT", "/topic/t/cursors/c", {"offset": None}, "offset: must be a whole number"),
        (
            "POST",
            "/topic/t/logs",
            {"logs": [{"protobuf": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": None}}]},
            "",
        ),
        ("POST", "/topic/t/logs", {"logs": [{"protobuf": {"@type": 5}}]}, "can't unmarshal Any"),
        (
            "POST",
            "/topic/t/logs",
            {"logs": [{"protobuf": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": 5}}]},
            "",
        ),
    ],
)
def test_refused_http_request_names_its_reason(
    running: Running, method: str, path: str, body: Any, reason: str
) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    status, _, text = running.request(method, path, body, {"content-type": "application/json"})
    assert not INSIDE.search(text)
    if reason:
        assert (status, json.loads(text)["error"][: len(reason)]) == (400, reason)


def test_transaction_without_timeout_has_the_configured_one(running: Running) -> None:
    assert running.request("POST", "/transactions", {"timeout": None})[0] == 200
    assert running.request("POST", "/transactions")[0] == 200


def test_append_without_body_names_the_missing_object(running: Running) -> None:
    status, headers, text = running.request("POST", "/topic/t/logs")
    assert (status, json.loads(text)["error"]) == (400, "EOF")  # as slogd's
    assert "the body is empty" in headers["warning"]


def test_append_with_a_second_json_value_says_that_only_the_first_is_stored(running: Running) -> None:
    status, headers, text = running.request("POST", "/topic/t/logs", json.dumps(ONE) + "\n" + json.dumps(ONE))
    assert (status, json.loads(text)) == (200, {"offsets": ["0"]})  # as slogd's
    assert headers["warning"] == '299 penstock "what follows the first JSON value was ignored"'


def test_disk_error_reveals_no_path(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    cursors = running.log.topic("t").cursors

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", "/topics/secret")

    monkeypatch.setattr(cursors._fs, "open", fail, raising=False)
    status, _, text = running.request("PUT", "/topic/t/cursors/c", {"offset": "1"})
    monkeypatch.undo()
    assert (status, json.loads(text)["error"]) == (500, "cannot write: Input/output error")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/topic/t/logs", "GET, POST"),
        ("/topics", "GET"),
        ("/topics/t", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/topic/t/cursors/c", "DELETE, PUT"),
        ("/metrics", "GET, HEAD"),
        ("/docs", "GET, HEAD"),
    ],
)
def test_missing_method_lists_allowed_methods(running: Running, path: str, allowed: str) -> None:
    status, headers, _ = running.request("OPTIONS", path)
    assert (status, headers["allow"]) == (405, allowed)


def test_head_answers_as_get_without_body(running: Running) -> None:
    for path in ("/metrics", "/stat", "/describe", "/docs", "/openapi.json"):
        status, headers, text = running.request("HEAD", path)
        assert (status, text) == (200, "")
        assert headers["content-type"] == running.request("GET", path)[1]["content-type"]


def packed(running: Running, data: bytes, encoding: str = "gzip") -> tuple[int, str]:
    with running.connection() as connection:
        connection.request("POST", "/topic/t/logs", data, {"Content-Encoding": encoding})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_compressed_body_is_accepted(running: Running) -> None:
    data = json.dumps(ONE).encode()
    assert packed(running, gzip.compress(data)) == (200, '{"offsets":["0"]}')
    assert packed(running, gzip.compress(data[:5]) + gzip.compress(data[5:])) == (200, '{"offsets":["1"]}')
    assert packed(running, data, "identity") == (200, '{"offsets":["2"]}')
    assert packed(running, gzip.compress(data)[:-4])[0] == 400
    assert packed(running, data)[0] == 400
    assert packed(running, data, "br")[0] == 415


def test_compressed_body_is_limited_by_its_decompressed_size(running: Running) -> None:
    assert packed(running, gzip.compress(bytes(97 << 20), 1))[0] == 413
