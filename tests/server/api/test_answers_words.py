"""Answers show nothing of the code: no class, no traceback, no path of the server, over any protocol."""

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


def test_grpc_calls_with_garbage(running: Running) -> None:
    with grpc.insecure_channel(running.bound.grpc) as channel:
        for method in pb.DESCRIPTOR.services_by_name["StructuredLog"].methods:
            ways = ["stream" if many else "unary" for many in (method.client_streaming, method.server_streaming)]
            call = getattr(channel, "_".join(ways))(f"/slogd.StructuredLog/{method.name}")
            code, text = outcome(call, GARBAGE, method)
            assert code == grpc.StatusCode.INVALID_ARGUMENT.value[0], method.name
            assert not INSIDE.search(text), method.name


def outcome(call: Any, data: bytes, method: Any) -> tuple[int, str]:
    """Code and text of an answer; AppendStream alone says them in its messages."""
    try:
        given = call(iter([data]) if method.client_streaming else data, timeout=20)
        error = pb.AppendResponse.FromString(next(given) if method.server_streaming else given).error
    except grpc.RpcError as failed:
        return failed.code().value[0], failed.details()
    return error.code, error.message


def _put(client: Any, name: str, batch: pa.RecordBatch) -> None:
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
    "wrong columns": lambda client: _put(client, "t", pa.record_batch({"x": [1]})),
    "wrong types": lambda client: _put(client, "t", pa.record_batch({"payload": [1.5]})),
    "internal": lambda client: _put(client, "_ledger", body([b"x"])),
    "too large": lambda client: _put(client, "t", body([b"x" * (17 << 20)])),
    "exchange": lambda client: client.do_exchange(flight.FlightDescriptor.for_path("t"))[1].read_all(),
}


@pytest.mark.parametrize("asked", FLIGHT)
def test_flight_calls_that_fail(running: Running, asked: str) -> None:
    with flight.connect(f"grpc://{running.bound.flight}") as client:
        with pytest.raises(pa.ArrowException) as caught:
            FLIGHT[asked](client)
        assert not INSIDE.search(str(caught.value).replace("Flight error:", ""))


def test_a_flight_call_on_which_the_server_fails(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.api.topics, "readable", None)
    ticket = flight.Ticket(b'{"topic": "t"}')
    with (
        flight.connect(f"grpc://{running.bound.flight}") as client,
        pytest.raises(flight.FlightInternalError, match="Internal error") as caught,
    ):
        client.do_get(ticket).read_all()
    assert not INSIDE.search(str(caught.value))


def test_a_topics_columns_are_told(running: Running) -> None:
    with flight.connect(f"grpc://{running.bound.flight}") as client:
        _put(client, "t", body([b"x"]))
        path = flight.FlightDescriptor.for_path("t")
        assert client.get_schema(path).schema.equals(client.get_flight_info(path).schema)
        ticket = flight.FlightDescriptor.for_command(b'{"topic": "t", "columns": ["payload"]}')
        assert client.get_schema(ticket).schema.names == ["payload"]
        for other in (flight.FlightDescriptor.for_path("later"), flight.FlightDescriptor.for_command(GARBAGE)):
            assert client.get_schema(other).schema.equals(SCHEMA)


@pytest.mark.parametrize(
    ("method", "path", "given", "said"),
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
def test_http_requests_that_are_refused(running: Running, method: str, path: str, given: Any, said: str) -> None:
    running.ask("POST", "/topic/t/logs", ONE)
    status, _, text = running.ask(method, path, given, {"content-type": "application/json"})
    assert not INSIDE.search(text)
    if said:
        assert (status, json.loads(text)["error"][: len(said)]) == (400, said)


def test_no_time_is_the_configured_time(running: Running) -> None:
    assert running.ask("POST", "/transactions", {"timeout": None})[0] == 200
    assert running.ask("POST", "/transactions")[0] == 200


def test_an_append_without_a_body_is_told_what_is_missing(running: Running) -> None:
    status, headers, text = running.ask("POST", "/topic/t/logs")
    assert (status, json.loads(text)["error"]) == (400, "EOF")  # as slogd's
    assert "the body is empty" in headers["warning"]


def test_a_disk_that_fails_tells_no_path(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    running.ask("POST", "/topic/t/logs", ONE)
    cursors = running.log.topic("t").cursors

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", "/topics/secret")

    monkeypatch.setattr(cursors._fs, "open", fail, raising=False)
    status, _, text = running.ask("PUT", "/topic/t/cursors/c", {"offset": "1"})
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
def test_a_method_that_is_not_there_names_those_that_are(running: Running, path: str, allowed: str) -> None:
    status, headers, _ = running.ask("OPTIONS", path)
    assert (status, headers["allow"]) == (405, allowed)


def test_head_is_get_without_a_body(running: Running) -> None:
    for path in ("/metrics", "/stat", "/describe", "/docs", "/openapi.json"):
        status, headers, text = running.ask("HEAD", path)
        assert (status, text) == (200, "")
        assert headers["content-type"] == running.ask("GET", path)[1]["content-type"]


def packed(running: Running, data: bytes, encoding: str = "gzip") -> tuple[int, str]:
    with running.connection() as connection:
        connection.request("POST", "/topic/t/logs", data, {"Content-Encoding": encoding})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_body_may_be_packed(running: Running) -> None:
    data = json.dumps(ONE).encode()
    assert packed(running, gzip.compress(data)) == (200, '{"offsets":["0"]}')
    assert packed(running, gzip.compress(data[:5]) + gzip.compress(data[5:])) == (200, '{"offsets":["1"]}')
    assert packed(running, data, "identity") == (200, '{"offsets":["2"]}')
    assert packed(running, gzip.compress(data)[:-4])[0] == 400
    assert packed(running, data)[0] == 400
    assert packed(running, data, "br")[0] == 415


def test_a_packed_body_is_bounded_by_what_it_holds(running: Running) -> None:
    assert packed(running, gzip.compress(bytes(97 << 20), 1))[0] == 413
