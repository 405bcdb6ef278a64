"""``penstock serve`` as a service of systemd (Type=notify)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe, wait_until


def test_serve_notifies_systemd_when_ready_alive_and_stopping(
    pipes: Callable[..., Pipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "2000000")
        pipe = pipes()
        assert pipe.answers()
        notifications = [manager.recv(100)]
        while notifications.count(b"READY=1") == 0 or notifications.count(b"WATCHDOG=1") < 3:
            notifications.append(manager.recv(100))
        stored = {f"FDSTORE=1\nFDPOLL=0\nFDNAME={name}".encode() for name in pipe.endpoints()["listeners"]}
        assert set(notifications) == {b"READY=1", b"WATCHDOG=1", *stored}
        pipe.stop()
        while (last := manager.recv(100)) == b"WATCHDOG=1":
            continue
        assert last == b"STOPPING=1"


PASS_SOCKETS = """
import fcntl, os, sys
names = sys.argv[1].split(",")
for number, descriptor in enumerate([fcntl.fcntl(int(word), fcntl.F_DUPFD, 100) for word in sys.argv[2].split(",")]):
    os.dup2(descriptor, 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)}
os.execv(sys.executable, [sys.executable, "-m", "penstock.cli.main", *sys.argv[3:]])
"""


def serve_with(pipe: Pipe, names: list[str], numbers: list[int]) -> subprocess.Popen[bytes]:
    """Start ``penstock serve`` with descriptors as systemd passes them."""
    launcher = [sys.executable, "-c", PASS_SOCKETS, ",".join(names), ",".join(map(str, numbers))]
    with pipe.output.open("ab") as output:
        return subprocess.Popen([*launcher, "serve", *pipe.options], stderr=output, pass_fds=numbers)


@pytest.mark.parametrize("stored_first", [False, True])
def test_listener_takes_the_socket_of_its_address_among_two_with_its_name(tmp_path: Path, stored_first: bool) -> None:
    """A unit opened one, and systemd keeps the other since a reload gave the listener another port."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stored,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened,
    ):
        for sock in (stored, opened):
            sock.bind(("127.0.0.1", 0))
        port = stored.getsockname()[1]
        pipe = Pipe(tmp_path, f"listener.syslog-udp.port={port}")
        pair = [stored, opened] if stored_first else [opened, stored]
        pipe.process = serve_with(pipe, ["syslog-udp", "syslog-udp"], [sock.fileno() for sock in pair])
        try:
            pipe.wait_ready()
            assert pipe.endpoints()["listeners"]["syslog-udp"][1] == port
        finally:
            pipe.stop()
        address = ":".join(map(str, opened.getsockname()))
    assert f"socket 'syslog-udp' at {address}; it is closed" in pipe.output.read_text()


def test_socket_that_no_listener_has_is_named(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        pipe.process = serve_with(pipe, ["penstock-syslog.socket"], [sock.fileno()])
        try:
            pipe.wait_ready()
        finally:
            pipe.stop()
        address = ":".join(map(str, sock.getsockname()))
    assert f"socket 'penstock-syslog.socket' at {address}; it is closed" in pipe.output.read_text()


def test_sockets_stored_by_systemd_keep_datagrams_while_no_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, int] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        pipe = Pipe(tmp_path)
        pipe.start()
        while len(stored) < 4:
            text, descriptors, _, _ = socket.recv_fds(manager, 1000, 10)
            stored |= {text.decode().partition("FDNAME=")[2]: descriptor for descriptor in descriptors}
        before = pipe.endpoints()["listeners"]
        pipe.kill_all()
        address = tuple(before["syslog-udp"])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(20):
                sender.sendto(f"<13>line {number}".encode(), address)
        with socket.create_connection(tuple(before["syslog-tcp"])) as connection:
            connection.sendall(b"<13>waits in the backlog\n")
        # The same socket twice: a unit opened it, and it is in the store.
        names = ["removed-listener", "syslog-udp", *stored]
        numbers = [os.open(os.devnull, os.O_RDONLY), os.dup(stored["syslog-udp"]), *stored.values()]
        pipe.process = serve_with(pipe, names, numbers)
        try:
            pipe.wait_ready()
            assert pipe.endpoints()["listeners"] == before
            wait_until(lambda: pipe.counts("syslog-udp")["taken"] == 20, what="the datagrams are received")
            wait_until(lambda: pipe.counts("syslog-tcp")["accepted"] == 1, what="the connection is accepted")
        finally:
            pipe.stop()
            for descriptor in numbers:
                os.close(descriptor)
