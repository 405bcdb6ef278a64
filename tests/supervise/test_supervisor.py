"""Sockets that a supervisor inherits, and modules that it must not load."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.ingest.sockets import CannotListen, open_socket
from penstock.supervise.succession import Inheritance
from penstock.supervise.supervisor import Supervisor

UDP: dict[str, Any] = {"name": "a", "protocol": "udp", "port": 0, "so_rcvbuf": "64KiB"}
TCP: dict[str, Any] = {"name": "a", "protocol": "tcp", "port": 0}
LOCAL: dict[str, Any] = {"name": "a", "protocol": "unix_datagram", "path": "log"}


def test_supervisor_imports_neither_arrow_nor_numpy() -> None:
    large = "[name for name in ('numpy', 'pyarrow', 'grpc', 'starlette') if name in sys.modules]"
    command = [sys.executable, "-c", f"import sys, penstock.cli.run.serve; print({large})"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.fixture(autouse=True)
def _unchanged_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a supervisor changes in its own process."""
    for name in ("OPENBLAS_NUM_THREADS", "ARROW_DEFAULT_MEMORY_POOL"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def settings(folder: Path, listener: dict[str, Any]) -> Settings:
    if "path" in listener:
        listener = listener | {"path": str(folder / listener["path"])}
    return Settings.model_validate({"data_dir": str(folder / "data"), "listener": [listener]})


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return the socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


class Predecessor:
    """A supervisor with one listener that is gone: its socket is open, also in its receiver."""

    def __init__(self, configured: Settings) -> None:
        listener = configured.listener[0]
        self.sock = open_socket(listener)
        self.port = 0 if listener.is_local else self.sock.getsockname()[1]
        self.receiver = subprocess.Popen(["sleep", "600"], pass_fds=[self.sock.fileno()])
        configured.data_dir.mkdir()
        self.inheritance = Inheritance(
            pids={f"receiver {listener.name}": self.receiver.pid},
            began=0,
            may_hang_up=False,
            lock=os.open(configured.data_dir / "lock", os.O_RDWR | os.O_CREAT),
            sockets={listener.name: os.dup(self.sock.fileno())},
            buffer=configured.buffer.model_dump(mode="json"),
        )


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        (LOCAL, {"name": "b"}),
        (LOCAL, {"protocol": "unix_stream"}),
        (LOCAL | {"protocol": "unix_stream"}, {"protocol": "unix_datagram", "name": "b"}),
        (UDP, {"name": "b"}),
        (TCP, {"name": "b"}),
    ],
)
def test_socket_that_no_listener_claims_is_closed_before_another_one_has_its_address(
    before: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    predecessor = Predecessor(settings(tmp_path, before))
    predecessor.sock.close()
    changed = settings(tmp_path, before | changes | ({"port": predecessor.port} if predecessor.port else {}))
    supervisor = Supervisor(changed, predecessor.inheritance)
    try:
        assert predecessor.receiver.wait(60) is not None
        name = changed.listener[0].name
        assert supervisor.children[0].name == f"receiver {name}"
        with pytest.raises(CannotListen, match=r"[Aa]ddress already in use|listens on this socket"):
            open_socket(changed.listener[0])
    finally:
        supervisor.stop()


def test_socket_that_its_listener_claims_stays_with_its_receiver(tmp_path: Path) -> None:
    configured = settings(tmp_path, LOCAL)
    predecessor = Predecessor(configured)
    supervisor = Supervisor(configured, predecessor.inheritance)
    try:
        assert predecessor.receiver.poll() is None
        with open_client(configured) as client:
            client.send(b"text")
        assert predecessor.sock.recv(100) == b"text"
    finally:
        predecessor.receiver.kill()
        predecessor.receiver.wait()
        predecessor.sock.close()
        supervisor.stop()


@pytest.mark.parametrize("before", [LOCAL, UDP])
def test_address_is_free_once_systemd_has_closed_the_stored_socket(
    before: dict[str, Any], tmp_path: Path, manager: socket.socket
) -> None:
    predecessor = Predecessor(settings(tmp_path, before))
    received: list[bytes] = []

    def release() -> None:
        received.append(manager.recv(100))
        predecessor.sock.close()

    systemd = threading.Thread(target=release)
    systemd.start()
    changed = settings(tmp_path, before | {"name": "b"} | ({"port": predecessor.port} if predecessor.port else {}))
    supervisor = Supervisor(changed, predecessor.inheritance)
    try:
        systemd.join()
        assert received == [b"FDSTOREREMOVE=1\nFDNAME=a"]
        assert manager.recv(100) == b"FDSTORE=1\nFDPOLL=0\nFDNAME=b"
        open_client(changed).close()
    finally:
        supervisor.stop()


def open_client(configured: Settings) -> socket.socket:
    """Return a socket that is connected to the listener."""
    listener = configured.listener[0]
    kind = socket.SOCK_DGRAM if listener.takes_datagrams else socket.SOCK_STREAM
    client = socket.socket(socket.AF_UNIX if listener.is_local else socket.AF_INET, kind)
    client.settimeout(60)
    client.connect(listener.path if listener.is_local else (listener.host, listener.port))
    return client
