"""Senders over UDP and TCP, to real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from penstock.client.sender import TcpSender, UdpSender
from penstock.wire.datagrams import Datagrams
from penstock.wire.header import HEADER_SIZE
from penstock.wire.plog import PlogDecoder


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


def test_what_fits_and_says_everything_goes_unboxed(receiver: socket.socket) -> None:
    with sender_to(receiver, fragment_size=100) as sender:
        sender.send_many([b"hello", b"x" * 100, b"\xff"])
    assert received(receiver, 3) == [b"hello", b"x" * 100, b"\xff"]
    assert sender.counts == {"messages": 3, "datagrams": 3, "bytes": 106}


@pytest.mark.parametrize(
    ("payload", "tags", "datagrams"),
    [(b"", (), 1), (b"\x1fabc", (), 1), (b"\0\0PING", (), 1), (b"a", ("pk:k",), 1), (b"x" * 101, (), 2)],
)
def test_everything_else_goes_as_fragments_and_comes_out_as_it_was(
    receiver: socket.socket, payload: bytes, tags: tuple[str, ...], datagrams: int
) -> None:
    with sender_to(receiver, fragment_size=100) as sender:
        sender.send(payload, tags)
    assert sender.counts["datagrams"] == datagrams
    decoded = PlogDecoder().decode(Datagrams.of(received(receiver, datagrams)), 0.0)
    assert decoded.body["payload"].to_pylist() == [payload]
    assert decoded.body["key"].to_pylist() == [b"k" if tags else None]


def test_ids_increase_by_one_with_each_message_in_fragments(receiver: socket.socket) -> None:
    with sender_to(receiver) as sender:
        sender.send_many([b"\1first", b"unboxed", b"\1second", b"\1third"])
    datagrams = [datagram for datagram in received(receiver, 4) if datagram[0] == 0]
    assert [int.from_bytes(datagram[8:12], "big") for datagram in datagrams] == [0, 1, 2]
    assert all(len(datagram) > HEADER_SIZE for datagram in datagrams)


def test_nobody_listening_is_no_error() -> None:
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
def test_what_a_line_cannot_carry_is_refused_before_anything_is_sent(line: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, TcpSender(*server.getsockname()) as sender:
        with pytest.raises(ValueError, match="a line holds"):
            sender.send_many([b"fine", line])
        assert sender.counts == {}
