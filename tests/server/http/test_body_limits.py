"""Limits of HTTP connections, bodies in flight and slow clients, on real connections."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.process.servers.http_connection import LimitedProtocol
from penstock.process.servers.http_limits import MIN_AVERAGE_CHUNK_BYTES, HttpLimits, LimitedBodies
from penstock.server.http.body_limits import refused_family
from tests.server.running import Running

HEAD = b"POST /topic/t/logs HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
BODY = json.dumps({"logs": [{"raw_bytes": "eHh4" * 1000}]}).encode()


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(most: int, timeout: float, connections: int = 100) -> Running:
        started.append(Running(tmp_path, limits=HttpLimits(most, timeout, connections)))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    host, _, port = running.bound.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        yield sock


def answer(sock: socket.socket) -> tuple[int, bool]:
    """Return the status of the answer (0 without one) and whether the connection ended with it."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while more := sock.recv(65536):
            got += more
            if b"\r\n\r\n" in got and b"connection: close" not in got.lower():
                return int(got.split()[1]), False
    return (int(got.split()[1]) if got else 0), True


def is_disconnected(sock: socket.socket) -> bool:
    """Return whether the server has ended the connection, also after an answer."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65536):
            continue
    return True


def test_client_that_ends_its_side_behind_its_request_gets_the_answer(limited: Callable[..., Running]) -> None:
    running = limited(1 << 20, 20.0)
    with connected(running) as client:
        client.sendall(HEAD % len(BODY) + BODY)
        client.shutdown(socket.SHUT_WR)
        assert answer(client)[0] == 200
        assert is_disconnected(client), "the server ends its side, too"
    assert running.log.topic("t").reader().end == 1


def test_missing_body_times_out(limited: Callable[[int, float], Running]) -> None:
    running = limited(1 << 20, 0.3)
    with connected(running) as slow:
        slow.sendall(HEAD % len(BODY) + BODY[:100])
        assert answer(slow) == (408, True)
    assert running.limits.refused == {"slow": 1}


def test_missing_head_times_out(limited: Callable[[int, float], Running]) -> None:
    running = limited(1 << 20, 0.3)
    with connected(running) as slow, connected(running) as silent:
        slow.sendall(HEAD[:20])
        assert (answer(slow), answer(silent)) == ((0, True), (0, True))
    assert running.limits.refused == {"slow": 2}


@pytest.mark.survives("requests", "slow peer")
def test_slow_body_times_out(limited: Callable[[int, float], Running], caplog: pytest.LogCaptureFixture) -> None:
    running = limited(1 << 20, 0.5)
    is_over = threading.Event()
    with connected(running) as slow:
        slow.sendall(HEAD % len(BODY))

        def dribble() -> None:
            for byte in BODY:
                if is_over.wait(0.05):
                    return
                try:
                    slow.send(bytes([byte]))
                except OSError:
                    return

        dribbling = threading.Thread(target=dribble)
        dribbling.start()
        status, is_closed = answer(slow)  # who continues sending may lose the answer
        is_over.set()
        dribbling.join()
    assert (status in (408, 0), is_closed) == (True, True)
    assert "its body arrives too slowly" in caplog.text


def test_rest_of_an_answered_body_is_not_awaited(limited: Callable[[int, float], Running]) -> None:
    running = limited(1 << 20, 0.3)
    with connected(running) as slow:
        slow.sendall((HEAD % len(BODY)).replace(b"/topic/t/logs", b"/nowhere") + BODY[:10])
        assert answer(slow)[0] == 404
        for _ in range(1000):
            try:
                slow.send(b"x")
            except OSError:
                break
            threading.Event().wait(0.05)
        else:
            pytest.fail("the connection is still there")


@pytest.mark.survives("requests", "flood")
def test_full_budget_ends_the_largest_incomplete_body(limited: Callable[[int, float], Running]) -> None:
    running = limited(10_000, 60)
    with connected(running) as large, connected(running) as small, connected(running) as newcomer:
        large.sendall(HEAD % 100_000 + b"x" * 6000)
        small.sendall(HEAD % len(BODY) + BODY[:1000])
        held(running, 7000)
        newcomer.sendall(HEAD % len(BODY) + BODY)
        assert answer(newcomer) == (200, False)
        assert answer(large) == (503, True)
        assert running.limits.refused == {"body": 1}
        small.sendall(BODY[1000:])
        assert answer(small) == (200, False)
        held(running, 0)


def test_timely_bodies_share_one_connection(limited: Callable[[int, float], Running]) -> None:
    running = limited(1 << 20, 2.0)
    with connected(running) as sock:
        for _ in range(15):
            sock.sendall(HEAD % len(BODY) + BODY[:2000])
            threading.Event().wait(0.15)
            sock.sendall(BODY[2000:])
            assert answer(sock) == (200, False)


@pytest.mark.survives("requests", "flood")
def test_connection_limit_closes_the_longest_silent_one(
    limited: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    running = limited(1 << 20, 60, 3)
    with connected(running) as first, connected(running) as second, connected(running) as busy:
        for sock in (second, first):
            sock.sendall(HEAD % len(BODY) + BODY)
            assert answer(sock) == (200, False)
        busy.sendall(HEAD % len(BODY) + BODY[:100])
        held(running, 100)
        with connected(running) as newcomer:
            newcomer.sendall(HEAD % len(BODY) + BODY)
            assert answer(newcomer) == (200, False)
            assert is_disconnected(second)
            for sock, rest in ((first, HEAD % len(BODY) + BODY), (busy, BODY[100:])):
                sock.sendall(rest)
                assert answer(sock) == (200, False)
    assert running.limits.refused == {"connection": 1}
    assert "more than 3 are open (log.max_connections)" in caplog.text


def test_connection_limit_refuses_newcomer_if_all_are_busy(limited: Callable[..., Running]) -> None:
    running = limited(1 << 20, 60, 1)
    with connected(running) as busy:
        busy.sendall(HEAD % len(BODY) + BODY[:100])
        held(running, 100)
        with connected(running) as newcomer:
            with contextlib.suppress(OSError):
                newcomer.sendall(HEAD % len(BODY) + BODY)
            assert answer(newcomer) == (0, True)
        busy.sendall(BODY[100:])
        assert answer(busy) == (200, False)


def test_body_in_many_chunks_is_parsed_before_more_of_it_is_read(
    limited: Callable[[int, float], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, data_received = [0], LimitedProtocol.data_received

    def measure(self: LimitedProtocol, data: bytes) -> None:
        waiting.append(len(self._unparsed))
        data_received(self, data)

    monkeypatch.setattr(LimitedProtocol, "data_received", measure)
    running = limited(1 << 30, 60)
    chunk = b"%x\r\n%b\r\n" % (MIN_AVERAGE_CHUNK_BYTES, b" " * MIN_AVERAGE_CHUNK_BYTES)
    with connected(running) as sock:
        sock.sendall(HEAD.replace(b"content-length: %d", b"transfer-encoding: chunked"))
        sock.sendall(chunk * (4 << 20 >> 5) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
        assert answer(sock) == (200, False)
    # Only a part of a chunk waits for its end.
    assert max(waiting) <= len(chunk)


def test_refusals_are_a_metric() -> None:
    limits = HttpLimits()
    limits.refused["body"] += 2
    assert [value for _, value in refused_family(limits).samples] == [0, 2, 0, 0]


def held(running: Running, size: int) -> None:
    """Wait until the server holds this many bytes of bodies."""
    app: Any = None
    for _ in range(1000):
        app = app or running.app.middleware_stack
        while app and not isinstance(app, LimitedBodies):
            app = getattr(app, "_app", None) or app.app
        if app and app.in_flight.size == size:
            return
        threading.Event().wait(0.01)
    raise AssertionError(app.in_flight.size)
