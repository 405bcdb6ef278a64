"""Notifications to systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.supervise.sd_notify import (
    READY,
    WATCHDOG,
    Service,
    Watchdog,
    drop_stored_sockets,
    keeps_sockets,
    listens,
    notify,
    store_sockets,
    take_stored_sockets,
)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def test_notify_reaches_the_service_manager(manager: socket.socket) -> None:
    assert notify(READY)
    assert manager.recv(100) == b"READY=1"


def test_notify_supports_abstract_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"penstock-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        assert notify(READY)
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/nowhere/at/all"])
def test_notify_without_a_service_manager_does_nothing(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify(READY)


def test_watchdog_signals_twice_per_interval(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setattr("penstock.supervise.sd_notify.time.monotonic", lambda: now[0])
    watchdog = Watchdog()
    manager.setblocking(False)
    fed = 0
    for _ in range(100):
        watchdog.tick()
        now[0] += 0.1
        try:
            fed += manager.recv(100) == WATCHDOG.encode()
        except BlockingIOError:
            continue
    assert fed == 10


def test_watchdog_of_another_process_is_not_signalled(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    Watchdog().tick()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_service_reports_ready_once_it_answers_and_stopping(manager: socket.socket) -> None:
    answers = iter([False, True])
    service = Service(lambda: next(answers))
    service.tick()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)
    service.tick()
    service.tick()
    service.stopping()
    assert [manager.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


def test_listens_detects_a_listening_socket() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        assert not listens(sock.getsockname())
        sock.listen()
        assert listens(sock.getsockname())


def test_reload_ends_with_the_next_tick_not_with_alive(manager: socket.socket) -> None:
    service = Service(lambda: True)
    service.tick()
    service.reloading()
    service.alive()
    service.tick()
    notifications = [manager.recv(200) for _ in range(3)]
    assert (notifications[0], notifications[2]) == (b"READY=1", b"READY=1")
    assert notifications[1].startswith(b"RELOADING=1\nMONOTONIC_USEC=")


def test_sockets_are_stored_by_listener_and_dropped(manager: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        store_sockets({"events-udp": sock})
        text, (descriptor,), _, _ = socket.recv_fds(manager, 100, 2)
        with socket.socket(fileno=descriptor) as stored:
            assert (text, stored.getsockname()) == (b"FDSTORE=1\nFDPOLL=0\nFDNAME=events-udp", sock.getsockname())
    drop_stored_sockets("events-udp")
    assert manager.recv(100) == b"FDSTOREREMOVE=1\nFDNAME=events-udp"


@pytest.mark.parametrize("pid", ["1", "", "x"])
def test_stored_sockets_of_another_process_are_not_taken(pid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"LISTEN_PID": pid, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "a"}.items():
        monkeypatch.setenv(name, text)
    assert take_stored_sockets() == []
    assert "LISTEN_FDS" not in os.environ


def test_sockets_are_kept_only_under_a_service_manager(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeps_sockets()
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not keeps_sockets()
