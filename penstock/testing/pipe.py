"""A real ``penstock serve`` for tests: its own processes, ports and data directory, to stop, kill and start again."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from penstock.errors import PenstockError
from penstock.testing.processes import alive, stopped

OWN_PORTS = range(12_000, 32_000)
"""Below those that Linux gives to whoever connects."""
LISTENERS = ("events-udp", "events-tcp", "syslog-udp", "syslog-tcp")
SMALL = [
    "buffer.term_length=2MiB",
    "buffer.slots=64",
    *(f"listener.{name}.port=0" for name in LISTENERS),
    *(f"listener.{name}.max_line=32KiB" for name in LISTENERS),
    *(f"listener.{name}.defrag.max_size=16KiB" for name in LISTENERS),
    "listener.events-udp.defrag.expire_time=1s",
]


class PipeFailed(PenstockError, AssertionError):
    """The pipe of a test ended, or did not come to where it should be in time; the text says more."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has just now, and that the kernel gives to nobody while a pipe is stopped."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(_bound()) for _ in range(count)]
        return [int(sock.getsockname()[1]) for sock in socks]


def _bound() -> socket.socket:
    while True:
        sock = socket.socket()
        try:
            sock.bind(("127.0.0.1", secrets.choice(OWN_PORTS)))
        except OSError:
            sock.close()
        else:
            return sock


def until(done: Callable[[], Any], seconds: float = 30, what: str = "") -> Any:
    """The first true answer of ``done``. Raises PipeFailed after ``seconds``."""
    end = time.monotonic() + seconds
    while not (answer := done()):
        if time.monotonic() > end:
            raise PipeFailed(f"not within {seconds} s: {what or done}")
        time.sleep(0.05)
    return answer


def command_in(folder: Path) -> None:
    """Put the command ``penstock`` into ``folder``'s ``bin``."""
    (folder / "bin").mkdir()
    script = folder / "bin" / "penstock"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock.cli.main "$@"\n')
    script.chmod(0o755)


class Pipe:
    """One ``penstock serve`` in ``folder``, with ``overrides`` (key=value); may be stopped and started again.

    It has the default listeners on free ports, with small log buffers. What it prints is in ``output``.
    """

    def __init__(self, folder: Path, *overrides: str) -> None:
        http, grpc, flight = free_ports(3)
        self.data_dir = folder / "data"
        self.http, self.grpc = f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"
        self.flight = f"127.0.0.1:{flight}"
        ports = [f"log.http={self.http}", f"log.grpc={self.grpc}", f"log.flight={self.flight}"]
        mine = [f"data_dir={self.data_dir}", *ports]
        self.overrides = [*SMALL, *mine, *overrides]
        self.output = folder / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.config: Path | None = None

    @property
    def options(self) -> list[str]:
        """Options of a command that is to find it."""
        file = ["--config", str(self.config)] if self.config else []
        return [*file, *(part for override in self.overrides for part in ("-o", override))]

    def configure(self, text: str) -> None:
        """Have listeners and log buffers as ``text`` (TOML) says, in the place of the small ones."""
        self.overrides = [o for o in self.overrides if o.partition(".")[0] not in ("listener", "buffer")]
        self.config = self.output.parent / "penstock.toml"
        self.config.write_text(text)

    def start(self, wait: bool = True) -> None:
        """Start it; with ``wait`` until it answers. Raises PipeFailed."""
        command = [sys.executable, "-m", "penstock.cli.main", "serve", *self.options]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until the daemon answers and all receivers run. Raises PipeFailed."""
        until(self.answers, what=f"the daemon answers, see {self.output}")
        names = self.endpoints()["listeners"]
        until(lambda: all(self.statistics(name).get("pid") for name in names), what="the receivers leave statistics")

    def answers(self) -> bool:
        """Whether the daemon answers. Raises PipeFailed where it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise PipeFailed(self.output.read_text())
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://{self.http}/topics", timeout=5).is_success
        return False

    def stop(self) -> None:
        """End it in order."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(40)

    def kill_all(self) -> None:
        """As a power cut would end the processes (not the machine)."""
        if self.process is None:
            return
        pids = [pid for pid in self.endpoints()["pids"].values() if pid]
        self.process.kill()
        self.process.wait()
        until(lambda: not any(alive(pid) for pid in pids), what="the children die with their supervisor")

    def endpoints(self) -> dict[str, Any]:
        """Addresses and process ids, as the supervisor says them."""
        document: dict[str, Any] = json.loads((self.data_dir / "endpoints.json").read_text())
        return document

    def environment(self) -> dict[str, str]:
        """For commands that find this pipe, and ``penstock`` in ``bin`` beside its output, by themselves."""
        return {
            **os.environ,
            "PATH": f"{self.output.parent / 'bin'}:{os.environ['PATH']}",
            "PENSTOCK_DATA_DIR": str(self.data_dir),
            "PENSTOCK_LOG__HTTP": self.http,
            "PENSTOCK_LOG__GRPC": self.grpc,
        }

    def run(self, *command: str, seconds: float = 120, **more: str) -> str:
        """What a command of a user prints, in this pipe's environment and ``more``. Raises PipeFailed for a status."""
        done = subprocess.run(
            command,
            env=self.environment() | more,
            cwd=self.output.parent,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise PipeFailed(f"{command[-1]}: {done.stdout} {done.stderr}")
        return done.stdout

    def pid(self, name: str) -> int:
        """The id of a process by its name, such as ``log daemon`` or ``receiver events-udp``."""
        return int(until(lambda: self.endpoints()["pids"].get(name), what=f"{name} runs"))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal."""
        os.kill(self.pid(name), number)

    def kill(self, name: str) -> None:
        """SIGKILL one child and wait for its successor."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.endpoints()["pids"].get(name) not in (None, pid), what=f"{name} is started again")

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Meanwhile a process is stopped (SIGSTOP)."""
        with stopped(self.pid(name)):
            yield

    def address(self, listener: str) -> tuple[str, int]:
        """Where a listener takes messages."""
        host, port = self.endpoints()["listeners"][listener]
        return host, port

    def datagrams(self, *datagrams: bytes, listener: str = "events-udp", pause: float = 0.0) -> None:
        """Send datagrams, ``pause`` seconds after each."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for datagram in datagrams:
                sock.sendto(datagram, self.address(listener))
                time.sleep(pause)

    def lines(self, data: bytes, listener: str = "events-tcp") -> None:
        """Send bytes over a connection of their own."""
        with socket.create_connection(self.address(listener)) as sock:
            sock.sendall(data)

    def get(self, path: str) -> Any:
        """The JSON that the daemon answers; for thirty seconds it may be away."""
        return self._ask("GET", path)

    def post(self, path: str, document: Any = None) -> Any:
        """As ``get``, with a document."""
        return self._ask("POST", path, document)

    def _ask(self, method: str, path: str, document: Any = None) -> Any:
        """The daemon's answer; it may just be starting again."""
        end = time.monotonic() + 30
        while True:
            try:
                answer = httpx.request(method, f"http://{self.http}{path}", json=document, timeout=30)
                return answer.raise_for_status().json()
            except httpx.TransportError:
                if time.monotonic() > end:
                    raise PipeFailed(f"the daemon is away, see {self.output}") from None
                time.sleep(0.1)

    def statistics(self, listener: str) -> dict[str, Any]:
        """What a listener's receiver says of itself; empty before it does."""
        statistics: dict[str, Any] = self.get("/stat")["listeners"].get(listener, {})
        return statistics

    def balance(self) -> dict[str, Any]:
        """The balance."""
        document: dict[str, Any] = self.get("/balance")
        return document

    def counts(self, listener: str) -> Counter[str]:
        """Counts of a listener."""
        found = [entry["counts"] for entry in self.balance()["listeners"] if entry["name"] == listener]
        return Counter(found[0] if found else {})

    def fates(self, topic: str) -> Counter[str]:
        """What became of the messages of a topic."""
        found = [entry["fates"] for entry in self.balance()["topics"] if entry["topic"] == topic]
        return Counter(found[0] if found else {})

    def settled(self, seconds: float = 30) -> dict[str, Any]:
        """The balance once nothing is on its way and nothing changes any more."""
        last: list[Any] = []

        def quiet() -> bool:
            balance = self.balance()
            last.append(balance)
            return not balance["pending"] and len(last) > 4 and all(balance == earlier for earlier in last[-5:-1])

        until(quiet, seconds, "the balance settles")
        result: dict[str, Any] = last[-1]
        return result
