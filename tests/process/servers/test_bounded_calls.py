"""Calls over the limit are cancelled, and attacks on HTTP/2 cost neither threads, memory nor other callers' time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import grpc
import pyarrow.flight as flight
import pytest

from penstock.process.servers.bounded_calls import BoundedCalls
from penstock.slogd import slogd_pb2 as pb
from tests.server.http2_attacker import Attacker
from tests.server.separate_process import ServedProcess, served_process

MAX_NEW_THREADS, MAX_NEW_MIB, MAX_WAIT_S = 20, 150, 3.0
"""Ten times what was measured at the time: 2 threads, 10 to 80 MiB (three times), 0.3 s."""


class OpenCall:
    """The part of a cygrpc call that BoundedCalls uses."""

    def __init__(self, peer: bytes) -> None:
        self._peer, self.reason = peer, ""

    def peer(self) -> bytes:
        return self._peer

    def cancel(self, code: int, reason: str) -> None:
        assert code == 8
        self.reason = reason


def test_call_with_least_recent_progress_is_cancelled_over_the_limit() -> None:
    calls = [OpenCall(b"peer-%d" % number) for number in range(3)]
    bounded = BoundedCalls(2, "too slow")
    for call in (calls[0], calls[1], calls[0], calls[2]):
        bounded.progress(call)
    assert [call.reason for call in calls] == ["", "too slow", ""]
    assert len(bounded) == 2


def test_connection_with_many_calls_loses_its_own() -> None:
    honest, greedy = OpenCall(b"honest"), [OpenCall(b"greedy") for _ in range(4)]
    bounded = BoundedCalls(3, "too slow")
    for call in (honest, *greedy):
        bounded.progress(call)
    assert [call.reason for call in (honest, *greedy)] == ["", "too slow", "too slow", "", ""]


def test_discarded_calls_do_not_count() -> None:
    calls = [OpenCall(b"peer") for _ in range(3)]
    bounded = BoundedCalls(1, "too slow")
    for call in calls:
        bounded.progress(call)
        bounded.discard(call)
        bounded.discard(call)
    assert [call.reason for call in calls] == ["", "", ""]


def _append(address: str) -> None:
    request = pb.AppendRequest(topic="t", logs=[pb.LogEntry(raw_bytes=b"x")]).SerializeToString()
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        channel.unary_unary("/slogd.StructuredLog/AppendLogs")(request, timeout=30)


def _list(address: str) -> None:
    with flight.connect(f"grpc://{address}") as client:
        list(client.list_flights(options=flight.FlightCallOptions(timeout=30)))


def _longest_wait(server: ServedProcess) -> float:
    began = time.monotonic()
    _append(server.grpc)
    between = time.monotonic()
    _list(server.flight)
    return max(between - began, time.monotonic() - between)


@pytest.mark.parametrize(
    ("protocol", "method"),
    [
        ("flight", "/arrow.flight.protocol.FlightService/DoPut"),
        ("flight", "/arrow.flight.protocol.FlightService/DoGet"),
        ("grpc", "/slogd.StructuredLog/AppendLogs"),
        ("grpc", "/slogd.StructuredLog/StreamLogs"),
    ],
)
@pytest.mark.parametrize(("connections", "streams", "reset"), [(1, 2500, False), (8, 2500, False), (8, 5000, True)])
def test_honest_callers_are_served_while_streams_are_opened_or_reset(
    tmp_path: Path, protocol: str, method: str, connections: int, streams: int, reset: bool
) -> None:
    with served_process(tmp_path / "topics") as server:
        _longest_wait(server)
        threads, mib = server.threads_and_mib()
        attacker = Attacker(getattr(server, protocol), method)
        attack = threading.Thread(target=attacker.run, args=(connections, streams), kwargs={"reset": reset})
        attack.start()
        waits, peaks = [], []
        try:
            while attack.is_alive() or len(waits) < 5:
                waits.append(_longest_wait(server))
                peaks.append(server.threads_and_mib())
        finally:
            attack.join()
            attacker.close()
        assert max(waits) < MAX_WAIT_S
        assert max(peak[0] for peak in peaks) - threads < MAX_NEW_THREADS
        assert max(peak[1] for peak in peaks) - mib < MAX_NEW_MIB


def test_honest_caller_is_not_cancelled_while_many_connections_open_all_their_streams(tmp_path: Path) -> None:
    with served_process(tmp_path / "topics") as server:
        _append(server.grpc)
        attacker = Attacker(server.grpc, "/slogd.StructuredLog/AppendLogs")
        attack = threading.Thread(target=attacker.run, args=(60, 300), kwargs={"reset": False})
        attack.start()
        appends = 0
        try:
            while attack.is_alive() or appends < 50:
                _append(server.grpc)  # gRPC rejected about one of fifty
                appends += 1
        finally:
            attack.join()
            attacker.close()
