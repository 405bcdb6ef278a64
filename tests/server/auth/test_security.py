"""TLS and tokens of gRPC, HTTP and Flight, and how Penstock's own processes authenticate."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from penstock.client import Log, NotAllowed
from penstock.config import ConfigError, SecurityConfig, Settings, TokenConfig
from penstock.config.daemon_access import TOKEN_FILE, Access, internal_token, reachable
from penstock.counts import Name, Origin
from penstock.records import body
from penstock.slogd import slogd_pb2 as pb
from tests.server import certificates
from tests.server.certificates import Pair
from tests.server.running import INTERNAL_TOKEN, Running
from tests.server.stub import StructuredLogStub

WRITER, READER, RELAY = "the secret of the writer", "the secret of the reader", "the secret of the relay"
TOKENS = {
    "relay": TokenConfig(token=RELAY, write=("web-*",), relay=True),
    "writer": TokenConfig(token=WRITER, write=("web-*",)),
    "reader": TokenConfig(token=READER, read=("*",)),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("certificates")
    authority, public = certificates.make(folder, "authority"), certificates.make(folder, "public")
    chained = certificates.make(folder, "chained", issuer=public)
    with chained.cert.open("ab") as chain:
        chain.write(public.cert.read_bytes())
    return {
        "chained": chained,
        "stranger": certificates.make(folder, "stranger", issuer=public),
        "authority": authority,
        "server": certificates.make(folder, "server"),
        "client": certificates.make(folder, "client", issuer=authority),
        "server only": certificates.make(folder, "served", server_only=True),
    }


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Running]:
    server = Running(tmp_path / "topics", SecurityConfig(tokens=TOKENS))
    yield server
    server.stop()


def test_relayed_entries_require_the_right_relay(closed: Running) -> None:
    origin, rows = Origin("host/udp", 120, 121_000_000, 122_000_000, "plog"), body([b"a", b"b"])
    with Log(closed.bound.grpc, token=WRITER) as log, pytest.raises(NotAllowed, match="requires the right relay"):
        log.append_batch("web-a", rows, ("p", 1), origin)
    with Log(closed.bound.grpc, token=RELAY) as log:
        assert [log.append_batch("web-a", rows, ("p", 1), origin) for _ in range(2)] == [[0, 1]] * 2
        with pytest.raises(NotAllowed, match="may not be written"):
            log.append_batch("other", rows, ("p", 1), origin)
    (batch,) = closed.log.topic("web-a").reader().read(0)
    assert batch.origin == replace(origin, counts={Name.SEEN: 2, Name.ACCEPTED: 2})


def test_transaction_with_an_origin_is_refused(running: Running) -> None:
    request = pb.AppendRequest(topic="t", transaction_id="x", origin=pb.Origin(source="host/udp"))
    with grpc.insecure_channel(running.bound.grpc) as channel, pytest.raises(grpc.RpcError) as refused:
        StructuredLogStub(channel).AppendLogs(request, timeout=10)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def metadata(token: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")] if token else []


def outcome(call: Any) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def test_grpc_requires_a_token_with_the_right(closed: Running) -> None:
    with grpc.insecure_channel(closed.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        append = pb.AppendRequest(topic="web-a", logs=[pb.LogEntry(raw_bytes=b"x")])
        forbidden_append = pb.AppendRequest(topic="other", logs=[pb.LogEntry(raw_bytes=b"x")])
        read = pb.GetLogsRequest(topic="web-a")

        def codes(token: str | None) -> list[str]:
            options: dict[str, Any] = {"metadata": metadata(token), "timeout": 20}
            return [
                outcome(lambda: stub.AppendLogs(append, **options)),
                outcome(lambda: stub.AppendLogs(forbidden_append, **options)),
                outcome(lambda: stub.GetLogs(read, **options)),
                outcome(lambda: next(stub.StreamLogs(read, **options))),
                outcome(lambda: list(stub.AppendStream(iter([append]), **options))),
                outcome(lambda: stub.CreateTopic(pb.CreateTopicRequest(topic="new"), **options)),
                outcome(lambda: stub.ListTopics(pb.ListTopicsRequest(), **options)),
            ]

        denied, unknown = "PERMISSION_DENIED", "UNAUTHENTICATED"
        assert codes(None) == codes("nobody's secret at all") == [unknown] * 7
        assert codes(WRITER) == ["OK", denied, denied, denied, "OK", denied, "OK"]
        assert codes(READER) == [denied, denied, "OK", "OK", "OK", denied, "OK"]
        assert codes(INTERNAL_TOKEN) == ["OK"] * 7
        refused = list(stub.AppendStream(iter([append]), metadata=metadata(READER), timeout=20))
        assert refused[0].error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        seen = stub.ListTopics(pb.ListTopicsRequest(), metadata=metadata(WRITER), timeout=20)
        assert [topic.name for topic in seen.topic] == []


def test_http_requires_a_token_with_the_right(closed: Running) -> None:
    def status(method: str, path: str, token: str | None) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return closed.request(method, path, {"logs": [{}]} if method == "POST" else None, headers)[0]

    requests = [
        ("POST", "/topic/web-a/logs"),
        ("GET", "/topic/web-a/logs"),
        ("GET", "/topics"),
        ("GET", "/metrics"),
        ("DELETE", "/topics/web-a"),
    ]
    assert [status(*request, None) for request in requests] == [401] * 5
    assert [status(*request, WRITER) for request in requests] == [200, 403, 200, 200, 403]
    assert [status(*request, READER) for request in requests] == [403, 200, 200, 200, 403]
    assert [status("GET", path, None) for path in ("/docs", "/openapi.json")] == [200, 200]
    assert closed.request("GET", "/topics")[1]["www-authenticate"] == "Bearer"


def test_flight_requires_a_token_with_the_right(closed: Running) -> None:
    with flight.connect(f"grpc://{closed.bound.flight}") as client:

        def put_batch(token: str | None) -> None:
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
            batch = body([b"x"])
            writer, answers = client.do_put(flight.FlightDescriptor.for_path("web-a"), batch.schema, options)
            writer.write_batch(batch)
            writer.done_writing()
            answers.read()
            writer.close()

        def get(token: str) -> pa.Table:
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
            return client.do_get(flight.Ticket(b'{"topic":"web-a"}'), options).read_all()

        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_flights())
        with pytest.raises(flight.FlightUnauthenticatedError):
            put_batch("nobody's secret at all")
        put_batch(WRITER)
        with pytest.raises(flight.FlightUnauthorizedError):
            get(WRITER)
        with pytest.raises(flight.FlightUnauthorizedError):
            put_batch(READER)
        assert get(READER).num_rows == 1


def settings_of(folder: Path, running: Running, security: SecurityConfig) -> Settings:
    log = {"http": running.bound.http, "grpc": running.bound.grpc, "flight": running.bound.flight}
    return Settings.model_validate({"data_dir": folder, "log": log, "security": security.model_dump()})


@pytest.mark.parametrize(
    ("server", "with_client_ca"), [("server", False), ("server", True), ("chained", False), ("chained", True)]
)
def test_own_processes_connect_by_tls_and_internal_token(
    tmp_path: Path, pairs: dict[str, Pair], server: str, with_client_ca: bool
) -> None:
    authority = pairs["authority"].cert if with_client_ca else None
    security = SecurityConfig(
        tls_cert=pairs[server].cert, tls_key=pairs[server].key, client_ca=authority, tokens=TOKENS
    )
    (tmp_path / TOKEN_FILE).write_text(INTERNAL_TOKEN)
    (tmp_path / TOKEN_FILE).chmod(0o600)
    running = Running(tmp_path / "topics", security)
    try:
        access = Access(settings_of(tmp_path, running, security))
        with access.client() as client:
            assert client.post("/topic/t/logs", json={"logs": [{"raw_bytes": "YQ=="}]}).json() == {"offsets": ["0"]}
        assert access.request("/topics") == (200, b'{"topic":[{"name":"t"}]}')
        roots, key, chain = access.certificates
        credentials = grpc.ssl_channel_credentials(roots, key, chain)
        named = [("grpc.ssl_target_name_override", access.peer)]
        with grpc.secure_channel(access.rpc_address, credentials, named) as channel:
            stub = StructuredLogStub(channel)
            page = stub.GetLogs(pb.GetLogsRequest(topic="t"), metadata=list(access.headers.items()), timeout=20)
        assert [entry.raw_bytes for entry in page.logs] == [b"a"]
        certificate = {"cert_chain": chain, "private_key": key} if key else {}
        options = flight.FlightCallOptions(headers=[(k.encode(), v.encode()) for k, v in access.headers.items()])
        with flight.connect(
            f"grpc+tls://{running.bound.flight}",
            tls_root_certs=roots,
            override_hostname=access.peer,
            **certificate,
        ) as connected:
            assert [info.total_records for info in connected.list_flights(options=options)] == [1]
        _outsiders(running, pairs, server, with_client_ca)
    finally:
        running.stop()


def _outsiders(running: Running, pairs: dict[str, Pair], server: str, with_client_ca: bool) -> None:
    """Check that clients without TLS, or without a required certificate, are refused."""
    with grpc.insecure_channel(running.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        assert outcome(lambda: stub.ListTopics(pb.ListTopicsRequest(), timeout=20)) == "UNAVAILABLE"
    trusting = ssl.create_default_context(cafile=str(pairs[server].cert))
    headers = {"Authorization": f"Bearer {READER}"}
    if with_client_ca:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"https://{running.bound.http}/topics", verify=trusting, headers=headers)
        stranger = pairs["stranger"]  # of the authority that stands in the file of a chained one
        credentials = grpc.ssl_channel_credentials(
            pairs[server].cert.read_bytes(), stranger.key.read_bytes(), stranger.cert.read_bytes()
        )
        with grpc.secure_channel(running.bound.grpc, credentials) as channel:
            stub = StructuredLogStub(channel)
            assert outcome(lambda: stub.ListTopics(pb.ListTopicsRequest(), timeout=20)) == "UNAVAILABLE"
        trusting.load_cert_chain(pairs["client"].cert, pairs["client"].key)
    answer = httpx.get(f"https://{running.bound.http}/topics", verify=trusting, headers=headers)
    assert answer.json() == {"topic": [{"name": "t"}]}


def test_valid_files_name_the_certificate(pairs: dict[str, Pair]) -> None:
    server = pairs["server"]
    security = SecurityConfig(tls_cert=server.cert, tls_key=server.key, client_ca=pairs["authority"].cert)
    assert security.check_files() == "server"
    assert SecurityConfig().check_files() == ""


def test_invalid_files_stop_the_start(pairs: dict[str, Pair], tmp_path: Path) -> None:
    server, only, nothing = pairs["server"], pairs["server only"], tmp_path / "nothing.pem"
    cases: list[tuple[dict[str, Path], str]] = [
        ({"tls_cert": nothing, "tls_key": server.key}, r"security\.tls_cert: .* cannot be read"),
        ({"tls_cert": server.cert, "tls_key": nothing}, r"security\.tls_key: .* cannot be read"),
        ({"tls_cert": server.cert, "tls_key": only.key}, r"security\.tls_cert: cannot be used with tls_key"),
        (
            {"tls_cert": server.cert, "tls_key": server.key, "client_ca": server.key},
            r"security\.client_ca: holds no certificates",
        ),
        (
            {"tls_cert": only.cert, "tls_key": only.key, "client_ca": server.cert},
            r"security\.tls_cert: cannot be used for clients too",
        ),
    ]
    for files, text in cases:
        with pytest.raises(ConfigError, match=text):
            SecurityConfig(**files).check_files()  # type: ignore[arg-type]
    assert SecurityConfig(tls_cert=only.cert, tls_key=only.key).check_files() == "served"


def test_internal_token_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    token = internal_token(tmp_path / "data")
    assert internal_token(tmp_path / "data") == token
    assert len(token) == 64
    assert (tmp_path / "data" / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [TOKEN_FILE]


def test_internal_token_is_not_created_without_tokens(tmp_path: Path) -> None:
    access = Access(Settings(data_dir=tmp_path))
    assert (access.token, access.headers, list(tmp_path.iterdir())) == (None, {}, [])


@pytest.mark.parametrize(
    ("listened", "connected"),
    [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1"), ("a.example:1", "a.example:1")],
)
def test_wildcard_address_is_reached_by_loopback(listened: str, connected: str) -> None:
    assert reachable(listened) == connected


LARGE_FILTER = " OR ".join([r"v:([a-z]{1,100}[0-9]{0,100}\pL{1,300})"] * 10)


def test_filter_is_compiled_after_the_right_is_checked(closed: Running) -> None:
    headers = {"Authorization": f"Bearer {WRITER}"}
    path = f"/topic/web-a/logs?filter={urllib.parse.quote(LARGE_FILTER)}"
    assert closed.request("GET", path, headers=headers)[0] == 403
    assert closed.request("GET", path.replace("/logs", "/search"), headers=headers)[0] == 403
    request = pb.GetLogsRequest(topic="web-a", filter=LARGE_FILTER)
    with grpc.insecure_channel(closed.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        assert outcome(lambda: stub.GetLogs(request, metadata=metadata(WRITER), timeout=20)) == "PERMISSION_DENIED"
        assert outcome(lambda: next(stub.StreamLogs(request, metadata=metadata(WRITER), timeout=20))) == (
            "PERMISSION_DENIED"
        )
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {WRITER}".encode())])
    ticket = flight.Ticket(json.dumps({"topic": "web-a", "filter": LARGE_FILTER}).encode())
    with (
        flight.connect(f"grpc://{closed.bound.flight}") as client,
        pytest.raises(flight.FlightUnauthorizedError),
    ):
        client.do_get(ticket, options).read_all()
    closed.log.topic("web-a", create=True)
    status, _, text = closed.request("GET", path, headers={"Authorization": f"Bearer {READER}"})
    assert (status, "the patterns are too large" in text) == (400, True)


def test_open_streams_end_when_the_token_is_revoked(closed: Running) -> None:
    """Includes a stream that waits at the end of its topic."""
    closed.log.topic("web-a", create=True)
    request = pb.GetLogsRequest(topic="web-a")
    with grpc.insecure_channel(closed.bound.grpc) as channel, closed.connection() as connection:
        stream = StructuredLogStub(channel).StreamLogs(request, metadata=metadata(READER), timeout=20)
        stream.initial_metadata()
        connection.request("GET", "/topic/web-a/logstream", headers={"Authorization": f"Bearer {READER}"})
        response = connection.getresponse()
        assert response.status == 200
        closed.api.guard.replace({"writer": TOKENS["writer"]})
        assert outcome(lambda: list(stream)) == "UNAUTHENTICATED"
        assert json.loads(response.read())["error"]["grpc_code"] == grpc.StatusCode.UNAUTHENTICATED.value[0]


def test_open_streams_end_when_the_token_loses_the_right(closed: Running) -> None:
    closed.log.topic("web-a", create=True)
    with grpc.insecure_channel(closed.bound.grpc) as channel:
        request = pb.GetLogsRequest(topic="web-a")
        stream = StructuredLogStub(channel).StreamLogs(request, metadata=metadata(READER), timeout=20)
        stream.initial_metadata()
        closed.api.guard.replace(TOKENS | {"reader": TokenConfig(token=READER, read=("other",))})
        assert outcome(lambda: list(stream)) == "PERMISSION_DENIED"


def test_append_stream_ends_when_the_token_is_revoked(closed: Running) -> None:
    append = pb.AppendRequest(topic="web-a", logs=[pb.LogEntry(raw_bytes=b"x")])
    revoked = threading.Event()

    def requests() -> Iterator[pb.AppendRequest]:
        yield append
        revoked.wait(20)
        yield append

    with grpc.insecure_channel(closed.bound.grpc) as channel:
        answers = StructuredLogStub(channel).AppendStream(requests(), metadata=metadata(WRITER), timeout=20)
        assert next(answers).offsets == [0]
        closed.api.guard.replace({"reader": TOKENS["reader"]})
        revoked.set()
        assert outcome(lambda: list(answers)) == "UNAUTHENTICATED"
    assert closed.log.topic("web-a").end == 1
