"""Bytes of odd requests on real connections: which are answered, which are refused, and what the application gets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import socket
import struct
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from penstock.process.servers.http_connection import EVENTS_PER_TURN, MAX_HEAD_BYTES, LimitedProtocol, limited_protocol
from penstock.process.servers.http_limits import HttpLimits, LimitedBodies
from penstock.testing.pipe import wait_until

POST = b"POST /a HTTP/1.1\r\nHost: a\r\n"
NEXT = b"POST /next HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nN"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
A, N = ("POST", "/a", b"abc"), ("POST", "/next", b"N")


def post(*lines: bytes, body: bytes = b"abc") -> bytes:
    return POST + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def get(target: bytes, version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET " + target + b" " + version + b"\r\nHost: a\r\n\r\n"


ACCEPTED = {
    "length": (post(b"Content-Length: 3") + NEXT, [A, N]),
    "space around the length": (post(b"Content-Length: \t3 \t") + NEXT, [A, N]),
    "chunks": (CHUNKED + CHUNKS + NEXT, [A, N]),
    "space behind the coding": (post(b"Transfer-Encoding: Chunked ", body=CHUNKS) + NEXT, [A, N]),
    "tabs around the coding": (post(b"Transfer-Encoding:\tChunked \t", body=CHUNKS) + NEXT, [A, N]),
    "chunk extension": (CHUNKED + b'3;a=b;c="d"\r\nabc\r\n0;x\r\n\r\n' + NEXT, [A, N]),
    "data that looks like the end of chunks": (
        CHUNKED + b"b\r\n\r\n0\r\n\r\nabcd\r\n6\r\n\r\n\r\n\r\n\r\n0\r\n\r\n" + NEXT,
        [("POST", "/a", b"\r\n0\r\n\r\nabcd\r\n\r\n\r\n"), N],
    ),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nExpect: 100-continue\r\nHost: b\r\n\r\n" + NEXT, [A, N]),
    "trailers about the connection": (
        (CHUNKED + b"3\r\nabc\r\n0\r\nConnection: close\r\nProxy-Connection: close\r\nUpgrade: x\r\n\r\n" + NEXT) * 2,
        [A, N, A, N],
    ),
    "no length": (POST + b"\r\n" + NEXT, [("POST", "/a", b""), N]),
    "GET with a body": (post(b"Content-Length: 3").replace(b"POST", b"GET") + NEXT, [("GET", "/a", b"abc"), N]),
    "empty lines": (b"\r\n\n\r\n" + NEXT + b"\r\n" + NEXT, [N, N]),
    "upgrade of a request with a body, as by Java": (
        post(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA", b"Content-Length: 3")
        + NEXT,
        [A, N],
    ),
    "upgrade of a request in chunks": (
        post(b"connection: upgrade", b"UPGRADE: x", b"Transfer-Encoding: chunked", body=CHUNKS) + NEXT,
        [A, N],
    ),
    "upgrade to a websocket": (
        post(b"Upgrade: websocket", b"Connection: Upgrade", b"Content-Length: 3") + NEXT,
        [A, N],
    ),
    "address": (get(b"HTTPS://a:1/b?c"), [("GET", "/b", b"")]),
    "address without a path": (get(b"http://a?c"), [("GET", "/", b"")]),
    "two slashes": (get(b"//a//b"), [("GET", "//a//b", b"")]),
    "odd characters of a path": (get(b'/a{}|^`"<>[]\\'), [("GET", '/a{}|^`"<>[]\\', b"")]),
    "OPTIONS *": (get(b"*").replace(b"GET", b"OPTIONS"), [("OPTIONS", "*", b"")]),
    "many at once": (NEXT * 1000, [N] * 1000),
}
LAST = {
    "HTTP/1.0 without a host": (b"GET /a HTTP/1.0\r\n\r\n" + NEXT, [("GET", "/a", b"")]),
    "close": (post(b"Connection: keep-alive, Close", b"Content-Length: 3") + NEXT, [A]),
    "close with tabs": (post(b"Connection:\tclose\t", b"Content-Length: 3") + NEXT, [A]),
}
"""Requests behind which the connection ends."""
REFUSED_HEADS = {
    "no host": b"GET /a HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "both lengths": post(b"Content-Length: 3", b"Transfer-Encoding: chunked", body=CHUNKS),
    "both lengths, the coding first": post(b"Transfer-Encoding: chunked", b"Content-Length: 3", body=CHUNKS),
    "length twice": post(b"Content-Length: 3", b"Content-Length: 3"),
    "two lengths": post(b"Content-Length: 3", b"Content-Length: 4"),
    "list of lengths": post(b"Content-Length: 3, 3"),
    "length with a sign": post(b"Content-Length: +3"),
    "hexadecimal length": post(b"Content-Length: 0x3"),
    "no digits": post(b"Content-Length: "),
    "length of 80 bits": post(b"Content-Length: 999999999999999999999999"),
    "space before the colon": post(b"Content-Length : 3"),
    "coding twice": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=CHUNKS),
    "other coding": post(b"Transfer-Encoding: gzip, chunked", body=CHUNKS),
    "other coding last": post(b"Transfer-Encoding: chunked, gzip", body=CHUNKS),
    "similar coding": post(b"Transfer-Encoding: xchunked", body=CHUNKS),
    "identity": post(b"Transfer-Encoding: identity", b"Content-Length: 3"),
    "empty coding": post(b"Transfer-Encoding:", body=b""),
    "coding of HTTP/1.0": post(b"Transfer-Encoding: chunked", body=CHUNKS).replace(b"1.1", b"1.0"),
    "folded line": post(b"Transfer-Encoding:", b" chunked", body=CHUNKS),
    "LF alone": post(b"Content-Length: 3").replace(b"\r\n", b"\n"),
    "LF alone in one line": post(b"X: a\nContent-Length: 3"),
    "LF alone in the last line": POST + b"Content-Length: 3\r\n\nabc",
    "CR alone": post(b"X: a\rContent-Length: 3"),
    "NUL": post(b"X: \0", b"Content-Length: 3"),
    "control character": post(b"X: \x01", b"Content-Length: 3"),
    "name with other characters": post(b"X(a): b", b"Content-Length: 3"),
    "no name": post(b": b", b"Content-Length: 3"),
    "no colon": post(b"nonsense", b"Content-Length: 3"),
    "line of tabs": POST + b"Content-Length: 3\r\n\t\r\nabc: d\r\n\r\nabc",
    "method that is no token": get(b"/").replace(b"GET", b"G(T"),
    "no version": b"GET /a\r\n\r\n",
    **{f"version {name}": get(b"/", name.encode()) for name in ("HTTP/1", "RTSP/1.0", "http/1.1")},
    "two spaces": get(b" /"),
    "two spaces before the version": get(b"/ "),
    "tabs": get(b"/").replace(b" ", b"\t"),
    "space in the path": get(b"/a b"),
    "UTF-8 in the path": get("/é".encode()),
    "fragment": get(b"/a#b"),
    "path without a slash": get(b"a"),
    "address of FTP": get(b"ftp://a/b"),
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "PROXY": b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n" + NEXT,
}
REFUSED_FEATURES = {
    "unknown method": (501, get(b"/").replace(b"GET", b"FOO")),
    "method in small letters": (501, get(b"/").replace(b"GET", b"get")),
    "CONNECT": (501, b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "RTSP": (501, get(b"/").replace(b"GET", b"DESCRIBE")),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/0.9": (505, get(b"/", b"HTTP/0.9")),
    "HTTP/1.2": (505, get(b"/", b"HTTP/1.2")),
    "large head": (431, get(b"/").replace(b"Host", b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\nHost")),
    "large target": (414, b"GET /" + b"a" * MAX_HEAD_BYTES),
}
"""Requests that the server does not serve, with the status that says why."""
REFUSED_BODIES = {
    "space behind the size": b"3 \r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "sign": b"-3\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "size of 68 bits": b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "more data than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "LF behind the size": b"3\nabc\r\n0\r\n\r\n",
    "LF behind the data": b"3\r\nabc\n0\r\n\r\n",
    "LF in an extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "CR in an extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "LF at the end": b"3\r\nabc\r\n0\n\n",
    "length in a trailer": b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n",
    "no colon in a trailer": b"3\r\nabc\r\n0\r\nbad\r\n\r\n",
    "large trailer": b"3\r\nabc\r\n0\r\nX: " + b"a" * 2 * MAX_HEAD_BYTES,
    "large extension": b"3;" + b"a" * 2 * MAX_HEAD_BYTES,
}


class Site(NamedTuple):
    """A server whose application records requests.

    ``/stream`` is answered without a length, the answer of ``/early`` begins before its body is read, and that of
    ``/refused`` is complete before.
    """

    port: int
    requests: list[tuple[str, str, bytes]]
    headers: list[tuple[bytes, bytes]]
    connections: set[LimitedProtocol]

    @contextlib.contextmanager
    def connect(self) -> Iterator[tuple[socket.socket, LimitedProtocol]]:
        """Open a connection; yield it with the server's side of it."""
        wait_until(lambda: not self.connections, 10)
        with socket.create_connection(("127.0.0.1", self.port), 30) as sock:
            wait_until(lambda: self.connections, 10)
            yield sock, next(iter(self.connections))

    def send(self, *parts: bytes, ends: bool = True, pause_s: float = 0) -> bytes:
        """Send ``parts`` one after the other, end this side, and return all that comes until the other side ends."""
        self.requests.clear()
        with socket.create_connection(("127.0.0.1", self.port), 30) as sock, contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts:
                sock.sendall(part)
                time.sleep(pause_s)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: sock.recv(1 << 16), b""))
        return b""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    requests: list[tuple[str, str, bytes]] = []
    headers: list[tuple[bytes, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", scope["path"] != "/refused"
        if scope["path"] == "/early":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        requests.append((scope["method"], scope["path"], body))
        headers[:] = scope["headers"]
        length = [] if scope["path"] == "/stream" else [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        for part in (b"ab", b"cd"):
            await send({"type": "http.response.body", "body": part, "more_body": part == b"ab"})

    limits = HttpLimits()
    config = uvicorn.Config(
        LimitedBodies(app, limits),
        http=limited_protocol(limits),
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
    )
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        yield Site(listener.getsockname()[1], requests, headers, server.server_state.connections)  # type: ignore[arg-type]
        server.should_exit = True
        thread.join()


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", answers)]


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("size", [1 << 20, 1, 7], ids=["at once", "byte by byte", "7 bytes"])
def test_requests_are_accepted_in_any_parts(site: Site, name: str, size: int) -> None:
    octets, requests = ACCEPTED[name]
    if len(octets) > 1000 and size == 1:
        octets, requests = octets[: len(NEXT)], requests[:1]
    answers = site.send(*(octets[start : start + size] for start in range(0, len(octets), size)))
    assert (statuses(answers), site.requests) == ([200] * len(requests), requests)


@pytest.mark.parametrize("name", LAST)
def test_request_behind_the_last_one_of_a_connection_is_ignored(site: Site, name: str) -> None:
    octets, requests = LAST[name]
    assert (statuses(site.send(octets)), site.requests) == ([200], requests)


@pytest.mark.parametrize("name", REFUSED_HEADS)
def test_request_that_is_no_http_is_refused_with_all_behind_it(site: Site, name: str) -> None:
    assert statuses(site.send(NEXT, REFUSED_HEADS[name] + NEXT)) == [200, 400]
    assert site.requests == [N]


@pytest.mark.parametrize("name", REFUSED_FEATURES)
def test_request_that_is_not_served_is_refused_with_all_behind_it(site: Site, name: str) -> None:
    status, octets = REFUSED_FEATURES[name]
    assert statuses(site.send(NEXT, octets + NEXT)) == [200, status]
    assert site.requests == [N]


@pytest.mark.parametrize("name", REFUSED_BODIES)
def test_body_that_is_no_http_is_refused_with_all_behind_it(site: Site, name: str) -> None:
    assert statuses(site.send(CHUNKED + REFUSED_BODIES[name] + NEXT)) == [400]
    assert site.requests == []


@pytest.mark.parametrize("octets", [b"\x16\x03\x01", b"GET / HTTP/1.0\n\n", b" ", b"\r\nGET /\n"])
def test_head_that_is_no_http_is_refused_before_its_end(site: Site, octets: bytes) -> None:
    assert statuses(site.send(octets, ends=False)) == [400]


@pytest.mark.parametrize("name", ["large trailer", "large extension"])
def test_chunks_without_data_end_the_connection(site: Site, name: str) -> None:
    assert statuses(site.send(CHUNKED + REFUSED_BODIES[name], ends=False)) == [400]
    assert site.requests == []


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_end_of_chunks_in_two_parts_ends_the_request(site: Site, cut: int) -> None:
    octets = CHUNKED + CHUNKS
    answers = site.send(octets[:-cut], octets[-cut:] + NEXT, pause_s=0.05)
    assert (statuses(answers), site.requests) == ([200, 200], [A, N])


def test_answer_that_has_begun_is_cut_off_if_the_body_is_no_http(site: Site) -> None:
    answers = site.send(CHUNKED.replace(b"/a", b"/early"), b"no", pause_s=0.05)
    assert (statuses(answers), b"begun" in answers, b"Invalid" in answers) == ([200], True, False)


def test_head_below_the_limit_is_accepted(site: Site) -> None:
    assert statuses(site.send(post(b"X: " + b"a" * (MAX_HEAD_BYTES - 1000), b"Content-Length: 3"))) == [200]


def test_values_have_no_space_around_them_and_trailers_are_no_headers(site: Site) -> None:
    site.send(post(b"X: \t a\tb \t", b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nY: z\r\n\r\n"))
    assert site.headers == [(b"host", b"a"), (b"x", b"a\tb"), (b"transfer-encoding", b"chunked")]
    site.send(CHUNKED + b"3\r\nabc\r\n0\r\nY: z\r\n\r\n" + NEXT)
    assert site.headers == [(b"host", b"a"), (b"content-length", b"1")]


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_answer_without_a_length_has_no_chunks_in_http_1_0(site: Site, method: bytes) -> None:
    head, _, body = site.send(method + b" /stream HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == (b"abcd" if method == b"GET" else b"")


def test_expectation_of_http_1_0_is_ignored(site: Site) -> None:
    expecting = post(b"Expect: 100-continue", b"Content-Length: 3")
    assert statuses(site.send(expecting)) == [100, 200]
    assert statuses(site.send(expecting.replace(b"1.1", b"1.0"))) == [200]


def test_requests_behind_one_that_is_being_answered_wait_as_bytes(site: Site) -> None:
    """A request that waits as an object takes 5 KB: a connection that sends only heads would take much memory."""
    most, answers = 0, b""
    last = get(b"/").replace(b"Host", b"Connection: close\r\nHost")
    with socket.create_connection(("127.0.0.1", site.port), 30) as sock:
        sending = threading.Thread(target=sock.sendall, args=[get(b"/") * 50_000 + last])
        sending.start()
        while part := sock.recv(1 << 20):
            answers += part
            for connection in list(site.connections):
                most = max(most, len(connection._unparsed))
                assert not connection.pipeline
        sending.join()
    assert answers.count(b"HTTP/1.1 200") == 50_001
    assert most <= (256 << 10) + MAX_HEAD_BYTES


def test_closed_connection_is_freed_without_the_garbage_collector(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port), 30) as sock:
        sock.sendall(NEXT)
        answer = b""
        while not answer.endswith(b"abcd"):
            answer += sock.recv(1000)
        (connection,) = map(weakref.ref, site.connections)
        gc.disable()
    try:
        wait_until(lambda: connection() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n", b"0\r\n\r\nGET", b"0\r\n\r\n\r\n"])
def test_unread_chunks_of_several_turns_leave_a_timer(site: Site, end: bytes) -> None:
    """The rest of an answered request is parsed by later turns, which stop the timer between two requests."""
    with site.connect() as (sock, connection):
        sock.sendall(CHUNKED.replace(b"/a", b"/refused") + b"1\r\na\r\n" * 3 * EVENTS_PER_TURN + end)
        # The end of the last chunk may be that of the body, and waits.
        wait_until(lambda: connection._chunks >= 3 * EVENTS_PER_TURN - 1, 10)
        wait_until(lambda: connection._next_turn is None, 10)
        assert connection._timer is not None


def test_reset_connection_has_no_timer(site: Site) -> None:
    with site.connect() as (sock, connection):
        sock.sendall(NEXT)
        wait_until(lambda: connection.timeout_keep_alive_task, 10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not site.connections and connection.parser is None)
    assert (connection.timeout_keep_alive_task, connection._timer) == (None, None)


@pytest.mark.parametrize("refused", [b"FOO / HTTP/1.1\r\n\r\n", CHUNKED + b"no"], ids=["head", "body"])
def test_lingering_connection_is_closed_first_if_there_are_too_many(
    site: Site, refused: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.connect() as (kept, connection):
        limits = replace(connection.limits, connections=2, refused=Counter())
        monkeypatch.setattr(type(connection), "limits", limits)
        kept.sendall(NEXT)
        wait_until(lambda: connection.timeout_keep_alive_task, 10)
        with socket.create_connection(("127.0.0.1", site.port), 30) as lingering:
            lingering.sendall(refused)
            assert len(statuses(b"".join(iter(lambda: lingering.recv(1000), b"")))) == 1
            assert len(site.connections) == 2
            with socket.create_connection(("127.0.0.1", site.port), 30) as new:
                new.sendall(NEXT)
                assert statuses(new.recv(1000)) == [200]
                assert connection in site.connections
    assert not limits.refused


def test_lingering_connection_holds_no_body(site: Site) -> None:
    with site.connect() as (sock, connection):
        head = post(b"Content-Length: 9000000", body=b"").replace(b"/a HTTP/1.1", b"/refused HTTP/1.0")
        sock.sendall(head + b"a" * 60_000)
        assert statuses(b"".join(iter(lambda: sock.recv(1000), b""))) == [200]
        assert connection._lingering.is_lingering
        assert not connection.cycle.body
