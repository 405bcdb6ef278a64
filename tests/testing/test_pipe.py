"""The waits of tests for a pipe, and its ports."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.testing import pipe
from penstock.testing.pipe import PORTS, Pipe, PipeFailed, free_ports, wait_until


def test_long_wait_asks_less_often_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(pipe, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with pytest.raises(PipeFailed, match="not within 20 s: it happens"):
        wait_until(lambda: False, 20, "it happens")
    assert (pauses[0], pauses[-1]) == (0.05, 0.25)
    assert pauses == sorted(pauses)
    pauses.clear()
    with pytest.raises(PipeFailed):
        wait_until(lambda: False, 5, pause=0.01)
    assert set(pauses) == {0.01}
    assert wait_until(lambda: len(pauses)) == len(pauses)


OTHER_PROCESS = """
import json, sys
from tests.testing.test_pipe import draw_first
from penstock.testing import pipe
pipe.secrets = draw_first(json.loads(sys.argv[1]))
print(pipe.free_ports(1)[0])
"""


def draw_first(ports: list[int]) -> SimpleNamespace:
    """Return a source of chance that draws ``ports`` first."""
    draws = iter([*ports, *PORTS])
    return SimpleNamespace(choice=lambda _: next(draws))


def test_port_that_a_process_has_reserved_is_given_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = free_ports(2)
    monkeypatch.setattr(pipe, "secrets", draw_first(reserved))
    third = free_ports(1)[0]
    assert third not in reserved
    command = [sys.executable, "-c", OTHER_PROCESS, json.dumps([*reserved, third])]
    fourth = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert fourth not in [*reserved, third]


def test_ports_are_given_without_a_folder_for_reservations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "_reservations", pipe._Reservations())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert len(set(free_ports(3))) == 3


def test_request_for_a_port_fails_if_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = free_ports(1)
    monkeypatch.setattr(pipe, "secrets", SimpleNamespace(choice=lambda _: taken))
    monkeypatch.setattr(pipe, "MAX_DRAWS", 20)
    with pytest.raises(PipeFailed, match=r"none of 20 ports of 127\.0\.0\.1 could be opened"):
        free_ports(1)


def test_datagrams_come_from_ports_that_no_earlier_ones_had(tmp_path: Path) -> None:
    running = Pipe(tmp_path)
    running.data_dir.mkdir()
    with socket.socket(type=socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(20)
        document = {"listeners": {"events-udp": receiver.getsockname()}, "pids": {}}
        (running.data_dir / "endpoints.json").write_text(json.dumps(document))
        running._sender_ports = earlier = set(range(0, 1 << 16, 2))  # the kernel gives any of all ports
        for _ in range(30):
            running.datagrams(b"x")
            assert receiver.recvfrom(10)[1][1] % 2 == 1
    assert len(earlier) == (1 << 15) + 30
