"""A real ``penstock serve`` for tests, with its own processes, ports and data directory; it can be killed and
restarted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from penstock.errors import PenstockError
from penstock.testing.processes import alive, stopped

PORTS = range(12_000, 32_000)
"""Below the ports that Linux assigns to clients (32768 and up), so a stopped pipe keeps its ports."""
MAX_DRAWS = 10 * len(PORTS)
"""Limit: ports that are tried for one that is free."""
START_LIMIT_S = 180.0
"""Limit for a start, which takes 1.6 s of CPU: several pipes may start at once on a machine that is busy already."""
LISTENERS = ("events-udp", "events-tcp", "syslog-udp", "syslog-tcp")
SMALL_BUFFERS = [
    "buffer.term_length=2MiB",
    "buffer.slots=64",
    *(f"listener.{name}.port=0" for name in LISTENERS),
    *(f"listener.{name}.max_line=32KiB" for name in LISTENERS),
    *(f"listener.{name}.defrag.max_size=16KiB" for name in LISTENERS),
    "listener.events-udp.defrag.expire_time=1s",
]

# httpx.get reads all certificate authorities in each call: 20 ms of CPU, for waits that ask every 50 ms. Connections
# are not reused, because a daemon may be killed between two requests.
HTTP = httpx.Client(
    verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    trust_env=False,
    limits=httpx.Limits(max_keepalive_connections=0),
)
"""Client of all pipes. They have no TLS, so its context trusts no authority."""


class PipeFailed(PenstockError, AssertionError):
    """The pipe of a test ended, or a condition did not become true in time; the text says more."""


def free_ports(count: int) -> list[int]:
    """Return loopback ports that are free now and that no other call gets before this process has ended: a test starts
    its server later than it asks, and leaves the port while it restarts that server.
    """
    return [_reserve_port() for _ in range(count)]


def _reserve_port() -> int:
    for _ in range(MAX_DRAWS):
        port = secrets.choice(PORTS)
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            try:
                # Order: the reservation comes first, or another process could reserve a port that is bound here.
                _reservations.add(port)
                stream.bind(("127.0.0.1", port))
                datagrams.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise PipeFailed(f"none of {MAX_DRAWS} ports of 127.0.0.1 could be opened")


class _Reservations:
    """Ports that this process has reserved; the kernel forgets them when it ends, however it ends.

    Without a folder for temporary files, processes do not know the reservations of each other.
    """

    def __init__(self) -> None:
        self._ports: set[int] = set()
        self._file: int | None = None
        self._pid = 0

    def add(self, port: int) -> None:
        """Reserve ``port``. Raises OSError if a process has it already."""
        if self._pid != os.getpid():
            # A fork inherits no record locks.
            self._ports, self._pid, self._file = set(), os.getpid(), None
            with contextlib.suppress(OSError):
                path = f"{tempfile.gettempdir()}/penstock-test-ports-{os.getuid()}"
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if port in self._ports:
            raise FileExistsError(port)
        if self._file is not None:
            # One byte stands for each port. The locks of one process do not exclude each other.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        self._ports.add(port)


_reservations = _Reservations()


POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 0.05, 0.25


def wait_until(condition: Callable[[], Any], seconds: float = 60, what: str = "", pause: float = 0.0) -> Any:
    """Return the first true outcome of ``condition``. Raises PipeFailed after ``seconds``.

    It is asked every ``pause`` seconds; by default every 50 ms, and in waits of more than a second less often.
    """
    begin = time.monotonic()
    while not (outcome := condition()):
        elapsed = time.monotonic() - begin
        if elapsed > seconds:
            raise PipeFailed(f"not within {seconds} s: {what or condition}")
        # A request for a balance takes 4 ms of CPU: many waits for slow starts would be what makes the starts slow.
        time.sleep(pause or min(max(POLL_INTERVAL_S, elapsed / 20), MAX_POLL_INTERVAL_S))
    return outcome


def install_command(folder: Path) -> None:
    """Write the command ``penstock`` to ``folder/bin``."""
    (folder / "bin").mkdir()
    script = folder / "bin" / "penstock"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock.cli.main "$@"\n')
    script.chmod(0o755)


class Pipe:
    """A ``penstock serve`` in ``folder``, with ``overrides`` (key=value); it may be stopped and started again.

    It has the default listeners on free ports, with small log buffers. ``output`` is the file of its output.
    """

    def __init__(self, folder: Path, *overrides: str) -> None:
        http, grpc, flight = free_ports(3)
        self.data_dir = folder / "data"
        self.http, self.grpc = f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"
        self.flight = f"127.0.0.1:{flight}"
        ports = [f"log.http={self.http}", f"log.grpc={self.grpc}", f"log.flight={self.flight}"]
        addresses = [f"data_dir={self.data_dir}", *ports]
        self.overrides = [*SMALL_BUFFERS, *addresses, *overrides]
        self.output = folder / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._sender_ports: set[int] = set()
        self.config: Path | None = None
        self.command = ["serve"]
        """The subcommand that runs it, with its flags: ``serve`` or ``up``."""
        self.launcher: tuple[str, ...] = ()
        """A command that starts it, with its arguments, such as ``prlimit``."""

    @property
    def options(self) -> list[str]:
        """Command line options that address this pipe."""
        file = ["--config", str(self.config)] if self.config else []
        return [*file, *(part for override in self.overrides for part in ("-o", override))]

    def configure(self, text: str) -> None:
        """Replace the small listeners and log buffers by a configuration (TOML)."""
        self.overrides = [o for o in self.overrides if o.partition(".")[0] not in ("listener", "buffer")]
        self.config = self.output.parent / "penstock.toml"
        self.config.write_text(text)

    def start(self, wait: bool = True) -> None:
        """Start it; with ``wait`` until it responds. Raises PipeFailed."""
        command = [*self.launcher, sys.executable, "-m", "penstock.cli.main", *self.command, *self.options]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the daemon responds and all receivers run. Raises PipeFailed."""
        wait_until(self.answers, START_LIMIT_S, f"the daemon answers, see {self.output}")
        names = self.endpoints()["listeners"]
        wait_until(
            lambda: all(self.statistics(name).get("pid") for name in names),
            START_LIMIT_S,
            "the receivers leave statistics",
        )

    def answers(self) -> bool:
        """Report whether the daemon responds. Raises PipeFailed if it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise PipeFailed(self.output.read_text())
        with contextlib.suppress(httpx.TransportError):
            # Connection errors only mean that the daemon has not opened its port yet.
            return HTTP.get(f"http://{self.http}/topics", timeout=5).is_success
        return False

    def stop(self) -> None:
        """Stop it gracefully."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(40)

    def kill_all(self) -> None:
        """Kill all its processes at once, as a power failure of the processes (not of the machine)."""
        if self.process is None:
            return
        # Order: pids are read first, because only the supervisor publishes them.
        pids = [pid for pid in self.endpoints()["pids"].values() if pid]
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids), what="the children die with their supervisor")

    def endpoints(self) -> dict[str, Any]:
        """Return the addresses and process ids that the supervisor published."""
        document: dict[str, Any] = json.loads((self.data_dir / "endpoints.json").read_text())
        return document

    def environment(self) -> dict[str, str]:
        """Return the environment of commands that use this pipe, with the ``penstock`` of ``install_command``."""
        return {
            **os.environ,
            "PATH": f"{self.output.parent / 'bin'}:{os.environ['PATH']}",
            "PENSTOCK_DATA_DIR": str(self.data_dir),
            "PENSTOCK_LOG__HTTP": self.http,
            "PENSTOCK_LOG__GRPC": self.grpc,
        }

    def run(self, *command: str, seconds: float = 120, **variables: str) -> str:
        """Run a command in this pipe's environment and return its output. Raises PipeFailed for any status but 0."""
        process = subprocess.run(
            command,
            env=self.environment() | variables,
            cwd=self.output.parent,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if process.returncode:
            raise PipeFailed(f"{command[-1]}: {process.stdout} {process.stderr}")
        return process.stdout

    def pid(self, name: str) -> int:
        """Return the process id of a process by its name, such as ``log daemon`` or ``receiver events-udp``."""
        return int(wait_until(lambda: self.endpoints()["pids"].get(name), what=f"{name} runs"))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        os.kill(self.pid(name), number)

    def kill(self, name: str) -> None:
        """Kill a child (SIGKILL) and wait for its successor."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.endpoints()["pids"].get(name) not in (None, pid), what=f"{name} is restarted")

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop a process (SIGSTOP) during the block."""
        with stopped(self.pid(name)):
            yield

    def address(self, listener: str) -> tuple[str, int]:
        """Return the address of a listener."""
        host, port = self.endpoints()["listeners"][listener]
        return host, port

    def datagrams(self, *datagrams: bytes, listener: str = "events-udp", pause: float = 0.0) -> None:
        """Send datagrams from a port that no call before had, with a pause of ``pause`` seconds after each."""
        with self._new_sender() as sock:
            for datagram in datagrams:
                sock.sendto(datagram, self.address(listener))
                time.sleep(pause)

    def _new_sender(self) -> socket.socket:
        # A listener remembers the message ids of each port for an hour, and the kernel may give a port again.
        with contextlib.ExitStack() as rejected:
            while True:
                sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sock.bind(("", 0))
                if (port := sock.getsockname()[1]) not in self._sender_ports:
                    self._sender_ports.add(port)
                    return sock
                rejected.enter_context(sock)

    def lines(self, data: bytes, listener: str = "events-tcp") -> None:
        """Send bytes over a new connection."""
        with socket.create_connection(self.address(listener)) as sock:
            sock.sendall(data)

    def get(self, path: str) -> Any:
        """Return the JSON of a GET request; the daemon may be restarting for up to 30 s."""
        return self._request("GET", path)

    def post(self, path: str, document: Any = None) -> Any:
        """Return the JSON of a POST request, with the same patience."""
        return self._request("POST", path, document)

    def _request(self, method: str, path: str, document: Any = None) -> Any:
        deadline = time.monotonic() + 30
        while True:
            try:
                response = HTTP.request(method, f"http://{self.http}{path}", json=document, timeout=30)
                return response.raise_for_status().json()
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise PipeFailed(f"the daemon does not respond, see {self.output}") from None
                time.sleep(0.1)

    def statistics(self, listener: str) -> dict[str, Any]:
        """Return the statistics of a listener's receiver; empty before its first report."""
        statistics: dict[str, Any] = self.get("/stat")["listeners"].get(listener, {})
        return statistics

    def balance(self) -> dict[str, Any]:
        document: dict[str, Any] = self.get("/balance")
        return document

    def counts(self, listener: str) -> Counter[str]:
        """Return the counts of a listener."""
        matches = [entry["counts"] for entry in self.balance()["listeners"] if entry["name"] == listener]
        return Counter(matches[0] if matches else {})

    def fates(self, topic: str) -> Counter[str]:
        """Return the fates of the messages of a topic."""
        matches = [entry["fates"] for entry in self.balance()["topics"] if entry["topic"] == topic]
        return Counter(matches[0] if matches else {})

    def settled(self, seconds: float = 30) -> dict[str, Any]:
        """Return the balance once nothing is pending and it no longer changes."""
        balances: list[Any] = []

        def quiet() -> bool:
            # Relaying hosts post their counts also while nothing arrives, and files of other processes change the free
            # space of a disk that has little.
            balance = {name: part for name, part in self.balance().items() if name not in ("hosts", "low_disks")}
            balances.append(balance)
            return (
                not balance["pending"] and len(balances) > 4 and all(balance == earlier for earlier in balances[-5:-1])
            )

        wait_until(quiet, seconds, "the balance settles")
        document: dict[str, Any] = balances[-1]
        return document
