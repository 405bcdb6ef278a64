"""Posts to the ledger, and to what is no ledger."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given

from penstock.process.ledger_posts import LedgerPosts, ReportFailed, refusal_in
from tests.fuzzed import DEEP, json_texts


class Servers:
    """TCP servers that read a request and answer the bytes given."""

    def __init__(self) -> None:
        self.sockets, self.requests = list[socket.socket](), list[bytes]()

    def serve(self, answer: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        self.sockets.append(listening)
        threading.Thread(target=self._answer, args=(listening, answer), daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    def _answer(self, listening: socket.socket, answer: bytes) -> None:
        try:
            while True:
                connection, _ = listening.accept()
                with connection:
                    self.requests.append(connection.recv(65536))
                    connection.sendall(answer)
        except OSError:
            return  # the test is over


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    for listening in servers.sockets:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_stored_post_is_no_error(servers: Servers) -> None:
    address = servers.serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    LedgerPosts(address, token="secret").post({"lines": 1}, 5)
    assert servers.requests[0].startswith(b"POST /ledger HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer secret\r\n" in servers.requests[0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_an_error_and_is_not_followed(servers: Servers, status: int) -> None:
    """Followed, it would be a GET that posts nothing and succeeds, with the token for another host."""
    target = servers.serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    first = servers.serve(
        f"HTTP/1.1 {status} X\r\nLocation: http://{target}/ledger\r\nContent-Length: 0\r\n\r\n".encode()
    )
    with pytest.raises(ReportFailed, match=f"answers {status}: a redirect to http://{target}/ledger"):
        LedgerPosts(first, token="secret").post({"lines": 1}, 5)
    assert len(servers.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000),
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100_000),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" + bytes(1 << 17) + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=lambda answer: repr(answer[:60]),
)
def test_answer_that_is_no_complete_response_is_a_failed_report(servers: Servers, answer: bytes) -> None:
    with pytest.raises(ReportFailed, match=r"the ledger at|no ledger answers at"):
        LedgerPosts(servers.serve(answer)).post({"lines": 1}, 5)


def test_text_of_an_error_is_short(servers: Servers) -> None:
    address = servers.serve(b"HTTP/1.1 302 X\r\nLocation: http://h/%b\r\nContent-Length: 0\r\n\r\n" % (b"x" * 60_000))
    with pytest.raises(ReportFailed) as failed:
        LedgerPosts(address).post({}, 5)
    assert len(str(failed.value)) < 1200


@pytest.mark.parametrize(
    "address", ["http://[::1", "ftp://127.0.0.1", "127.0.0.1:x", "http://a b", "127.0.0.1:1", "http://\udcff"]
)
def test_address_without_a_server_is_a_failed_report(address: str) -> None:
    with pytest.raises(ReportFailed, match="no ledger answers at"):
        LedgerPosts(address).post({}, 5)


def test_refusal_has_the_text_of_the_ledger() -> None:
    assert refusal_in(b'{"error": "no such listener", "code": 5}') == "no such listener"
    assert refusal_in(b" Bad Gateway\n") == "Bad Gateway"
    assert refusal_in(DEEP[:1000]).startswith("[[[")


@given(json_texts("error"))
def test_random_answer_gives_a_text(data: bytes) -> None:
    assert isinstance(refusal_in(data), str)
