"""Sockets: opened or refused by name, and the kernel's drop counter."""

from __future__ import annotations

import socket

import pytest

from penstock.config import ListenerConfig
from penstock.ingest.sockets import (
    CannotListen,
    check_address,
    granted_buffer,
    kernel_drops,
    listen,
    open_socket,
    refuse_connections,
    serves_listener,
    socket_identity,
)


def listener(protocol: str, port: int = 0, **more: object) -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "here", "protocol": protocol, "port": port, **more})


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_an_address_in_use_is_refused_with_listener_and_address(protocol: str) -> None:
    with open_socket(listener(protocol)) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"listener 'here': cannot listen on {protocol} 127.0.0.1:{port}"):
            open_socket(listener(protocol, port))


def test_the_kernels_drops_are_counted() -> None:
    with open_socket(listener("udp", so_rcvbuf=8192)) as sock, socket.socket(type=socket.SOCK_DGRAM) as sender:
        assert kernel_drops(sock) == 0
        for _ in range(100):
            sender.sendto(b"x" * 1000, sock.getsockname())
        queued = 0
        while True:
            try:
                sock.recv(2000)
            except BlockingIOError:
                break
            queued += 1
        assert kernel_drops(sock) == 100 - queued > 0


def test_buffer_and_identity_are_reported() -> None:
    with open_socket(listener("udp", so_rcvbuf=100_000)) as first, open_socket(listener("udp")) as second:
        assert 50_000 <= granted_buffer(first) <= 200_000
        assert socket_identity(first) == socket_identity(first) != socket_identity(second)


def test_a_host_that_cannot_be_a_name_is_refused() -> None:
    broken = listener("udp").model_copy(update={"host": "127.0.0..1"})
    with pytest.raises(CannotListen, match=r"listener 'here': cannot listen on udp 127\.0\.0\.\.1"):
        open_socket(broken)
    with pytest.raises(CannotListen, match=r"log\.http"):
        check_address("log.http", "a..b:1")


def test_inherited_socket_serves_a_listener_with_its_protocol_host_and_port() -> None:
    with open_socket(listener("udp")) as udp, open_socket(listener("tcp")) as tcp, socket.socket() as unbound:
        port = udp.getsockname()[1]
        assert serves_listener(udp, listener("udp"))
        assert serves_listener(udp, listener("udp", port))
        assert serves_listener(tcp, listener("http"))
        assert not serves_listener(udp, listener("udp", port % 65_000 + 1))
        assert not serves_listener(udp, listener("udp", port, host="0.0.0.0"))
        assert not serves_listener(udp, listener("udp", port, host="no name"))
        assert not serves_listener(udp, listener("tcp", port))
        assert not serves_listener(tcp, listener("otlp_grpc"))
        assert not serves_listener(unbound, listener("tcp"))
    with open_socket(listener("otlp_grpc")) as reserved:
        assert serves_listener(reserved, listener("otlp_grpc"))
        assert not serves_listener(reserved, listener("tcp"))


def test_connections_are_refused_before_a_receiver_listens_and_once_none_can_start() -> None:
    with open_socket(listener("tcp")) as sock:
        address = sock.getsockname()
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            with pytest.raises(CannotListen):  # the address stays reserved
                open_socket(listener("tcp", address[1]))
            listen(sock, listener("tcp"))
            with socket.create_connection(address) as sender:
                refuse_connections(sock)
                with pytest.raises(ConnectionResetError):
                    sender.recv(1)
            assert sock.getsockname() == address
