"""Senders over UDP and TCP, to real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from penstock.client import LedgerReport, ReportFailed, TcpSender, UdpSender
from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.codec import PlogDecoder
from penstock.wire.plog.header import HEADER_SIZE


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(5)
        yield sock


def received(sock: socket.socket, count: int) -> list[bytes]:
    return [sock.recv(65_535) for _ in range(count)]


def sender_to(sock: socket.socket, **options: int) -> UdpSender:
    return UdpSender(*sock.getsockname(), **options)


def test_small_event_is_sent_without_a_header(receiver: socket.socket) -> None:
    with sender_to(receiver, fragment_size=100) as sender:
        sender.send_many([b"hello", b"x" * 100, b"\xff"])
    assert received(receiver, 3) == [b"hello", b"x" * 100, b"\xff"]
    assert sender.counts == {"messages": 3, "datagrams": 3, "bytes": 106}


@pytest.mark.parametrize(
    ("payload", "tags", "datagrams"),
    [(b"", (), 1), (b"\x1fabc", (), 1), (b"\0\0PING", (), 1), (b"a", ("pk:k",), 1), (b"x" * 101, (), 2)],
)
def test_other_messages_are_sent_as_fragments_and_reassembled(
    receiver: socket.socket, payload: bytes, tags: tuple[str, ...], datagrams: int
) -> None:
    with sender_to(receiver, fragment_size=100) as sender:
        sender.send(payload, tags)
    assert sender.counts["datagrams"] == datagrams
    decoded = PlogDecoder().decode(Datagrams.from_bytes(received(receiver, datagrams)), 0.0)
    assert decoded.body["payload"].to_pylist() == [payload]
    assert decoded.body["key"].to_pylist() == [b"k" if tags else None]


def test_id_increases_with_each_fragmented_message(receiver: socket.socket) -> None:
    with sender_to(receiver) as sender:
        sender.send_many([b"\1first", b"unboxed", b"\1second", b"\1third"])
    datagrams = [datagram for datagram in received(receiver, 4) if datagram[0] == 0]
    assert [int.from_bytes(datagram[8:12], "big") for datagram in datagrams] == [0, 1, 2]
    assert all(len(datagram) > HEADER_SIZE for datagram in datagrams)


def test_missing_receiver_is_no_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    with UdpSender(*address) as sender:
        for _ in range(5):
            sender.send(b"into the dark")
    assert sender.counts["datagrams"] == 5


def test_lines_are_sent_and_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with TcpSender(*server.getsockname()) as sender:
            sender.send(b"one")
            sender.send_many([b"", b"three"])
            sender.send_many([])
            connection, _ = server.accept()
        with connection:
            assert b"".join(iter(lambda: connection.recv(100), b"")) == b"one\n\nthree\n"
    assert sender.counts == {"messages": 3, "lines": 3, "bytes": 8}


@pytest.mark.parametrize("line", [b"two\nlines", b"return\r", b"\0reserved"])
def test_invalid_line_is_refused_before_sending(line: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, TcpSender(*server.getsockname()) as sender:
        with pytest.raises(ValueError, match="a line holds"):
            sender.send_many([b"fine", line])
        assert sender.counts == {}


def test_datagrams_are_sent_in_order_and_counted(receiver: socket.socket) -> None:
    sent = [b"%d" % number * (1 + number % 9) for number in range(300)]
    with sender_to(receiver) as sender:
        sender.send_many(sent)
    assert received(receiver, 300) == sent
    assert sender.counts["datagrams"] == 300


def test_datagrams_are_sent_without_sendmmsg(receiver: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.send_many._sendmmsg", None)
    with sender_to(receiver, fragment_size=3) as sender:
        sender.send_many([b"one", b"two!"])
    assert [len(datagram) for datagram in received(receiver, 3)] == [3, 27, 25]


def test_first_id_can_be_set(receiver: socket.socket) -> None:
    with sender_to(receiver, first_id=(1 << 32) - 1) as sender:
        sender.send_many([b"\1", b"\2"])
    assert [datagram[8:12] for datagram in received(receiver, 2)] == [b"\xff" * 4, b"\0" * 4]


class Ledger(BaseHTTPRequestHandler):
    """A ledger that accepts posts for one listener and refuses others."""

    posts: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_known = document["listener"] == "events"
        self.posts.append(document | {"token": self.headers["Authorization"]})
        self.send_response(200 if is_known else 400)
        self.end_headers()
        self.wfile.write(b"{}" if is_known else b'{"error": "there is no listener"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def ledger() -> Iterator[str]:
    Ledger.posts.clear()
    with HTTPServer(("127.0.0.1", 0), Ledger) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_sent_counts_are_posted_on_request(receiver: socket.socket, ledger: str, proxied: None) -> None:
    report = LedgerReport(ledger, "events", token="secret")
    with UdpSender(*receiver.getsockname(), report=report) as sender:
        sender.send_many([b"one", b"two"])
        sender.post()
        sender.send(b"three")
    with UdpSender(*receiver.getsockname(), report=report) as another:
        another.send(b"one")
    first, last, other_sender = Ledger.posts
    assert (first["tier"], first["listener"], first["token"]) == ("client", "events", "Bearer secret")
    assert first["counts"] == {"messages": 2, "datagrams": 2, "bytes": 6}
    assert last["counts"] == {"messages": 3, "datagrams": 3, "bytes": 11}
    assert (last["sender"], last["version"] > first["version"]) == (first["sender"], True)
    assert other_sender["sender"] != last["sender"]


def test_sender_reports_at_intervals(receiver: socket.socket, ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.sender.REPORT_EVERY", 0.0)
    with UdpSender(*receiver.getsockname(), report=LedgerReport(ledger, "events")) as sender:
        sender.send(b"one")
        assert [post["counts"]["messages"] for post in Ledger.posts] == [1]


def test_refused_report_is_an_error_with_the_reason(receiver: socket.socket, ledger: str) -> None:
    sender = UdpSender(*receiver.getsockname(), report=LedgerReport(ledger, "nowhere"))
    sender.send(b"one")
    with pytest.raises(ReportFailed, match="answers 400: there is no listener"):
        sender.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        sender.send(b"the socket is closed all the same")
    with pytest.raises(ReportFailed, match="no ledger answers"):
        LedgerReport("127.0.0.1:1", "events").post("me", 1, {})
    with UdpSender(*receiver.getsockname()) as silent, pytest.raises(ValueError, match="no report"):
        silent.post()
