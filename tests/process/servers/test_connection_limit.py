"""Connections without calls do not keep clients out of the gRPC servers, and clients at work keep their connections."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pyarrow.flight as flight
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from penstock.config import SecurityConfig, TokenConfig
from penstock.process.servers.connection_limit import ConnectionLimit, _closable, _Connection
from penstock.process.servers.http_limits import HttpLimits
from penstock.server.http.body_limits import closed_family
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.pipe import wait_until
from tests.ingest.requests_life import requests_to
from tests.server import certificates
from tests.server.http2_attacker import Attacker
from tests.server.idle_connections import IdleConnections, Kind
from tests.server.running import Running
from tests.server.stub import StructuredLogStub
from tests.wire.otlp.otlp_requests import request

LIMIT, IDLE = 20, 100
EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
TOKEN = [("authorization", "Bearer the user secret 1")]
FEW_SECONDS = 5.0
SLOW_S = 1.0
"""Delay of a slow network."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(**security: object) -> Running:
        tokens = {"user": TokenConfig(token="the user secret 1", read=("*",), write=("*",))}
        config = SecurityConfig.model_validate({"tokens": tokens, **security})
        started.append(Running(tmp_path / "topics", config, HttpLimits(connections=LIMIT)))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@contextlib.contextmanager
def new_channel(address: str, certificate: bytes | None = None) -> Iterator[grpc.Channel]:
    """A channel with a connection of its own, as of another process."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "server")]
    if certificate is None:
        opened = grpc.insecure_channel(address, options)
    else:
        opened = grpc.secure_channel(address, grpc.ssl_channel_credentials(certificate), options)
    with opened as channel:
        yield channel


def append(channel: grpc.Channel, timeout_s: float = FEW_SECONDS) -> list[int]:
    entry = pb.AppendRequest(topic="t", logs=[pb.LogEntry(raw_bytes=b"x")])
    call = StructuredLogStub(channel).AppendLogs(entry, timeout=timeout_s, metadata=TOKEN, wait_for_ready=True)
    return list(call.offsets)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("persist", [False, True], ids=["staying", "reconnecting"])
@pytest.mark.parametrize("kind", [Kind.NOTHING, Kind.PREFACE, Kind.PINGS])
def test_idle_connections_do_not_keep_callers_out(kind: Kind, persist: bool, start: Callable[..., Running]) -> None:
    running = start()
    with IdleConnections(port_of(running.bound.grpc), IDLE, kind, persist=persist):
        for number in range(5):
            with new_channel(running.bound.grpc) as channel:
                assert append(channel) == [number]
        wait_until(lambda: running.limits.rpc_connections["grpc"].closed >= IDLE - LIMIT, 10)
    grpc_sample, flight_sample = closed_family(running.limits).samples[::-1]
    assert grpc_sample == ({"protocol": "grpc", "reason": "connection"}, running.limits.rpc_connections["grpc"].closed)
    assert flight_sample == ({"protocol": "flight", "reason": "connection"}, 0)


@pytest.mark.parametrize("kind", [Kind.NOTHING, Kind.TLS, Kind.PREFACE, Kind.PINGS])
def test_idle_connections_over_tls_do_not_keep_callers_out(
    kind: Kind, start: Callable[..., Running], tmp_path: Path
) -> None:
    server = certificates.make(tmp_path, "server")
    running = start(tls_cert=server.cert, tls_key=server.key)
    with IdleConnections(port_of(running.bound.grpc), IDLE, kind, tls=True):
        for number in range(3):
            with new_channel(running.bound.grpc, server.cert.read_bytes()) as channel:
                assert append(channel) == [number]


@pytest.mark.parametrize("kind", [Kind.NOTHING, Kind.PREFACE, Kind.PINGS])
def test_idle_connections_do_not_keep_readers_of_flight_out(kind: Kind, start: Callable[..., Running]) -> None:
    running = start()
    with new_channel(running.bound.grpc) as channel:
        append(channel)
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer the user secret 1")], timeout=FEW_SECONDS)

    def read() -> int:
        with (
            contextlib.suppress(flight.FlightUnavailableError),
            flight.connect(f"grpc://{running.bound.flight}") as client,
        ):
            return client.do_get(flight.Ticket(b'{"topic":"t"}'), options).read_all().num_rows
        return 0

    with IdleConnections(port_of(running.bound.flight), IDLE, kind):
        for _ in range(3):
            assert wait_until(read, FEW_SECONDS) == 1


def export(port: int) -> None:
    with new_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(EXPORT, None, ExportLogsServiceResponse.FromString)
        call(request(2).SerializeToString(), timeout=FEW_SECONDS, metadata=TOKEN, wait_for_ready=True)


@pytest.mark.parametrize("kind", [Kind.NOTHING, Kind.PREFACE, Kind.PINGS])
def test_idle_connections_do_not_keep_senders_of_otlp_out(kind: Kind, tmp_path: Path) -> None:
    with requests_to(tmp_path, "otlp_grpc", max_connections=LIMIT, tokens=["the user secret 1"]) as (running, port):
        export(port)  # by then it listens
        with IdleConnections(port, IDLE, kind):
            for _ in range(3):
                export(port)
            wait_until(lambda: running.counts["connection_closed.limit"] >= IDLE - LIMIT, 10)
        assert len(running.rows) == 8


def test_calls_without_a_token_do_not_keep_callers_out(start: Callable[..., Running]) -> None:
    running = start()
    attacker = Attacker(running.bound.grpc, "/slogd.StructuredLog/StreamLogs")
    for _ in range(IDLE):
        attacker.send_without_reading([])
    try:
        with new_channel(running.bound.grpc) as channel:
            assert append(channel) == [0]
        wait_until(lambda: running.limits.rpc_connections["grpc"].closed >= IDLE - LIMIT, 10)
    finally:
        attacker.close()


def test_waiting_stream_and_idle_channel_stay_while_idle_connections_are_closed(
    start: Callable[..., Running],
) -> None:
    running = start()
    states: list[grpc.ChannelConnectivity] = []
    with new_channel(running.bound.grpc) as idle, new_channel(running.bound.grpc) as following:
        assert append(idle) == [0]
        idle.subscribe(states.append)
        pages = StructuredLogStub(following).StreamLogs(pb.GetLogsRequest(topic="t"), timeout=60, metadata=TOKEN)
        assert [entry.offset for entry in next(pages).logs] == [0]
        with IdleConnections(port_of(running.bound.grpc), IDLE, Kind.PREFACE, persist=True):
            wait_until(lambda: running.limits.rpc_connections["grpc"].closed > 10 * IDLE, 20)
            assert append(idle) == [1]
            assert [entry.offset for entry in next(pages).logs] == [1]
        assert set(states) == {grpc.ChannelConnectivity.READY}


def test_longest_idle_channel_is_closed_for_a_new_one_and_connects_again(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MIN_IDLE_S", 0.5)
    running = start()
    with contextlib.ExitStack() as opened:
        channels = [opened.enter_context(new_channel(running.bound.grpc)) for _ in range(LIMIT)]
        states: list[list[grpc.ChannelConnectivity]] = [[] for _ in channels]
        for channel, seen in zip(channels, states, strict=True):
            channel.subscribe(seen.append)
            append(channel)
        time.sleep(0.6)
        append(channels[0])
        assert append(opened.enter_context(new_channel(running.bound.grpc))) == [LIMIT + 1]
        wait_until(lambda: running.limits.rpc_connections["grpc"].closed == 1, 10)
        wait_until(lambda: grpc.ChannelConnectivity.IDLE in states[1][1:], 10)
        assert running.limits.rpc_connections["grpc"].closed == 1
        assert append(channels[1]) == [LIMIT + 2]


def relay_slowly(listener: socket.socket, port: int, delay_s: float) -> None:
    """Connect the first client to ``port`` of 127.0.0.1; its bytes pass after a delay, as over a slow network."""
    with listener.accept()[0] as client, socket.create_connection(("127.0.0.1", port)) as server:
        time.sleep(delay_s)
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, (client, server))
            selector.register(server, selectors.EVENT_READ, (server, client))
            while ready := selector.select(20):
                for source, target in (key.data for key, _ in ready):
                    if not (received := source.recv(1 << 16)):
                        return
                    target.sendall(received)


def test_slow_new_client_takes_the_place_of_an_idle_one(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MIN_IDLE_S", 0.5)
    running = start()
    with contextlib.ExitStack() as opened, socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(LIMIT):
            append(opened.enter_context(new_channel(running.bound.grpc)))
        time.sleep(0.6)
        arguments = (listener, port_of(running.bound.grpc), SLOW_S)
        relay = threading.Thread(target=relay_slowly, args=arguments)
        relay.start()
        with new_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            assert append(channel, 10) == [LIMIT]
        relay.join(30)
    assert running.limits.rpc_connections["grpc"].closed == 1


def test_many_addresses_do_not_keep_a_slow_client_out(start: Callable[..., Running]) -> None:
    running = start()
    with (
        IdleConnections(port_of(running.bound.grpc), IDLE, Kind.NOTHING, persist=True, addresses=IDLE),
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        wait_until(lambda: running.limits.rpc_connections["grpc"].closed >= IDLE, 20)
        relay = threading.Thread(target=relay_slowly, args=(listener, port_of(running.bound.grpc), SLOW_S))
        relay.start()
        with new_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            assert append(channel, 20) == [0]
        relay.join(30)


def test_new_connections_are_closed_only_beyond_half_of_the_burst(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MAX_BURST", 60)
    monkeypatch.setattr("penstock.process.servers.connection_limit.NEW_S", 60.0)
    running = start()
    limit = running.limits.rpc_connections["grpc"]
    with IdleConnections(port_of(running.bound.grpc), LIMIT + 50, Kind.PREFACE, addresses=LIMIT + 50):
        wait_until(lambda: limit.closed >= 20, 20)
        with new_channel(running.bound.grpc) as channel:
            assert append(channel) == [0]
        assert limit.closed <= 21


@contextlib.contextmanager
def append_under_way(running: Running, method: str) -> Iterator[Callable[[], list[int]]]:
    """An append that waits for the disk on its own connection; what is yielded ends the wait and returns offsets."""
    topic = running.log.topic("t")
    with new_channel(running.bound.grpc) as channel, contextlib.ExitStack() as stopped_disk:
        stopped_disk.enter_context(topic.writer.lock)
        entry = pb.AppendRequest(topic="t", logs=[pb.LogEntry(raw_bytes=b"slow")])
        call = getattr(StructuredLogStub(channel), method)
        if method == "AppendLogs":
            waiting = call.future(entry, timeout=60, metadata=TOKEN)
        else:
            answers = call(iter([entry]), timeout=60, metadata=TOKEN)
        wait_until(lambda: topic._scheduled)

        def finish() -> list[int]:
            stopped_disk.close()
            return list((waiting.result() if method == "AppendLogs" else next(answers)).offsets)

        yield finish


@pytest.mark.parametrize("method", ["AppendLogs", "AppendStream"])
def test_connection_with_an_append_under_way_is_not_closed(
    method: str, start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MIN_IDLE_S", 0.5)
    running = start()
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(new_channel(running.bound.grpc))
        assert append(first) == [0]
        finish = opened.enter_context(append_under_way(running, method))
        for _ in range(2 * LIMIT):
            channel = opened.enter_context(new_channel(running.bound.grpc))
            list(StructuredLogStub(channel).ListTopics(pb.ListTopicsRequest(), timeout=20, metadata=TOKEN).topic)
        wait_until(lambda: running.limits.rpc_connections["grpc"].closed == LIMIT + 2, 20)
        assert finish() == [1]
    assert running.log.topic("t").end == 2


def test_silent_streams_do_not_keep_callers_out(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MIN_IDLE_S", 2.0)
    monkeypatch.setattr("penstock.process.servers.connection_limit.MAX_BURST", 2)
    running = start()
    with new_channel(running.bound.grpc) as channel:
        append(channel)
    with contextlib.ExitStack() as opened:
        streams = []
        for _ in range(LIMIT + 2):
            stub = StructuredLogStub(opened.enter_context(new_channel(running.bound.grpc)))
            query = pb.GetLogsRequest(topic="t")
            streams.append(stub.StreamLogs(query, timeout=60, metadata=TOKEN, wait_for_ready=True))
            assert len(next(streams[-1]).logs) == 1
        assert append(opened.enter_context(new_channel(running.bound.grpc)), 20) == [1]
        wait_until(streams[0].done, 10)
        assert streams[0].code() is grpc.StatusCode.UNAVAILABLE


def test_connection_with_an_export_under_way_is_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.process.servers.connection_limit.MIN_IDLE_S", 0.5)
    with (
        requests_to(tmp_path, "otlp_grpc", max_connections=LIMIT, request_timeout=60) as (running, port),
        contextlib.ExitStack() as opened,
    ):
        export(port)  # by then it listens
        running.log_goes_on = False
        channel = opened.enter_context(new_channel(f"127.0.0.1:{port}"))
        waiting = channel.unary_unary(EXPORT).future(request(2).SerializeToString(), timeout=60)
        wait_until(lambda: running.receiver._exports)
        for _ in range(2 * LIMIT):
            other = opened.enter_context(new_channel(f"127.0.0.1:{port}"))
            with pytest.raises(grpc.RpcError) as refused:
                other.unary_unary(EXPORT)(b"\xff", timeout=20)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        wait_until(lambda: running.receiver._calls.connections.closed >= LIMIT + 1, 20)
        running.log_goes_on = True
        waiting.result()
    assert len(running.rows) == 4


def test_connections_without_calls_of_the_busiest_address_are_closed_first() -> None:
    now = time.monotonic()
    connections = [
        _Connection(1, ("192.0.2.1", 1), now - 90),  # its call is long ago
        _Connection(2, ("192.0.2.1", 2), now - 90),  # its call is open
        _Connection(3, ("192.0.2.2", 1), now - 50),  # the only one of its address
        _Connection(4, ("192.0.2.3", 1), now - 20),
        _Connection(5, ("192.0.2.3", 2), now - 30),
        _Connection(6, ("192.0.2.4", 1), now - 90),  # it has just called
        _Connection(7, ("192.0.2.5", 1), now - 90),  # its streams are silent, and it is the only one of its address
        _Connection(8, ("192.0.2.6", 1), now - 90),
        _Connection(9, ("192.0.2.6", 2), now - 90),  # silent for longer than the other one of its address
        _Connection(10, ("192.0.2.6", 3), now - 90),  # its stream has just had a message
    ]
    last_calls = {connection.peer: now - 85 for connection in (connections[1], *connections[6:])}
    last_calls |= {("192.0.2.1", 1): now - 80, ("192.0.2.4", 1): now - 0.1}
    streams = {("192.0.2.5", 1): now - 70, ("192.0.2.6", 1): now - 20}
    streams |= {("192.0.2.6", 2): now - 30, ("192.0.2.6", 3): now - 0.1}
    new = [_Connection(11 + number, ("192.0.2.7", number), now - 2 + number / 10) for number in range(3)]
    closable, counted_as_new = _closable(connections + new, last_calls, streams, {("192.0.2.1", 2)}, 2)
    assert counted_as_new == {*new[1:]}
    # Of the new ones of an address, two are closed after the idle connection.
    assert [connection.descriptor for connection in closable] == [11, 5, 4, 3, 1, 12, 13, 9, 8, 7]


def test_peers_of_closed_connections_are_forgotten(start: Callable[..., Running]) -> None:
    running = start()
    for _ in range(3 * LIMIT):
        with new_channel(running.bound.grpc) as channel:
            append(channel)
    wait_until(lambda: len(running.limits.rpc_connections["grpc"]._last_calls) <= 2 * LIMIT + 1)


def test_stopped_limit_has_no_thread() -> None:
    limit = ConnectionLimit(1, "key")
    limit.start([])
    threads = [thread for thread in threading.enumerate() if thread.name == "connections"]
    limit.stop()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
