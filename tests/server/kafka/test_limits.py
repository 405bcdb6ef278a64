from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process import in_flight_bytes
from penstock.records import body
from penstock.server.http.body_limits import HttpLimits
from penstock.server.kafka.limits import LARGEST
from penstock.server.kafka.messages import Api
from tests.server.kafka.test_messages import request
from tests.server.running import Running


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Running]:
    """With little room and no patience."""
    server = Running(tmp_path / "topics", limits=HttpLimits(max_bytes=1 << 20, timeout=0.3, connections=3), kafka=True)
    yield server
    server.stop()


def connected(server: Running) -> socket.socket:
    host, _, port = server.bound.kafka.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def is_served(sock: socket.socket) -> bool:
    sock.sendall(framed(request(Api.API_VERSIONS, 0)))
    return len(sock.recv(4)) == 4


def is_closed(sock: socket.socket) -> bool:
    """Whether the server ends the connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("size", [0, -1, LARGEST + 1, 2**31 - 1])
def test_a_size_that_no_request_has_ends_the_connection(door: Running, size: int) -> None:
    with connected(door) as sock:
        sock.sendall(struct.pack(">i", size))
        assert is_closed(sock)


def test_a_request_that_does_not_come_ends_its_connection(narrow: Running) -> None:
    with connected(narrow) as sock, connected(narrow) as other:
        sock.sendall(struct.pack(">i", 100) + b"x")
        assert is_closed(sock)
        assert is_served(other)


def test_more_connections_than_allowed_are_closed_and_the_others_served(narrow: Running) -> None:
    socks = [connected(narrow) for _ in range(3)]
    assert all(map(is_served, socks))
    with connected(narrow) as other:
        assert is_closed(other)
    for sock in socks:
        assert is_served(sock)
        sock.close()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with connected(narrow) as sock:
            try:
                if is_served(sock):
                    return
            except ConnectionError:
                time.sleep(0.05)
    raise AssertionError("nobody is served any more")


def test_requests_are_answered_in_the_order_they_came(door: Running) -> None:
    with connected(door) as sock:
        sock.sendall(b"".join(framed(request(Api.API_VERSIONS, 0)) for _ in range(50)))
        stream = sock.makefile("rb")
        for _ in range(50):
            (size,) = struct.unpack(">i", stream.read(4))
            assert struct.unpack(">i", stream.read(size)[:4]) == (7,)


def test_who_does_not_take_its_answers_is_disconnected(narrow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_bytes, "MIN_BYTES_PER_S", 100 << 20)
    rows = body([b"x" * 4_000_000])
    narrow.api.topics.append(narrow.log.topic("t", create=True), rows, "http").result(20)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 8_000_000}
    asked = framed(
        request(Api.FETCH, 12, max_bytes=8_000_000, topics=[{"topic": "t", "partitions": [part]}], replica_id=-1)
    )
    with connected(narrow) as sock:
        sock.sendall(asked * 8)
        time.sleep(1)
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                sock.sendall(asked)
                time.sleep(0.01)
    with connected(narrow) as sock:
        assert is_served(sock)
