"""Peers beside Penstock in one run, in turn: each round measures them one after the other, the next one backwards.

A peer is looked for on the PATH, or where ``BENCH_RSYSLOGD`` and ``BENCH_SLOGD`` say.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.testing.pipe import Pipe, free_ports, until
from penstock.testing.processes import cpu_of_all

SIZE = 256
APPENDS = ((1, 1), (8, 1), (64, 1), (1, 1000))
"""Callers, and entries a request."""
RATES = [int(50_000 * 1.15**step) for step in range(22)]
"""Datagrams a second that are tried, until some are lost."""
LISTENER = """
[[listener]]
name = "udp"
protocol = "udp"
port = 0
so_rcvbuf = "16MiB"
"""


class Peer:
    """A server on loopback. ``name`` begins its figures."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.folder.mkdir()

    @property
    @abstractmethod
    def pid(self) -> int:
        """Of the process that began it."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        return cpu_of_all(self.pid)


class Started(Peer):
    """One that is a command."""

    program: str
    ends_by = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.other_port = free_ports(2)
        self._process = subprocess.Popen(
            self.command(), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it in the foreground."""

    @classmethod
    def path(cls) -> str | None:
        """Where the program is; None where it is not installed."""
        return os.environ.get(f"BENCH_{cls.program.upper()}") or shutil.which(cls.program)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.send_signal(self.ends_by)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Slogd(Started):
    """The real slogd."""

    name = program = "slogd"
    ends_by = signal.SIGINT

    def command(self) -> list[str]:
        addresses = ["--rpc_addr", self.grpc, "--http_addr", f"127.0.0.1:{self.other_port}"]
        return [str(self.path()), "server", *addresses, "--data_dir", str(self.folder)]

    @property
    def grpc(self) -> str:
        """Where it takes appends."""
        return f"127.0.0.1:{self.port}"


class Rsyslog(Started):
    """rsyslog, from UDP to /dev/null."""

    name, program = "rsyslog", "rsyslogd"

    def command(self) -> list[str]:
        config = self.folder / "rsyslog.conf"
        config.write_text(
            f'module(load="imudp" batchSize="128")\ninput(type="imudp" address="127.0.0.1" port="{self.port}" '
            'rcvbufSize="16m")\nmain_queue(queue.size="1000000")\n*.* action(type="omfile" file="/dev/null")\n'
        )
        return [str(self.path()), "-n", "-f", str(config), "-i", str(self.folder / "pid")]

    @property
    def udp(self) -> tuple[str, int]:
        """Where it takes datagrams."""
        return "127.0.0.1", self.port


class Penstock(Peer):
    """``penstock serve``."""

    name = "penstock"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._pipe = Pipe(self.folder)
        self._pipe.configure(LISTENER)
        self._pipe.start()
        self.grpc = self._pipe.grpc

    @property
    def udp(self) -> tuple[str, int]:
        """Where it takes datagrams, into the synced log."""
        return self._pipe.address("udp")

    @property
    def pid(self) -> int:
        assert self._pipe.process
        return self._pipe.process.pid

    def stop(self) -> None:
        self._pipe.stop()


PEERS: dict[str, type[Started]] = {"slogd": Slogd, "rsyslog": Rsyslog}


def measure(names: list[str], rounds: int = 3, seconds: float = 2.0) -> dict[str, Any]:
    """Medians of all rounds, for Penstock and those named that are installed. Raises SystemExit for others."""
    for name in names:
        if name not in PEERS:
            sys.exit(f"no peer {name!r}: there are {', '.join(PEERS)}")
        if PEERS[name].path() is None:
            sys.exit(f"{PEERS[name].program} is not on the PATH; BENCH_{PEERS[name].program.upper()} may name it")
    figures: dict[str, Any] = {}
    if "slogd" in names:
        figures |= _in_turn(Slogd, rounds, lambda peer: _appends(peer, seconds) | _reads(peer))
    if "rsyslog" in names:
        figures |= _in_turn(Rsyslog, rounds, lambda peer: _lossless(peer, "datagrams", "", seconds))
        figures |= _in_turn(Rsyslog, rounds, lambda peer: _lossless(peer, "separate", "separate_", seconds))
    return figures


def _in_turn(other: type[Started], rounds: int, work: Any) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as folder, contextlib.ExitStack() as stack:
        peers: list[Any] = [stack.enter_context(_running(kind, Path(folder))) for kind in (Penstock, other)]
        for number in range(rounds):
            for peer in peers if number % 2 == 0 else reversed(peers):
                for name, value in work(peer).items():
                    found.setdefault(f"{peer.name}_{name}", []).append(value)
    return {name: round(statistics.median(values), 3) for name, values in sorted(found.items())}


@contextlib.contextmanager
def _running(kind: type[Peer], folder: Path) -> Iterator[Peer]:
    peer = kind(folder)
    try:
        yield peer
    finally:
        peer.stop()


def _appends(peer: Any, seconds: float) -> dict[str, float]:
    """Entries a second, and milliseconds of the server's CPU a request."""
    figures = {}
    until(lambda: _listens(peer.grpc), what=f"{peer.name} listens")
    for callers, entries in APPENDS:
        topic = f"t{callers}-{entries}"
        before = peer.cpu()
        told = _told("append_load", peer.grpc, topic, callers, entries, seconds)
        spent, name = peer.cpu() - before, f"append_{callers}_callers_{entries}_entries"
        figures[f"{name}_per_s"] = told["requests"] * entries / told["seconds"]
        figures[f"{name}_cpu_ms_a_request"] = 1000 * spent / max(told["requests"], 1)
        figures[f"{name}_refused"] = told["failed"]
    return figures


def _reads(peer: Any) -> dict[str, float]:
    """Entries a second, by pages of 1,000 and by a stream."""
    return {f"read_{name}": rate for name, rate in _told("read_load", peer.grpc).items()}


def _told(client: str, *arguments: object) -> Any:
    """What a client in a process of its own has printed."""
    command = [sys.executable, "-m", f"bench.{client}", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def _lossless(peer: Any, kind: str, name: str, seconds: float) -> dict[str, float]:
    """The highest rate of the sender's ``kind`` at which the kernel drops nothing, and a message's CPU then.

    CPU in us, of all processes. ``name`` stands in the figures' names.
    """
    best, spent = 0.0, 0.0
    until(lambda: dropped(peer.udp[1]) is not None, what=f"{peer.name} listens")
    for rate in RATES:
        before, used, count = dropped(peer.udp[1]), peer.cpu(), int(rate * seconds)
        told = _told("sender", kind, *peer.udp, SIZE, count, rate)
        time.sleep(1)  # what is on its way arrives
        if dropped(peer.udp[1]) != before:
            break
        best, spent = told["sent"] / told["seconds"], (peer.cpu() - used) / told["sent"] * 1e6
        if best < 0.9 * rate:  # the sender can do no more
            break
    return {f"udp_{name}lossless_per_s": best, f"udp_{name}lossless_cpu_us": spent}


def dropped(port: int) -> int | None:
    """What the kernel dropped so far at a UDP port of 127.0.0.1; None while nobody listens there."""
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}":
            return int(fields[-1])
    return None
