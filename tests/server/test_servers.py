from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.log import Log, TopicSettings
from penstock.server import servers
from penstock.server.api.entries import EntriesApi
from penstock.server.http.application import create_app
from penstock.server.http.routes import daemon_routes
from penstock.server.servers import AddressUnavailable, Bound, serve
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.pipe import free_ports
from tests.server.running import Running
from tests.server.stub import StructuredLogStub


def one_run(folder: Path, rpc: str, http: str) -> Bound:
    """Serve, stop as soon as the server is ready, and return its addresses."""

    async def run() -> Bound:
        stop, ready = asyncio.Event(), list[Bound]()
        log = Log(folder, TopicSettings())
        try:
            api = EntriesApi(log)
            app = create_app(daemon_routes(api, stat=dict, metrics=list, balance=dict), api.guard)
            handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

            def started(bound: Bound) -> None:
                ready.append(bound)
                asyncio.get_running_loop().call_later(0.3, stop.set)

            await serve(api, app, grpc_address=rpc, http_address=http, stop=stop, ready=started)
            assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        finally:
            log.close()
        return ready[0]

    return asyncio.run(run())


def test_port_0_selects_a_free_port_and_releases_it(tmp_path: Path) -> None:
    bound = one_run(tmp_path, "127.0.0.1:0", "127.0.0.1:0")
    assert bound.grpc != bound.http
    assert "127.0.0.1:0" not in (bound.grpc, bound.http)
    # The kernel may give the ports of the first run to any process now.
    rpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    for _ in range(2):
        bound = one_run(tmp_path, rpc, http)
        assert (bound.grpc, bound.http) == (rpc, http)


@pytest.mark.parametrize("protocol", ["gRPC", "HTTP"])
def test_port_in_use_is_named(tmp_path: Path, protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        address = f"127.0.0.1:{occupant.getsockname()[1]}"
        rpc, http = (address, "127.0.0.1:0") if protocol == "gRPC" else ("127.0.0.1:0", address)
        with pytest.raises(AddressUnavailable, match=f"{protocol}: cannot listen on {address}: Address already in use"):
            one_run(tmp_path, rpc, http)


def test_http_listens_on_a_name_that_has_only_an_ipv6_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def look_up(host: str, *arguments: Any, **options: Any) -> Any:
        return resolve("::1" if host == "six.example" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert one_run(tmp_path, "127.0.0.1:0", "six.example:0").http.startswith("six.example:")


def test_answers_on_a_reused_connection_are_not_delayed(running: Running) -> None:
    with running.connection() as connection:
        times = []
        for _ in range(20):
            began = time.monotonic()
            connection.request("POST", "/topic/t/logs", b"{}")
            assert connection.getresponse().read() == b"{}"
            times.append(time.monotonic() - began)
    assert min(times[1:]) < 0.035, "every answer waits for an acknowledgement"


def test_stopping_does_not_wait_for_streams(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "GRACE_S", 60)
    with grpc.insecure_channel(running.bound.grpc) as channel:
        stub = StructuredLogStub(channel)
        stub.AppendLogs(pb.AppendRequest(topic="t"), timeout=20)
        call = stub.StreamLogs(pb.GetLogsRequest(topic="t"), timeout=20)
        call.initial_metadata()
        began = time.monotonic()
        running.stop()
        with pytest.raises(grpc.RpcError) as raised:
            next(call)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - began < 30


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A server with much grace, and with 16 MiB of entries: more than the buffers of a connection hold."""
    monkeypatch.setattr(servers, "GRACE_S", 600)
    running = Running(tmp_path / "log")
    with grpc.insecure_channel(running.bound.grpc) as channel:
        for _ in range(16):
            entries = [pb.LogEntry(raw_bytes=b"x" * (1 << 20))]
            StructuredLogStub(channel).AppendLogs(pb.AppendRequest(topic="t", logs=entries), timeout=20)
    return running


def test_stopping_does_not_wait_for_an_http_client_that_does_not_read(patient: Running) -> None:
    with patient.connection() as connection:
        connection.request("GET", "/topic/t/logstream")
        assert connection.getresponse().status == 200
        patient.stop()
    assert patient.has_stopped


def test_client_that_reads_slowly_gets_its_answer_while_the_server_stops(patient: Running) -> None:
    with patient.connection() as connection:
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)  # most of it waits in the server
        connection.request("GET", "/topic/t/logs")
        response, content = connection.getresponse(), bytearray()
        stopping = threading.Thread(target=patient.stop)
        stopping.start()
        while part := response.read(64 << 10):
            content += part
            time.sleep(0.05)
        stopping.join()
    assert len(json.loads(content)["logs"]) > 1
    assert len(content) > 2 << 20
