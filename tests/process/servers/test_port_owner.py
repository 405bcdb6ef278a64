"""The process that has a port is named where this user may see it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from penstock.process.servers.port_owner import describe_bind_error, port_owner

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
    assert describe_bind_error(PermissionError(errno.EACCES, "Permission denied"), "tcp", 1) == "Permission denied"
    assert describe_bind_error(ValueError("no valid name"), "tcp", 1) == "no valid name"
