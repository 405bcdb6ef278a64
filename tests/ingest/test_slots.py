"""The slots: what the kernel put there is there for whoever maps them next."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ingest import slots as slots_module
from penstock.ingest.slots import Slots

SLOTS = 16


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def send(to: socket.socket, *datagrams: bytes) -> tuple[str, int]:
    with socket.socket(to.family, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, to.getsockname())
        address: tuple[str, int] = sender.getsockname()
        return "127.0.0.1", address[1]


def held(slots: Slots) -> list[bytes]:
    datagrams = slots.datagrams(0, slots.filled)
    payloads: list[bytes] = datagrams.payloads(range(slots.filled)).to_pylist()
    return payloads


@pytest.fixture(params=["recvmmsg", "recvmsg"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "recvmsg":
        monkeypatch.setattr(slots_module, "_recvmmsg", None)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_datagrams_of_all_sizes_arrive_whole_with_their_sender(tmp_path: Path, sock: socket.socket) -> None:
    sent = [b"", b"a", b"b" * 2048, b"c" * 2049, b"d" * 60_000]
    address = send(sock, *sent)
    slots = Slots(tmp_path / "slots", SLOTS)
    assert slots.receive(sock, 0) == len(sent)
    assert held(slots) == sent
    assert [slots.sender(i) for i in range(len(sent))] == [address] * len(sent)


@pytest.mark.usefixtures("way")
def test_an_empty_socket_gives_nothing_and_a_full_round_leaves_the_rest(tmp_path: Path, sock: socket.socket) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    assert slots.receive(sock, 0) == 0
    send(sock, *(b"%d" % i for i in range(SLOTS + 3)))
    assert slots.receive(sock, 0) == SLOTS
    slots.next_round()
    assert (slots.round, slots.filled) == (2, 0)
    assert slots.receive(sock, 0) == 3
    assert held(slots) == [b"16", b"17", b"18"]


def test_a_round_is_filled_by_several_reads(tmp_path: Path, sock: socket.socket) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    send(sock, b"one", b"two")
    filled = slots.receive(sock, 0)
    send(sock, b"three")
    filled += slots.receive(sock, filled)
    assert (filled, slots.filled, held(slots)) == (3, 3, [b"one", b"two", b"three"])


CHILD = """
import socket, sys, time
from pathlib import Path
from penstock.ingest.slots import Slots
slots = Slots(Path(sys.argv[1]), 16)
print(slots.receive(socket.socket(fileno=int(sys.argv[2])), 0), flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_received_is_there_for_the_next(tmp_path: Path, sock: socket.socket) -> None:
    address = send(sock, b"one", b"two" * 1000)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "slots"), str(sock.fileno())]
    with subprocess.Popen(command, pass_fds=[sock.fileno()], stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"2\n"
        os.kill(child.pid, signal.SIGKILL)
    slots = Slots(tmp_path / "slots", SLOTS)
    assert (slots.round, held(slots), slots.sender(1)) == (1, [b"one", b"two" * 1000], address)


def test_ipv6_senders_are_known(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        send(sock, b"six")
        time.sleep(0.01)
        slots = Slots(tmp_path / "slots", SLOTS)
        assert slots.receive(sock, 0) == 1
        assert slots.sender(0)[0] == "::1"
        assert int(slots.datagrams(0, 1).addresses[0]) != 0
