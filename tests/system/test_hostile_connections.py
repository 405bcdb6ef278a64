"""Servers under thousands of connections, idle ones and ones that send endless lines."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pyarrow.flight as flight
import pytest

from penstock.counts import Counts, open_books
from penstock.process.kernel import raise_file_limit
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.pipe import Pipe, wait_until
from tests.server.idle_connections import IdleConnections, Kind
from tests.server.stub import StructuredLogStub
from tests.wire.otlp.otlp_requests import request

LISTENER = """
[[listener]]
name = "events-tcp"
protocol = "tcp"
port = 0
"""
LINE = 1_000_000
"""Bytes that a hostile connection sends of a line without an end."""
LARGEST, LARGEST_OF_MANY = 200_000_000, 450_000_000
"""Bytes that the receiver may have in memory at most, with 16 MiB and with the default ``max_unfinished`` (128 MiB).

Measured: 115 MB, and with the default 356 to 391 MB at most, 205 to 339 MB from second to second. 60 MB are the
program, 134 MB the unfinished lines; the rest are holes in the heap, where lines of up to 1 MB grow and are freed.
"""


class Hostile(threading.Thread):
    """A sender of ``count`` unfinished lines at once: a closed connection is opened again."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        super().__init__(daemon=True)
        self._address, self._count = address, count
        self._selector = selectors.DefaultSelector()
        self._bytes_to_send: dict[socket.socket, int] = {}
        self._stopping = threading.Event()
        self.opened = 0

    def run(self) -> None:
        for _ in range(self._count):
            self._open()
        while not self._stopping.is_set():
            for key, _ in self._selector.select(0.1):
                self._send(key.fileobj)  # type: ignore[arg-type]

    def end(self) -> None:
        """Close all connections."""
        self._stopping.set()
        self.join()
        for sock in list(self._bytes_to_send):
            self._close(sock)

    def _open(self) -> None:
        sock = socket.create_connection(self._address)
        sock.setblocking(False)
        self._bytes_to_send[sock] = LINE
        self.opened += 1
        self._selector.register(sock, selectors.EVENT_WRITE)

    def _send(self, sock: socket.socket) -> None:
        try:
            self._bytes_to_send[sock] -= sock.send(b"x" * min(self._bytes_to_send[sock], 1 << 16))
        except BlockingIOError:
            return
        except OSError:
            self._close(sock)
            self._open()
            return
        if self._bytes_to_send.get(sock) == 0:
            self._selector.modify(sock, selectors.EVENT_READ)
            self._bytes_to_send[sock] = -1
        elif self._bytes_to_send.get(sock, 0) < 0:
            self._close(sock)
            self._open()

    def _close(self, sock: socket.socket) -> None:
        del self._bytes_to_send[sock]
        self._selector.unregister(sock)
        sock.close()


def peak(pid: int) -> int:
    """Return the peak memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def seconds_until_answer(address: tuple[str, int]) -> float:
    """Return the seconds until a new connection's line is accepted and answered; 60 without an answer."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=30) as sock:
            sock.sendall(b"a newcomer\n\0\0PING\n")
            if sock.recv(100) == b"PONG\n":
                return time.monotonic() - began
    return 60.0


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str], Pipe]]:
    raise_file_limit()
    started: list[Pipe] = []

    def start(keys: str) -> Pipe:
        pipe = Pipe(tmp_path)
        pipe.configure(LISTENER + keys)
        pipe.start()
        started.append(pipe)
        return pipe

    yield start
    for each in started:
        each.stop()


@pytest.mark.parametrize(
    ("idle", "hostile", "keys", "largest"),
    [
        pytest.param(400, 100, 'max_connections = 450\nmax_unfinished = "16MiB"', LARGEST, id="some"),
        pytest.param(5000, 1500, "", LARGEST_OF_MANY, id="many", marks=pytest.mark.soak),
    ],
)
def test_hostile_connections_take_bounded_memory_and_block_no_other_sender(
    idle: int, hostile: int, keys: str, largest: int, pipe: Callable[[str], Pipe]
) -> None:
    running = pipe(keys)
    pid, address = running.pid("receiver events-tcp"), running.address("events-tcp")
    quiet = [socket.create_connection(address, timeout=60) for _ in range(idle)]
    senders = Hostile(address, hostile)
    senders.start()
    wait_until(lambda: running.counts("events-tcp")["connection_closed.limit"] > hostile, 120, "connections make room")
    waits = [seconds_until_answer(address) for _ in range(10)]
    senders.end()
    waits.append(seconds_until_answer(address))
    print(f"newcomers waited {max(waits):.2f} s at most, the receiver had {peak(pid) / 1e6:.0f} MB at most")
    assert max(waits) < 60
    assert peak(pid) < largest
    running.settled()
    counts = running.counts("events-tcp")
    assert (open_books(Counts(counts)), running.balance()["unaccounted"]) == ([], 0)
    assert counts["line.evicted"] > hostile
    assert "connections closed to make room" in running.output.read_text()
    assert running.pid("receiver events-tcp") == pid
    for sock in quiet:
        sock.close()


RPC_LISTENER = """
[[listener]]
name = "otel"
protocol = "otlp_grpc"
port = 0
max_connections = 1000
handlers = [{ type = "log", topic = "otel" }]
"""
EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
MAX_CONNECTIONS = 1000
"""Limit of the listener, and log.max_connections."""
RPC_CONNECTIONS = 1100


def append(address: str) -> None:
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        entry = pb.AppendRequest(topic="t", logs=[pb.LogEntry(raw_bytes=b"x")])
        StructuredLogStub(channel).AppendLogs(entry, timeout=5, wait_for_ready=True)


def read_schema(address: str) -> None:
    with flight.connect(f"grpc://{address}") as client:
        client.get_schema(flight.FlightDescriptor.for_path("t"), flight.FlightCallOptions(timeout=5))


def export(address: str) -> None:
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        channel.unary_unary(EXPORT)(request(1).SerializeToString(), timeout=5, wait_for_ready=True)


@pytest.mark.parametrize("kind", [Kind.NOTHING, Kind.PREFACE, Kind.PINGS])
def test_idle_connections_to_servers_of_grpc_take_bounded_memory_and_block_nobody(
    kind: Kind, pipe: Callable[[str], Pipe]
) -> None:
    running = pipe(RPC_LISTENER)
    listener = "{}:{}".format(*running.address("otel"))
    daemon = running.pid("log daemon")
    append(running.grpc)
    threads, memory = len(os.listdir(f"/proc/{daemon}/task")), peak(daemon)
    for server, address, call in (
        ("grpc", running.grpc, append),
        ("flight", running.flight, read_schema),
        ("otel", listener, export),
    ):
        with IdleConnections(int(address.rpartition(":")[2]), RPC_CONNECTIONS, kind):
            for _ in range(5):
                wait_until(lambda: answers(call, address), 5)  # noqa: B023 - called in this turn
            surplus = RPC_CONNECTIONS - MAX_CONNECTIONS
            wait_until(lambda: closed_connections(running, server) >= surplus, 20)  # noqa: B023 - likewise
    assert len(os.listdir(f"/proc/{daemon}/task")) < threads + 20
    print(f"the daemon had {peak(daemon) / 1e6:.0f} MB at most, before {memory / 1e6:.0f} MB")
    assert peak(daemon) - memory < 100_000_000
    running.settled()
    counts = running.counts("otel")
    assert (open_books(Counts(counts)), running.balance()["unaccounted"]) == ([], 0)


def closed_connections(running: Pipe, server: str) -> int:
    """Return how many connections a server of the log daemon, or a listener, has closed for new ones."""
    if server == "otel":
        return running.counts(server)["connection_closed.limit"]
    metrics = httpx.get(f"http://{running.http}/metrics").text
    (count,) = re.findall(f'penstock_rpc_closed_total{{protocol="{server}",reason="connection"}} (\\d+)', metrics)
    return int(count)


def answers(call: Callable[[str], None], address: str) -> bool:
    """Report whether a client's call is answered."""
    with contextlib.suppress(grpc.RpcError, flight.FlightUnavailableError):
        call(address)
        return True
    return False
