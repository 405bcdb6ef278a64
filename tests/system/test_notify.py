"""``penstock serve`` as a service of systemd (Type=notify)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe


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
        assert set(notifications) == {b"READY=1", b"WATCHDOG=1"}
        pipe.stop()
        while (last := manager.recv(100)) == b"WATCHDOG=1":
            continue
        assert last == b"STOPPING=1"
