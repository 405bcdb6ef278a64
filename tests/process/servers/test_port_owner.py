"""The process that has a port is named where this user may see it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from penstock.process.servers.port_owner import describe_bind_error, port_owner, resolve_address

IN_USE = OSError(errno.EADDRINUSE, "Address already in use")


@pytest.mark.parametrize(("transport", "kind"), [("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)])
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_owner_of_bound_port_is_named(transport: str, kind: int, family: int, host: str) -> None:
    with socket.socket(family, kind) as sock:
        sock.bind((host, 0))
        if transport == "tcp":
            sock.listen()
        port = sock.getsockname()[1]
        pid, name = os.getpid(), Path("/proc/self/comm").read_text().strip()
        assert port_owner(transport, port) == (pid, name)
        text = describe_bind_error(IN_USE, transport, port)
        assert text == f"Address already in use by process {pid} ({name})"
    assert port_owner(transport, port) is None


def test_other_errors_are_described_without_a_process() -> None:
    denied = describe_bind_error(PermissionError(errno.EACCES, "Permission denied"), "tcp", 1)
    assert denied == "Permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE"
    assert describe_bind_error(ValueError("no valid name"), "tcp", 1) == "no valid name"


def test_address_that_no_interface_has_is_explained() -> None:
    with socket.socket() as sock, pytest.raises(OSError, match="Cannot assign") as caught:
        sock.bind(("192.0.2.1", 0))
    assert describe_bind_error(caught.value, "tcp", 1).endswith(
        ": no network interface of this machine has this address"
    )


def test_name_means_its_ipv4_address_if_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_address("::1", 80) == (socket.AF_INET6, ("::1", 80, 0, 0))
    resolve = socket.getaddrinfo
    both = [*resolve("::1", 80, type=socket.SOCK_STREAM), *resolve("127.0.0.1", 80, type=socket.SOCK_STREAM)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    assert resolve_address("localhost", 80) == (socket.AF_INET, ("127.0.0.1", 80))
